"""Attention of prompts over Vulkan on Strix Halo, whose K and V lie in few channels of the memory."""

import math

import pytest

from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import Attention
from simulator.models.layout import Layout
from simulator.models.operations import Counts, Op
from simulator.roofline.roofline import Rates

HALO = load_hardware("strix-halo")
FUSED = load_engine("llama.cpp-vulkan-b6325").model_copy(update={"flash_attention": True})
KERNELS = FUSED.kernels_on(HALO).with_fitted(reread=3.22)


def prompt_attention(heads: int, kv_heads: int, width: int = 128, window: int | None = None) -> Op:
    """Attention of prompts in one layer."""
    layer = Attention(heads=heads, kv_heads=kv_heads, head_dim=width, window=window)
    return next(op for op in layer.ops(4096, Layout()) if op.rate == "prefill_attention")


@pytest.mark.parametrize(
    ("heads", "channels"),
    [((64, 8), 2), ((64, 4), 4), ((24, 4, 256), 4), ((64, 8, 64), 4), ((40, 10), 8), ((32, 32), 3)],
)
def test_kv_heads_leave_few_of_sixteen_channels(heads, channels):
    """16 rows a reading at 256 GB/s, times what caches add (ggml-org/llama.cpp pull request 27703)."""
    found = KERNELS.reread_flops_per_s(prompt_attention(*heads))
    assert found == pytest.approx(3.22 * 16 * 256e9 * channels / 16)


def test_a_prompt_behind_a_long_context_is_as_slow_as_its_cache():
    """Eight KV heads: 1.6 TFLOP/s, where one KV head leaves attention its own rate."""
    counts = Counts(1.0, 512.0, prefill_tokens=512.0, prefill_pairs=512.0 * 65536)
    rates, taken = Rates(KERNELS.with_fitted(half_length=0.0)), []
    for kv_heads in (8, 1):
        op = prompt_attention(48, kv_heads)
        taken.append(counts.dot(op.flops) / rates.time(op, counts).seconds)
    assert taken[0] == pytest.approx(3.22 * 16 * 32e9)
    assert taken[1] > 4 * taken[0]


def test_windows_and_other_devices_are_not_bound_so():
    assert KERNELS.reread_flops_per_s(prompt_attention(64, 8, window=1024)) == math.inf
    card = load_hardware("rx-7900-xtx")
    kernels = load_engine("llama.cpp-vulkan-b6325").kernels_on(card)
    assert kernels.rules.strided_cache
    assert kernels.reread_flops_per_s(prompt_attention(64, 8)) == math.inf


def test_what_all_heads_share_lies_in_all_channels():
    shared = Op("latent", "prefill_attention", flops=Counts(prefill_pairs=1.0))
    assert KERNELS.reread_flops_per_s(shared) == pytest.approx(3.22 * 16 * 256e9)
