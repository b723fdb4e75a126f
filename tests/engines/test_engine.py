"""Presets of engines: what each says, and any of its settings by its own name."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from simulator.cli import build
from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.setting_names import OURS, configure, known_names
from simulator.deployment.settings import Settings
from simulator.engines.engine import KIND, Engine, engine_of, load_engine
from simulator.engines.fitted_multipliers import EXPERTS, UNITY
from simulator.errors import InfercastError, NotModelledError, ProfileError, UnitError
from simulator.hardware.hardware import load_hardware
from simulator.models.model import load_model
from simulator.models.operations import Counts, Sequence, count
from simulator.profile_folders import names
from simulator.reports.figures_of_ops import sourced_figures
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Requests

H100 = load_hardware("h100-sxm")
ENGINES = [load_engine(each) for each in names(KIND)]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda each: each.id)
def test_every_preset_says_where_its_rules_are_from_and_spells_settings_that_there_are(engine):
    assert engine.rules.text
    assert {spelling.sets for spelling in engine.spelling.values()} <= set(OURS)
    for name, spelling in engine.spelling.items():
        for word in spelling.values or {}:
            configure(engine, Settings(), [f"{name}={word}"])


def test_a_name_without_a_version_is_the_newest():
    assert load_engine("vllm").id == "vllm-0.33"
    assert load_engine("vLLM") is load_engine("vllm")
    assert load_engine("TensorRT-LLM") is load_engine("tensorrt_llm")
    assert engine_of("TGI", "").id == "tgi-3.3"
    assert engine_of("Transformers-NeuronX", "2.18").id == "transformers-neuronx-2.18"


@pytest.mark.parametrize(
    ("name", "version", "preset"),
    [
        ("TensorRT LLM", "1.1.0", "tensorrt-llm-1.0"),
        ("NVIDIA TensorRT-LLM", "0.12", "tensorrt-llm-0.11"),
        ("CUDA 12.8, TensorRT-LLM 0.18", "", "tensorrt-llm-0.15"),
        ("Triton + TensorRT-LLM", "24.05", "tensorrt-llm-0.8"),  # of May 2024
        ("JetPack 6.0, TensorRT 10.1, CUDA 12.2", "", "tensorrt-9"),
        ("nvcr.io/nvidia/vllm:25.09-py3", "", "vllm-0.8"),  # of September 2025
        ("rocm/vllm:rocm7.0_vllm_0.11", "", "vllm-0.8"),
        ("vLLM V1", "0.9.2", "vllm-0.8"),
        ("vLLM-ROCm 0.18", "", "vllm-0.14"),
        ("rocm/vllm-dev:nightly_20260801", "", "vllm-0.19"),
        ("vLLM (TPU)", "", "vllm-tpu-0.8"),
        ("NIM vLLM", "", "vllm-0.33"),
        ("lmsysorg/sglang:v0.5.5", "", "sglang-0.5"),
        ("llama.cpp (Vulkan)", "b6000", "llama.cpp-vulkan-b1500"),
        ("llama.cpp", "build: 7123 (79c1160b)", "llama.cpp-b6325"),
        ("LM Studio", "0.3.20", "llama.cpp-b7500"),  # no build of llama.cpp
        ("LM Studio (MLX)", "0.3.20", "mlx-lm-0.20"),
        ("exllama2", "", "exllamav2-0.0"),
        ("HuggingFace TGI", "", "tgi-3.3"),
        ("Text Generation Inference", "2.4", "tgi-3.3"),
    ],
)
def test_an_engine_is_found_as_sources_spell_it(name, version, preset):
    assert engine_of(name, version).id == preset


@pytest.mark.parametrize(
    ("version", "preset"),
    [
        ("latest (2026-01) 2026-01", "vllm-0.8"),  # 0.14 is of 2026-01-20
        ("latest (2026-01) 2026-01-19", "vllm-0.8"),
        ("latest (2026-01) 2026-01-20", "vllm-0.14"),
        ("2025-12 2026-01-06", "vllm-0.8"),
        ("2026", "vllm-0.8"),
        ("2026-02", "vllm-0.14"),
        ("2026-04-03", "vllm-0.19"),
        ("0.13.0 2026-11-05", "vllm-0.8"),  # a version counts more than any date
    ],
)
def test_a_date_is_the_release_that_was_out_on_that_day(version, preset):
    assert engine_of("vLLM", version).id == preset


@pytest.mark.parametrize(
    ("name", "version", "preset"),
    [
        ("vLLM + LMCache 0.3.1", "", "vllm-0.33"),
        ("SGLang + FlashInfer 0.4.1", "", "sglang-0.5.15"),
        ("vLLM (of a container 0.2)", "0.10.1", "vllm-0.8"),
        ("vLLM 0.8.5", "2026-11-05", "vllm-0.8"),
    ],
)
def test_a_release_in_the_name_is_the_engines_where_no_other_is_stated(name, version, preset):
    assert engine_of(name, version).id == preset


@pytest.mark.parametrize(
    ("engine", "written", "field", "value"),
    [
        ("vllm", "--long-prefill-token-threshold=512", "long_prefill_tokens", 512),
        ("vllm-0.8", "scheduling_policy=priority", "by_priority", True),  # an older version, the newest one's words
        ("vllm", "--enable-prefix-caching=false", "prefix_caching", False),
        ("vllm", "--enable-lora=true", "adapters", True),
        ("sglang", "disable_radix_cache=true", "prefix_caching", False),
        ("sglang", "--enable-mixed-chunk=true", "policy", "continuous"),
        ("tensorrt-llm", "capacity_scheduler_policy=MAX_UTILIZATION", "admit_full_output", False),
        ("tensorrt-llm", "enable_block_reuse=false", "prefix_caching", False),
        ("llama.cpp", "-ub=1024", "micro_batch_tokens", 1024),
        ("llama.cpp", "-fa=off", "flash_attention", False),
        ("static", "batch_wait_s=50 ms", "batch_wait_s", 0.05),
        ("static", "batch_size=8", "batch_size", 8),
        ("vllm", "reservation=contiguous", "reservation", "contiguous"),
        ("vllm", "block_size=32", "block_size", 32),
        ("vllm", "--stream-interval=10", "stream_interval", 10),
        ("vllm", "--api-server-count=4", "api_server_count", 4),
    ],
)
def test_a_setting_of_the_engine_by_its_own_name(engine, written, field, value):
    changed, settings = configure(load_engine(engine), Settings(), [written])
    assert getattr(changed, field) == value
    assert changed.id == load_engine(engine).id
    assert settings == Settings(changes=(written,))


@pytest.mark.parametrize(
    ("engine", "written", "field", "value"),
    [
        ("vllm", "--max-loras=4", "max_loras", 4),
        ("vllm", "--max-lora-rank=64", "max_lora_rank", 64),
        ("sglang", "--max-loras-per-batch=2", "max_loras", 2),
    ],
)
def test_limits_of_adapters_need_adapters(engine, written, field, value):
    """vLLM and SGLang, too, change nothing for them without --enable-lora."""
    changed, _ = configure(load_engine(engine), Settings(), ["enable_lora=true", written])
    assert getattr(changed, field) == value
    with pytest.raises(InfercastError, match=re.escape(f"--set {written}: ") + ".*Add --set enable_lora=true"):
        configure(load_engine(engine), Settings(), [written])


@pytest.mark.parametrize(
    ("engine", "written", "settings"),
    [
        ("vllm", ["gpu_memory_utilization=0.8"], Settings(memory_fraction=0.8)),
        ("vllm", ["num-gpu-blocks-override=101"], Settings(num_blocks=100)),
        ("sglang", ["--max-running-requests=64"], Settings(max_num_seqs=64)),
        ("sglang", ["chunked_prefill_size=4096"], Settings(max_num_batched_tokens=4096)),
        ("sglang", ["mem_fraction_static=0.7"], Settings(memory_fraction=0.7)),
        ("tensorrt-llm", ["max_batch_size=32", "max_num_tokens=2048"], Settings(32, 2048)),
        ("tensorrt-llm", ["kv_cache_free_gpu_memory_fraction=0.5"], Settings(memory_fraction=0.5)),
        ("tgi", ["--max-batch-prefill-tokens=2048"], Settings(max_num_batched_tokens=2048)),
        ("tgi", ["max_batch_total_tokens=32000"], Settings(num_blocks=32_000)),
        ("llama.cpp", ["-c=16384", "--parallel=4"], Settings(4, max_model_len=4096)),
        ("ollama", ["OLLAMA_NUM_PARALLEL=2", "OLLAMA_CONTEXT_LENGTH=8192"], Settings(2, max_model_len=8192)),
    ],
)
def test_a_limit_by_the_engines_own_name(engine, written, settings):
    assert configure(load_engine(engine), Settings(), written).settings == replace(settings, changes=tuple(written))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("max_num_seq=4", "Nearest: .*max_num_seqs"),
        ("capacity_scheduler_policy=MAX_UTILIZATION", "vllm-0.33 has no such setting"),
        ("flash_attention=on", "do not tell fused attention from unfused"),
        ("max_num_seqs", "Write --set NAME=VALUE"),
        ("max_num_seqs=0", "whole number of 1 or more"),
        ("stream_interval=0", "whole number of 1 or more"),
        ("prefix_caching=maybe", "Write true or false"),
        ("policy=fifo", "Known: continuous, prompts-first, static, uncached"),
        ("scheduling_policy=lifo", "Known: fcfs, priority"),
        ("least_free_share=2", "--set least_free_share=2: least_free_share is less than 1"),
        ("watermark=1%", "non-negative number. Write one, without a unit"),
    ],
)
def test_what_cannot_be_set_is_refused_in_three_parts(written, said):
    with pytest.raises(InfercastError, match=said):
        configure(load_engine("vllm"), Settings(), [written])


@pytest.mark.parametrize(
    ("engine", "written", "said"),
    [
        ("vllm", ["cache_tokens=5"], "--set cache_tokens=5: a block has 16 tokens. Write 16 or more."),
        ("vllm", ["block_size=32", "cache_tokens=31"], "--set cache_tokens=31: a block has 32 tokens. Write 32 or"),
        ("vllm", ["num_gpu_blocks_override=1"], "--set num_gpu_blocks_override=1: one block is vLLM's null block"),
        ("llama.cpp", ["-c=3", "-np=4"], "--set -c=3: 4 slots share it. Write 4 or more."),
        ("static", ["batch_wait_s=-5s"], "--set batch_wait_s=-5s: a quantity here is finite and not negative"),
        ("vllm", ["gpu_memory_utilization=x"], "--set gpu_memory_utilization=x: it is not a finite, non-negative"),
    ],
)
def test_what_is_too_small_is_named_as_it_was_written(engine, written, said):
    with pytest.raises(InfercastError) as error:
        configure(load_engine(engine), Settings(), written)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("engine", ["static", "uncached"])
@pytest.mark.parametrize(
    "rule",
    [
        {"long_prefill_tokens": 8},
        {"admit_full_output": True},
        {"least_free_share": 0.1},
        {"least_waiting": 3},
        {"prompt_interval": 3},
        {"output_estimate": load_engine("sglang").output_estimate},
        {"scheduler_recv_interval": 2},
    ],
    ids=str,
)
def test_rules_of_other_policies_are_refused(engine, rule):
    plain = deploy("llama-3.1-8b", "h100-sxm", engine)
    assert limits(plain)
    with pytest.raises(NotModelledError, match="limits of other policies"):
        limits(replace(plain, engine=plain.engine.model_copy(update=rule)))


def test_a_rule_of_another_policy_is_named_as_it_was_written():
    engine, settings = configure(load_engine("static"), Settings(), ["watermark=0.1"])
    asked = replace(deploy("llama-3.1-8b", "h100-sxm", "static", settings=settings), engine=engine)
    with pytest.raises(NotModelledError, match=r"^--set watermark=0\.1 with static-1: "):
        limits(asked)


def test_a_batch_that_is_reserved_has_no_watermark():
    """vLLM V0's preset has one."""
    engine, settings = configure(load_engine("vllm-0.5"), Settings(), ["policy=static"])
    asked = replace(deploy("llama-3.1-8b", "h100-sxm", "vllm-0.5", settings=settings), engine=engine)
    assert limits(asked).watermark_blocks == 0 < limits(deploy("llama-3.1-8b", "h100-sxm", "vllm-0.5")).watermark_blocks


