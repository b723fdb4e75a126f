"""Kernels of some models alone: by the architecture of a profile, whatever it is called, and wherever it comes from."""

from pathlib import Path

import pytest

from simulator.deployment.captured_graphs import QWEN_3
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.model_ops import QUANTISING
from simulator.deployment.settings import Settings
from simulator.engines.engine import load_engine
from simulator.errors import ProfileError
from simulator.models.blocks import NORMS
from simulator.models.hf_importer import model_from_config
from simulator.models.layers import BESIDE_EXPERTS, LAST_OF_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import KIND, load_model
from simulator.profile import find
from simulator.profile_files import write_yaml
from simulator.profile_folders import names
from tests.support.model_configs import CONFIGS

RELEASES = "sglang-0.5", "sglang-0.5.10", "sglang-0.5.15"
OF_MODEL = NORMS, BESIDE_EXPERTS


def chosen(found: Deployment) -> tuple[object, ...]:
    """Return what a deployment has by its model's architecture: starts, graphs with prompts, kernels of norms."""
    starts = {op.name: op.launches for op in found.step_model().ops if op.name in OF_MODEL}
    return starts, found.graphs.tokens, found.kernels.rules.norm_kernels


def asked(model: str, device: str, engine: str) -> Deployment:
    return deploy(model, device, engine, default_layout(load_model(model), tp=2))


@pytest.mark.parametrize(
    ("model", "device"),
    [("qwen3-30b-a3b", "b200"), ("gemma-3-27b", "h100-sxm"), ("moonlight-16b-a3b", "h200"), ("kimi-k2.5", "b200")],
)
@pytest.mark.parametrize("engine", RELEASES)
def test_a_copy_of_a_profile_has_the_kernels_of_its_twin(model: str, device: str, engine: str, tmp_path: Path):
    copy = tmp_path / "our-finetune.yaml"
    text = find(KIND, model).read_text()
    copy.write_text(text)
    assert chosen(asked(str(copy), device, engine)) == chosen(asked(model, device, engine))
    without = "\n".join(line for line in text.splitlines() if not line.startswith("architecture:"))
    copy.write_text(without)
    plain = chosen(asked(str(copy), device, engine))
    assert plain != chosen(asked(model, device, engine)) or (model, engine) == ("qwen3-30b-a3b", "sglang-0.5")


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ("glm-4.7-flash", "Glm4MoeLiteForCausalLM"),
        ("nemotron-3-super-120b-a12b", "NemotronHForCausalLM"),
        ("qwen3.5-35b-a3b", "Qwen3_5MoeForConditionalGeneration"),
        ("kimi-k2.5", "KimiK25ForConditionalGeneration"),
    ],
)
@pytest.mark.parametrize("engine", RELEASES)
def test_an_imported_config_has_the_kernels_of_its_architecture(model, architecture, engine, tmp_path):
    config = {**CONFIGS[model], "architectures": [architecture]}
    path = write_yaml(tmp_path / "ours.yaml", KIND, model_from_config(config, "ours", "config.json"))
    assert chosen(asked(str(path), "h200", engine)) == chosen(asked(model, "h200", engine))


@pytest.mark.parametrize(
    ("model", "engine", "kernels"),
    [
        ("moonlight-16b-a3b", "sglang-0.5", 4),  # the architecture of DeepSeek V3, with all experts in one group
        ("deepseek-v3", "sglang-0.5", 0),
        ("kimi-k2", "sglang-0.5", 0),
        ("nemotron-3-nano-30b-a3b", "sglang-0.5", 4 + 2),  # scaled, and shared ones added
        ("nemotron-3-nano-30b-a3b", "sglang-0.5.10", 2),  # 6 experts chosen
        ("nemotron-3-super-120b-a12b", "sglang-0.5.10", 4 + 2),  # 22
        ("nemotron-3-super-120b-a12b", "sglang-0.5.15", 1),
    ],
)
def test_routers_of_one_architecture_differ_by_their_experts(model: str, engine: str, kernels: int):
    found = deploy(model, "b200", engine, default_layout(load_model(model), tp=8, dtypes=("fp8", "")))
    assert {op.launches for op in found.step_model().ops if op.name == BESIDE_EXPERTS} == {kernels}


def test_presets_name_architectures_of_the_library():
    known = {load_model(each).architecture for each in names(KIND)}
    presets = [load_engine(each) for each in RELEASES]
    rules = [each.rules for preset in presets for each in preset.kernels]
    each_rule = [part for rule in rules for part in (rule.fuses_norms, rule.model_norms, *rule.router_kernels) if part]
    named = {name for part in each_rule for name in part.architectures}
    named |= {name for preset in presets for name in preset.graph_capture.piecewise_of_vision}
    assert named
    assert (named | set(QWEN_3)) <= known


