"""Deployments in words: lists make every combination, and each option reaches the deployment."""

import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.offload import Offload
from simulator.errors import InfercastError, NotModelledError, ProfileError
from simulator.models.layout import Layout
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.units import GIB
from tests.support.paths import ROOT

PLAIN = {"model": "llama-3.1-8b", "hardware": "l40s"}


def test_only_names_are_needed():
    assert DeploymentQuestion(**PLAIN).deployment() == deploy("llama-3.1-8b", "l40s")


def test_lists_make_every_combination_in_their_order():
    asked = DeploymentQuestion("llama-3.1-8b,qwen3-8b", "l40s, h100-sxm", tp="1,2", weight_dtype="bf16,fp8")
    found = asked.deployments()
    assert len(found) == len(asked.choices()) == 16
    told = [(each.model.id, each.hardware.id, each.layout.tp, each.layout.weight_dtype) for each in found]
    assert told[:5] == [
        ("llama-3.1-8b", "l40s", 1, "bf16"), ("llama-3.1-8b", "l40s", 1, "fp8"), ("llama-3.1-8b", "l40s", 2, "bf16"),
        ("llama-3.1-8b", "l40s", 2, "fp8"), ("llama-3.1-8b", "h100-sxm", 1, "bf16"),
    ]  # fmt: skip
    assert told[-1] == ("qwen3-8b", "h100-sxm", 2, "fp8")
    with pytest.raises(InfercastError, match="16 deployments: one is asked about here"):
        asked.deployment()


def test_a_sweep_goes_on_without_what_cannot_be():
    first, second = DeploymentQuestion("llama-3.1-8b", "l40s", tp="3,2").choices()
    with pytest.raises(NotModelledError, match="tp 3: 32 attention heads do not divide by it"):
        first()
    assert second().layout.tp == 2
    with pytest.raises(NotModelledError):
        DeploymentQuestion("llama-3.1-8b", "l40s", tp="3,2").deployments()


def test_every_option_reaches_the_deployment():
    found = DeploymentQuestion(
        **{"model": "qwen3-235b-a22b", "hardware": "h200-sxm", "engine": "vllm", "tp": "2", "pp": 2, "dp": 2, "ep": 4},
        **{"weight_dtype": "fp8", "cache_dtype": "fp8", "max_num_seqs": "64", "max_num_batched_tokens": "4096"},
        **{"max_model_len": 8192, "gpu_memory_utilization": "0.8", "num_gpu_blocks_override": 1001},
        **{"changes": ("enable_prefix_caching=false", "sorted_sampling=true"), "cpu_offload_gb": 2.0},
        **{"kv_offloading_size": 3.0, "host": "epyc-9654"},
    ).deployment()
    assert found.layout == Layout(2, 2, 4, "fp8", "fp8", "bf16", 2)
    settings = found.settings
    assert (settings.max_num_seqs, settings.max_num_batched_tokens, settings.max_model_len) == (64, 4096, 8192)
    assert (settings.memory_fraction, settings.num_blocks) == (0.8, 1000)  # one is vLLM's null block
    assert not found.engine.prefix_caching
    assert settings.sorted_sampling
    assert settings.offload == Offload(2 * GIB, None, 3 * GIB, "epyc-9654")


def test_speculation_needs_its_three_parts():
    given = {"speculative_model": "ngram", "num_speculative_tokens": 3, "acceptance_rate": "0.7,0.5,0.3"}
    drafts = DeploymentQuestion(**PLAIN, **given).deployment().settings.speculation
    assert (drafts.draft, drafts.tokens, drafts.acceptance) == ("ngram", 3, (0.7, 0.5, 0.3))
    for missing, flag in (
        ("speculative_model", "--speculative-model"),
        ("num_speculative_tokens", "--num-speculative-tokens"),
        ("acceptance_rate", "--acceptance-rate"),
    ):
        rest = {name: value for name, value in given.items() if name != missing}
        with pytest.raises(InfercastError, match=f"speculation without {flag}.*Give {flag}"):
            DeploymentQuestion(**PLAIN, **rest).deployment()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": "llama-3.1-8"}, "Nearest: llama-3.1-8b"),
        ({"hardware": "l40t"}, "Nearest: l40"),
        ({"engine": "vlm"}, "vllm"),
        ({"tp": "two"}, "--tp two: it is not a whole number above 0"),
        ({"weight_dtype": "fp8,"}, "a part of the list is empty"),
        ({"changes": ("enable_prefix_cache=false",)}, "Nearest: "),
        ({"changes": ("max_loras=4,enable_lora=true",)}, "Give --set once for each"),
        ({"max_num_seqs": "0"}, "--max-num-seqs 0"),
        ({"gpu_memory_utilization": "1.2"}, "--gpu-memory-utilization 1.2: it is a share"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changed, told):
    with pytest.raises(InfercastError) as error:
        DeploymentQuestion(**{**PLAIN, **changed}).deployment()
    assert told in str(error.value)


def test_ones_own_profiles_are_read_anew(tmp_path, monkeypatch):
    """Shipped ones are read once for all questions; a file, and a folder of one's own, may change between two."""
    folder = tmp_path / "model_profiles"
    folder.mkdir()
    with pytest.raises(ProfileError):
        DeploymentQuestion("mine", "l40s").deployment()
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    text = (ROOT / "model_profiles" / "llama-3.1-8b.yaml").read_text()
    for context in (131_072, 4_096):
        for path in (folder / "mine.yaml", tmp_path / "file.yaml"):
            path.write_text(text.replace("max_context_tokens: 131072", f"max_context_tokens: {context}"))
        for name in ("mine", str(tmp_path / "file.yaml")):
            assert DeploymentQuestion(name, "l40s").deployment().max_model_len == context
    assert DeploymentQuestion("llama-3.1-8b", "l40s").deployment().max_model_len == 131_072


def test_a_deployment_that_is_named_twice_is_asked_about_once():
    asked = DeploymentQuestion("llama-3.1-8b", "h100-sxm,h100", tp="1,1", pp="1,2", changes=("block_size=16,32",))
    assert [(each.hardware, each.pp, each.changes) for each in asked.each()] == [
        ("h100-sxm", pp, (size,)) for pp in ("1", "2") for size in ("block_size=16", "block_size=32")
    ]