def test_prefix_blocks_that_blocks_of_the_cache_do_not_divide_are_refused():
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    requests = Requests(np.zeros(1), np.full(1, 64), np.ones(1), prefixes=Prefixes.of([[0, 1]], 24))
    with pytest.raises(NotModelledError, match="has blocks of 16, which do not divide them"):
        limits(deployment, requests)


def test_a_wait_has_a_unit():
    with pytest.raises(UnitError, match="no unit"):
        configure(load_engine("static"), Settings(), ["batch_wait_s=50"])


def test_known_names_begin_with_the_engines_own():
    assert known_names(load_engine("sglang"))[0] == "max_running_requests"


def test_an_unknown_source_of_rules_is_refused(tmp_path: Path):
    text = (Path("simulator/engines") / "vllm-0.33.yaml").read_text().replace("{source: rules}", "{source: ruels}")
    (tmp_path / "own-1.yaml").write_text(text)
    with pytest.raises(ProfileError, match="ruels"):
        Engine.from_yaml(tmp_path / "own-1.yaml")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("rules: {weight_only: [fp5]}", "'fp5'.*it is not known"),
        ("rules: {fuses: [fp4]}", "'fp4'.*Nearest: nvfp4, mxfp4"),  # a type of products, and no format
        ("rules: {per_head_formats: [fp7]}", "'fp7'.*it is not known"),
        ('fitted: {quantized: {value: 0, guess: "none"}}', "above 0"),
        ('rules: {reduced_bits: {value: -4, guess: "fewer"}}', "-4"),
        ('fitted: {staged: {value: 1, guess: "read"}}', "'staged'.*it is not a known key here"),
        ('rules: {compute: {value: 1, guess: "fitted"}}', "'compute'.*it is not a known key here"),
    ],
)
def test_kernels_of_unknown_formats_and_of_no_rate_are_refused(tmp_path, rule, said):
    text = (Path("simulator/engines") / "static-1.yaml").read_text()
    (tmp_path / "own-1.yaml").write_text(f"{text}kernels: [{{{rule}}}]\n")
    with pytest.raises(ProfileError, match=said):
        Engine.from_yaml(tmp_path / "own-1.yaml")


