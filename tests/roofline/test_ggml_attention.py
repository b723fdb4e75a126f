"""Attention of prompts in llama.cpp: latent vectors as they are, and vector units where ggml has no matrix kernel."""

import pytest

from simulator.deployment.deployment import deploy
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import Attention
from simulator.models.layout import Layout
from simulator.models.operations import Counts, Op
from simulator.roofline.roofline import Rates


def flops_of_pairs(model: str, engine: str) -> set[float]:
    """FLOPs of a causal pair, of each kind of layer."""
    ops = deploy(model, "b200-sxm", engine).step_model().ops
    return {op.flops.prefill_pairs for op in ops if op.name == "prefill attention"}


@pytest.mark.parametrize("engine", ["llama.cpp", "llama.cpp-vulkan", "ollama"])
def test_prompts_attend_to_latent_vectors_as_decodes_do(engine):
    """GLM-4.7-Flash: 20 heads of 512 + 64 and 512 numbers; in vLLM of 192 + 64 and 256 (src/models/deepseek2.cpp)."""
    assert flops_of_pairs("glm-4.7-flash", engine) == {2.0 * 20 * (512 + 64 + 512)}
    assert flops_of_pairs("glm-4.7-flash", "vllm") == {2.0 * 20 * (192 + 64 + 256)}


def test_other_attention_has_nothing_to_absorb():
    assert flops_of_pairs("llama-3.1-8b", "llama.cpp") == flops_of_pairs("llama-3.1-8b", "vllm")


def prompt_attention(heads: int, kv_heads: int, width: int) -> Op:
    """Attention of prompts in one layer."""
    layer = Attention(heads=heads, kv_heads=kv_heads, head_dim=width)
    return next(op for op in layer.ops(4096, Layout()) if op.rate == "prefill_attention")


@pytest.mark.parametrize(("heads", "in_vectors"), [((32, 8, 128), False), ((32, 32, 128), True), ((32, 8, 256), True)])
def test_wide_heads_and_those_without_groups_attend_in_vector_units_on_radeon(heads, in_vectors):
    """RX 7900 XTX: a fifth of 61.4 TFLOP/s of fp32, or the share of the matrix units (ggml-cuda/fattn.cu)."""
    hardware, op = load_hardware("rx-7900-xtx"), prompt_attention(*heads)
    kernels = load_engine("llama.cpp-b6325").kernels_on(hardware).with_fitted(half_length=0.0)
    counts = Counts(1.0, 4096.0, prefill_tokens=4096.0, prefill_pairs=4096.0**2 / 2)
    rate = counts.dot(op.flops) / Rates(kernels).time(op, counts).compute_s
    assert (rate == pytest.approx(0.2 * hardware.peak_flops_per_s["fp32"])) is in_vectors


def test_cards_whose_matrix_kernel_takes_all_heads_have_one_rate():
    hardware = load_hardware("rtx-4090")
    kernels = load_engine("llama.cpp-b6325").kernels_on(hardware)
    assert kernels.vector_attention_flops_per_s(prompt_attention(32, 8, 256)) is None