def test_a_pattern_of_names_is_no_architecture(tmp_path: Path):
    path = tmp_path / "ours.yaml"
    text = find(KIND, "qwen3-30b-a3b").read_text()
    path.write_text(text.replace("architecture: Qwen3MoeForCausalLM", 'architecture: "qwen3-*"'))
    with pytest.raises(ProfileError, match=r"'qwen3-\*': it is no name of a class"):
        load_model(str(path))


@pytest.mark.parametrize(
    ("model", "device", "layout", "apart"),
    [
        ("llama-3.3-70b", "h200-sxm", Layout(tp=1, weight_dtype="fp8"), 2),
        ("llama-3.3-70b", "h200-sxm", Layout(tp=2, weight_dtype="fp8"), 0),
        ("llama-3.3-70b", "b200-sxm", Layout(tp=2, weight_dtype="nvfp4"), 1),
        ("llama-3.3-70b", "b200-sxm", Layout(tp=1, weight_dtype="nvfp4"), 3),
        ("llama-3.1-8b", "h200-sxm", Layout(tp=2, weight_dtype="fp8"), 2),
        ("llama-3.3-70b", "h200-sxm", Layout(tp=1), 0),
    ],
)
def test_tensorrt_llm_quantises_in_kernels_of_its_own_what_no_other_kernel_does(model, device, layout, apart):
    """Norms quantise in all-reduces of more than 4,096 numbers alone, SwiGLU in fp8 alone; attention always does."""
    found = deploy(model, device, "tensorrt-llm-1.2", layout).step_model().ops
    assert [op.name for op in found].count(QUANTISING) == apart


def test_what_quantises_writes_the_narrow_numbers():
    """Of 70B over two devices: three numbers of SwiGLU, 14,336 each, the last in 8 bits; two norms of 8,192."""
    two, one = Layout(tp=2, weight_dtype="fp8"), Layout(weight_dtype="nvfp4")
    ops = {op.name: op for op in deploy("llama-3.3-70b", "h200-sxm", "tensorrt-llm-1.2", two).step_model().ops}
    assert ops["activation"].activation_bytes.tokens == 14336 * (2 + 2 + 1)
    assert ops[NORMS].activation_bytes.tokens == 2 * 8192 * (2 + 2 + 2 + 1)
    ops_of_one = deploy("llama-3.3-70b", "b200-sxm", "tensorrt-llm-1.2", one).step_model().ops
    apart = [op.activation_bytes.tokens for op in ops_of_one if op.name == QUANTISING]
    assert apart == [width * 2.5625 for width in (8192, 8192, 28672)]


def test_vllm_norms_within_all_reduces_from_0_17_on_and_where_told():
    """pass_config.fuse_allreduce_rms: a default of Hopper and data-center Blackwell, with tensor parallelism."""
    told = Settings(changes=("fuse_allreduce_rms=true",)), Settings(changes=("fuse_allreduce_rms=false",))

    def starts(device: str, engine: str, tp: int, settings: Settings = Settings()) -> int:
        ops = deploy("llama-3.1-8b", device, engine, Layout(tp=tp), settings).step_model().ops
        return next(op.launches for op in ops if op.name == NORMS)

    assert starts("h100-sxm", "vllm-0.19", 2) == 0
    assert (
        starts("h100-sxm", "vllm-0.19", 1) == starts("h100-sxm", "vllm-0.14", 2) == starts("l40s", "vllm-0.19", 2) > 0
    )
    assert starts("h100-sxm", "vllm-0.14", 2, told[0]) == 0
    assert starts("h100-sxm", "vllm-0.19", 2, told[1]) > 0


@pytest.mark.parametrize(
    ("model", "device", "engine", "stored", "up", "beside"),
    [  # numbers of 16 bits of each choice: of the first GEMM, and beside the two
        ("mixtral-8x7b", "mi325x", "vllm-mlperf-0.6", "fp8", 4096 + 14336, 1.5 * 14336),  # one quantises; none sums
        ("mixtral-8x7b", "mi325x", "vllm-0.14", "fp8", 4096 + 2 * 14336, 3 * 14336 + 4096),  # Triton's
        ("mixtral-8x7b", "mi300x", "sglang-0.5.15", "bf16", 4096 + 14336, 0),
        ("gpt-oss-120b", "b200-sxm", "vllm-0.33", "mxfp4", 2880 + 2880, 2880),  # finalize sums
    ],
)
def test_experts_that_activate_in_their_first_gemm_move_less(model, device, engine, stored, up, beside):
    found = deploy(model, device, engine, Layout(weight_dtype=stored))
    experts = [op for op in found.step_model().ops if op.experts][:3]
    chosen, (first, between, last) = experts[0].experts.chosen, experts
    assert (between.name, last.name) == (BESIDE_EXPERTS, LAST_OF_EXPERTS)
    assert first.activation_bytes.tokens == pytest.approx(2 * chosen * up)
    assert between.activation_bytes.tokens == pytest.approx(2 * chosen * beside)