# ------------------------------------------------------------------------------------------ what the presets do


@pytest.mark.parametrize("name", names(KIND))
def test_rules_were_read_and_multipliers_were_fitted(name):
    """The evidence of each figure says so, or that a kernel was timed alone; a guess stands in the place of any."""
    read = {"datasheet", "derived", "measured", "guess"}
    for kernels in load_engine(name).kernels:
        assert {each.source.evidence for _, each in sourced_figures(kernels.rules)} <= read
        fitted = [
            each for each in sourced_figures(kernels.fitted) if each[1].source not in (UNITY.source, EXPERTS.source)
        ]
        assert {each.source.evidence for _, each in fitted} <= {"fitted", "guess"}


def test_borrowed_kernels_are_those_of_the_other_engine():
    card = load_hardware("rtx-4090")
    assert load_engine("ollama").kernels_on(card) == load_engine("llama.cpp").kernels_on(card)


def test_v0_makes_room_for_the_longest_prompt():
    assert deploy("llama-2-7b", "h100-sxm", "vllm-0.5").max_num_batched_tokens == 8192
    assert deploy("llama-3.1-8b", "h100-sxm", "vllm-0.5").max_num_batched_tokens == 32_768


def test_without_chunks_no_prompt_is_cut():
    whole = configure(load_engine("vllm"), Settings(max_num_batched_tokens=2500), ["chunked_prefill=false"])
    layout = default_layout(load_model("llama-3.1-8b"))
    settings = replace(whole.settings, max_num_seqs=64)
    deployment = Deployment(load_model("llama-3.1-8b"), H100, whole.engine, layout, settings)
    assert estimate(deployment, Batch(5, 1000, 10)).prefill.steps == 3  # 2 + 2 + 1
    with pytest.raises(InfercastError, match="whole prompts"):
        estimate(deployment, Batch(1, 2501, 10))


def test_a_naive_server_computes_the_whole_text_for_each_token():
    """Step i of 1 + ... costs what a prompt of p + i tokens costs; a cache is some 20 times faster at 4,000 tokens."""
    naive = estimate(deploy("llama-2-7b", "a100-sxm-80", "naive"), Batch(1, 2000, 100))
    model = naive.models[0]
    tokens = 2001.0
    prompt = Counts(1.0, tokens, 1.0, prefill_tokens=tokens, prefill_pairs=tokens * (tokens + 1) / 2)
    two = estimate(deploy("llama-2-7b", "a100-sxm-80", "naive"), Batch(1, 2000, 2))
    assert two.expected.tpot_s == pytest.approx(float(model.seconds(prompt)))
    cached = estimate(deploy("llama-2-7b", "a100-sxm-80", "static"), Batch(1, 2000, 100))
    assert 5 < naive.expected.e2el_s / cached.expected.e2el_s < 50


@pytest.mark.parametrize("tokens", [1, 511, 512, 513, 1024, 1500, 2048])
def test_a_batch_of_llama_cpp_runs_in_micro_batches(tokens):
    """1,500 tokens cost what 512 + 512 + 476 cost, but for the head and the host's time, once per batch."""
    model = deploy("llama-3.1-8b", "rtx-4090", "llama.cpp").step_model()
    whole = replace(model, micro_batch_tokens=0)
    sizes = [512] * (tokens // 512) + [tokens % 512] * (tokens % 512 > 0)
    parts = sum(float(_products(whole, size)) for size in sizes)
    assert float(_products(model, tokens)) == pytest.approx(parts)
    found = model.table(2048, 4)
    assert found.token_s[tokens] + found.logit_s[0] == pytest.approx(float(model.seconds(Counts(1.0, float(tokens)))))


def _products(model, tokens):
    return sum(cost.seconds for cost in model.explain(Counts(1.0, float(tokens))) if cost.name in PRODUCTS)


PRODUCTS = ("qkv projection", "output projection", "gate and up projection", "down projection", "activation")


# ------------------------------------------------------------------------------------------------ as a user asks


def told(*arguments: str) -> Result:
    return CliRunner().invoke(build(arguments), list(arguments))


ASK = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--format", "json")


def test_settings_drafts_and_offloads_reach_the_plan():
    options = ("--set", "--max-num-seqs=64", "--set", "block_size=32", "--cpu-offload-gb", "5", "--host", "epyc-9654")
    drafts = (
        "--speculative-model",
        "llama-3.2-1b",
        "--num-speculative-tokens",
        "3",
        "--acceptance-rate",
        "0.8,0.7,0.5",
    )
    plan = json.loads(told("memory", *ASK, *options, *drafts).stdout)["plans"][0]
    assert (plan["max_num_seqs"], plan["block_tokens"]) == (64, 32)
    assert plan["host_bytes"] == 5 * 2**30
    assert plan["draft_bytes"] == 2 * load_model("llama-3.2-1b").parameters


def test_an_estimate_says_what_drafts_are_worth():
    drafts = ("--speculative-model", "ngram", "--num-speculative-tokens", "3", "--acceptance-rate", "0.6")
    found = json.loads(told("estimate", *ASK, *drafts, "--isl", "128", "--osl", "16", "--batch", "1,512").stdout)
    gains = [row["speculation_speedup"] for row in found["estimates"]]
    assert gains[0] > 1 > gains[1]
    assert "ngram drafts 3 tokens, each accepted with 0.6: 2.18 tokens per step and sequence (yours)." in found["notes"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--speculative-model", "ngram"), "Give --num-speculative-tokens"),
        (("--speculative-model", "ngram", "--num-speculative-tokens", "2"), "Give --acceptance-rate"),
        (("--acceptance-rate", "0.5"), "Give --speculative-model"),
        (
            ("--speculative-model", "ngram", "--num-speculative-tokens", "2", "--acceptance-rate", "2"),
            "not a probability",
        ),
        (("--gpu-layers", "8", "--tp", "2", "--engine", "llama.cpp"), "beside one device"),
        (("--set", "max_num_sequences=3"), "has no such setting"),
    ],
)
def test_what_is_said_in_part_is_refused(options, said):
    error = told("estimate", *ASK, *options, "--isl", "100").exception
    assert isinstance(error, InfercastError)
    assert said in str(error)


@pytest.mark.parametrize("device", ["a100-sxm-80", "h100-sxm"])
def test_eager_transformers_waits_for_its_host(device):
    """41 kernels for each of 32 layers (modeling_llama.py), 25 us each: a step of any few tokens takes 32.8 ms."""
    deployment = deploy("llama-2-7b", device, "transformers")
    host_s = 41 * 32 * 25e-6
    one, sixteen = (deployment.step_model().seconds(count([Sequence(1, 100)] * n)) for n in (1, 16))
    assert one == pytest.approx(host_s)
    assert sixteen == pytest.approx(host_s)
    assert deployment.step_model().seconds(count([Sequence(2000, 0)])) > host_s
    assert deployment.at_light.step_model().seconds(count([Sequence(1, 100)])) < host_s / 2


def test_other_engines_do_not_wait_for_python():
    for name in names("engines"):
        engine = load_engine(name)
        eager = [each for each in engine.kernels if each.rules.eager_kernels]
        assert bool(eager) == bool(engine.overheads.kernel_s) == (engine.engine == "transformers")


@pytest.mark.parametrize(
    ("name", "version", "preset"),
    [
        ("vllm-0.10.2", "", "vllm-0.8"),
        ("vLLM-v0.9.2", "", "vllm-0.8"),
        ("vllm_v0.7.3", "", "vllm-0.5"),
        ("vllm-v1-0.9.0", "", "vllm-0.8"),
        ("sglang-v0.4.6.post5", "", "sglang-0.5"),
        ("trtllm-1.1.0rc5", "", "tensorrt-llm-1.0"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.1.0", "", "tensorrt-llm-1.0"),
        ("llama.cpp", "4500", "llama.cpp-b3220"),
        ("llama.cpp", "5f1d3a2 (6100)", "llama.cpp-b3220"),
        ("llama.cpp", "2026", "llama.cpp-b7500"),  # a year
        ("rocm vllm 0.9.0", "", "vllm-0.8"),
        ("CUDA llama.cpp b4500", "", "llama.cpp-b3220"),
        ("TurboMind", "", "lmdeploy-0.2"),
    ],
)
def test_a_release_behind_a_hyphen_a_path_or_no_letter_is_one(name, version, preset):
    assert engine_of(name, version).id == preset
