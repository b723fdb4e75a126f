"""Kernels of routed experts by published times of the kernels alone, and attention over a cache in fp8."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.deployment.workspace import workspace
from simulator.engines import aiter_tiles, marlin_tiles
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import Attention, MixtureOfExperts
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.op_builders import linear
from simulator.models.operations import Counts
from simulator.models.routed_experts import Experts
from simulator.roofline.roofline import Rates
from tests.support.kernels import kernels_with

# flagos-ai/FlagGems pull requests 3609 and 4350: ms of vLLM's fused_marlin_moe in int4 on an H20, by tokens
MIXTRAL = {1: 0.134, 4: 0.339, 16: 0.444, 64: 1.189, 128: 1.705, 512: 5.039, 1024: 10.31, 4096: 36.74, 16384: 143.2}
DEEPSEEK = {1: 0.143, 16: 1.395, 64: 2.973}
QWEN = {1: 0.084, 16: 0.599, 64: 1.498, 256: 2.227, 1024: 5.646, 2048: 8.665, 4096: 20.82}
# us of vLLM's fused_moe in fp8, 128 experts of 768, in default tiles: its pull requests 24700 (H100) and 53710 (L40S)
WHOLE_FP8 = {
    "h100-sxm": {16: 185.4, 64: 262.7, 128: 273.7, 256: 355.5, 512: 391.9, 1024: 536.3},
    "l40s": {8: 377.0, 16: 592.3, 32: 800.4, 64: 902.8, 128: 947.2, 256: 978.6, 512: 1034.2},
}


# ms of TensorRT-LLM's fused experts on data-center Blackwell by tokens: flashinfer-ai/flashinfer pull request 5301
# (2026-09), 32 of DeepSeek's 256, with what routes, quantises and sums; block scales are MXFP8's there
TRTLLM_GEN = {
    "nvfp4": {1: 0.0367, 16: 0.0856, 32: 0.1164, 64: 0.1503, 128: 0.1548, 256: 0.1648, 512: 0.1756},
    "fp8-block": {1: 0.0386, 16: 0.1203, 32: 0.1723, 64: 0.2286, 128: 0.2357, 256: 0.2515, 512: 0.2603},
}


# us of dense Marlin by rows: vllm-project/vllm pull request 2497 (int4; 313.6 million weights by its rates; 16 and 32
# rows, for which experts would take the next tile, stand as 14 and 28) and flashinfer-ai/flashinfer pull request 4466,
# whose weights are floats, which take longer to unpack for fewer rows than a tile has
DENSE_MARLIN = [
    ("a100-sxm-40", 17408, 18015, {14: 140, 28: 180, 64: 290, 128: 570, 256: 1130, 1024: 4550}),
    ("b200-sxm", 6656, 19968, {512: 382.1, 1024: 745.8, 4096: 2983.5}),
]


# us of AITER's experts in 16 bits on an MI355X by tokens, in tuned tiles (amd-aiter 0.1.7.post2.dev18, MIT,
# aiter/configs/tuned_fmoe.csv): 128 of 384 columns for 4,096 inputs, 256 of 512 for 7,168
AITER = [
    (128, 384, 4096, {16: 140.9, 32: 195.6, 64: 212.0, 128: 216.2, 256: 221.2, 512: 248.9, 1024: 316.4}),
    (256, 512, 7168, {16: 401.4, 32: 573.4, 64: 830.0, 128: 920.0, 256: 931.0}),
]


# us of Triton's kernel in 16 bits in default tiles on A100, by tokens: vllm-project/vllm pull requests 19049 (128
# experts of 768, eight for a token) and 40542 (64 of 1,408, six)
DEFAULT_TILES = [
    (128, 8, 768, {2: 159.8, 4: 268.9, 8: 403.1, 16: 611.2, 24: 730.2, 32: 808.5, 48: 886.0, 64: 917.5, 96: 943.1}),
    (64, 6, 1408, {4: 266.2, 16: 542.6, 64: 698.1, 256: 769.5, 1024: 1022.5, 4096: 2919.0}),
]


def experts_s(engine: str, device: str, layer: MixtureOfExperts, hidden: int, layout: Layout, tokens: float) -> float:
    """Return the seconds of the kernels of a layer's routed experts for so many tokens, by what was read alone.

    Benchmarks of kernels draw a token's experts at random, all alike.
    """
    hardware = load_hardware(device)
    rates = Rates(load_engine(engine).kernels_on(hardware).with_fitted(compute=1.0))
    routed = [op for op in layer.ops(hidden, layout) if op.experts is not None]
    ops = [replace(op, experts=op.experts._replace(uneven=False)) for op in routed if op.experts]
    costs = [rates.time(op, Counts(1.0, tokens)) for op in ops]
    return sum(float(cost.seconds - cost.overhead_s) for cost in costs)


@pytest.mark.parametrize(
    ("published", "experts", "chosen", "hidden", "width"),
    [(MIXTRAL, 8, 2, 4096, 14336), (DEEPSEEK, 256, 8, 7168, 2048), (QWEN, 512, 10, 4096, 1024)],
)
def test_marlin_experts_take_their_published_times_on_an_h20(published, experts, chosen, hidden, width):
    """19 times within 5 % on average, beside 40 us of launches outside a graph."""
    layer = MixtureOfExperts(kind="experts", experts=experts, chosen=chosen, intermediate=width)
    layout = Layout(weight_dtype="int4")
    errors = [
        np.log((0.04 + 1e3 * experts_s("vllm-0.19", "h20-sxm", layer, hidden, layout, float(tokens))) / ms)
        for tokens, ms in published.items()
    ]
    assert np.abs(errors).mean() < 0.07
    assert np.abs(errors).max() < 0.14


@pytest.mark.parametrize(("device", "columns", "inputs", "published"), DENSE_MARLIN)
def test_tiles_of_marlin_take_the_published_times_of_dense_weights(device, columns, inputs, published):
    """On an A100 and a B200, where no other kernel has four bits; one expert that all tokens choose is one, too."""
    hardware = load_hardware(device)
    rates = Rates(load_engine("vllm-0.33").kernels_on(hardware).with_fitted(compute=1.0, launch=1.0))
    product = linear("", (inputs, columns), Layout(weight_dtype="int4"))
    expert = replace(product, experts=Experts(1, 1), expert_bytes=product.weight_bytes, weight_bytes=0.0)
    for rows, us in published.items():
        found = [1e6 * float(rates.time(op, Counts(1.0, float(rows))).seconds) for op in (product, expert)]
        assert found == pytest.approx([us, us], rel=0.13), rows


@pytest.mark.parametrize(
    ("experts", "tokens", "rows", "padding"),
    [((128, 8, 1), 16, 8, 4.1), ((128, 8, 1), 128, 16, 2.1), ((160, 8, 4), 64, 16, 3.91), ((160, 8, 4), 256, 64, 4.68)],
)
def test_marlin_takes_larger_tiles_on_ranks_that_hold_fewer_experts(experts, tokens, rows, padding):
    """vllm fused_marlin_moe.py and issue 48066; padding as drawn: Gumbel's top k over exponential popularities."""
    total, chosen, ranks = experts
    routed = Experts(total, chosen, ranks, uneven=True)
    assert marlin_tiles.rows_of(routed, float(tokens)) == rows
    assert marlin_tiles.padding(routed, float(tokens), 0.0) == pytest.approx(padding, rel=0.03)


def test_the_busiest_rank_has_more_tiles_than_the_mean_by_less_than_more_tokens():
    routed = Experts(160, 8, 4, uneven=True)
    for tokens in (16.0, 64.0, 256.0):
        assert 1.0 < marlin_tiles.busiest(routed, tokens) < routed.busiest_tokens(tokens)
    assert marlin_tiles.busiest(routed, 1e5) == pytest.approx(routed.busiest_tokens(1e5), rel=0.01)
    assert np.isfinite(marlin_tiles.busiest(routed, np.zeros(2))).all()


@pytest.mark.parametrize("device", WHOLE_FP8)
def test_whole_fp8_experts_take_their_published_times(device):
    """35 us of launches beside the kernels; tiles of 16 rows up to as many tokens as experts, then larger ones."""
    layer = MixtureOfExperts(kind="experts", experts=128, chosen=8, intermediate=768)
    fp8 = Layout(weight_dtype="fp8")
    for tokens, us in WHOLE_FP8[device].items():
        predicted_us = 35 + 1e6 * experts_s("vllm-0.8", device, layer, 2048, fp8, float(tokens))
        assert predicted_us == pytest.approx(us, rel=0.17), tokens


@pytest.mark.parametrize("device", ["l40s", "rtx-pro-6000", "rtx-5090"])
def test_whole_fp8_experts_run_in_triton_off_data_centers_and_loop_over_k(device):
    """In the tiles before vLLM pull request 34846; Hopper's run in CUTLASS, whose loop is not known."""
    layer = MixtureOfExperts(kind="experts", experts=160, chosen=8, intermediate=1536)
    up = next(op for op in layer.ops(5120, Layout(tp=8, weight_dtype="fp8")) if op.experts)
    hardware, h100 = load_hardware(device), load_hardware("h100-sxm")
    for engine in ("vllm-0.8", "vllm-0.14"):
        assert load_engine(engine).kernels_on(hardware).k_loop_s(up) == pytest.approx(5120 * 4e-9)
    assert load_engine("vllm-0.14").kernels_on(h100).k_loop_s(up) == 0.0


@pytest.mark.parametrize("stored", TRTLLM_GEN)
def test_experts_of_tensorrt_llm_take_their_published_times_on_blackwell(stored):
    """Without the loop over K of Triton's kernel, which would make one token twice as slow.

    Starts as the kernel has them, without what vLLM's rows make of them.
    """
    layer = MixtureOfExperts(kind="experts", experts=256, chosen=8, intermediate=2048)
    hardware = load_hardware("b200-sxm")
    rates = Rates(load_engine("vllm-0.33").kernels_on(hardware).with_fitted(launch=1.0))
    routed = [op for op in layer.ops(7168, Layout(tp=8, ep=8, weight_dtype=stored)) if op.experts]
    ops = [replace(op, experts=op.experts._replace(uneven=False, ranks=1)) for op in routed if op.experts]
    for tokens, ms in TRTLLM_GEN[stored].items():
        predicted_s = sum(float(rates.time(op, Counts(1.0, float(tokens))).seconds) for op in ops)
        assert 1e3 * predicted_s == pytest.approx(ms, rel=0.13), tokens


# us of trtllm-gen's experts in MXFP8 on a B300, 32 of DeepSeek's 256 (the same pull request): MXFP4 by MXFP8 multiplies
# at their rate, and reads half as much
MXFP8 = {16: 120.4, 32: 172.5, 64: 228.0, 128: 234.7, 256: 250.9, 512: 260.6, 1024: 267.8, 2048: 284.3, 4096: 331.4}


@pytest.mark.parametrize("engine", ["tensorrt-llm-1.2", "vllm-0.33", "sglang-0.5.15"])
def test_mxfp4_experts_of_trtllm_gen_multiply_and_read_as_published(engine):
    """Eight bits in their place: 5 % in the mean where reading binds, no faster than published with many tokens."""
    layer = MixtureOfExperts(kind="experts", experts=256, chosen=8, intermediate=2048)
    hardware = load_hardware("b300-sxm")
    kernels = load_engine(engine).kernels_on(hardware)
    own = next(each for each in kernels.rules.expert_kernels if each.holds(hardware, "mxfp4"))
    in_eight = own.model_copy(update={"formats": ("fp8",), "inputs": None})
    rates = Rates(kernels.with_rules(expert_kernels=(in_eight,)))
    routed = [op for op in layer.ops(7168, Layout(tp=8, ep=8, weight_dtype="fp8")) if op.experts]
    ops = [replace(op, experts=op.experts._replace(uneven=False, ranks=1)) for op in routed if op.experts]
    found = {n: 1e6 * sum(float(rates.time(op, Counts(1.0, float(n))).seconds) for op in ops) for n in MXFP8}
    errors = {n: np.log(found[n] / us) for n, us in MXFP8.items()}
    assert np.abs([errors[n] for n in MXFP8 if n <= 512]).mean() < 0.06
    assert 0.0 < errors[1024] < errors[4096] < 0.3


def test_gpt_oss_multiplies_slower_in_cutlass_than_in_trtllm_gen():
    """TensorRT-LLM's own tables ask for CUTLASS (`moe_backend`), of whose mxfp4 no time is known."""
    hardware = load_hardware("b200-sxm")
    layer = MixtureOfExperts(kind="experts", experts=128, chosen=4, intermediate=2880)
    op = next(each for each in layer.ops(2880, Layout(weight_dtype="mxfp4")) if each.experts)
    own = load_engine("tensorrt-llm-1.2")
    engines = own, own.model_copy(update={"moe_backend": "cutlass"})
    shares = [each.kernels_on(hardware).compute_share("fp8", op) for each in engines]
    assert shares[1] / shares[0] == pytest.approx(0.46)


# us of TensorRT-LLM's CUTLASS experts (FlashInfer's cutlass_fused_moe) in nvfp4 on a B300 by tokens, 32 of DeepSeek's
# 256, with what routes, quantises and sums: sgl-project/sglang pull request 40105 (2026-09)
CUTLASS_NVFP4 = {
    **{1: 52.7, 2: 57.9, 4: 70.7, 8: 86.4, 16: 98.5, 32: 129.3, 64: 159.8, 128: 163.6, 256: 173.8, 512: 181.2},
    **{1024: 200.4, 2048: 224.8, 4096: 280.3, 8192: 432.9, 16384: 715.8},
}


def cutlass_us(release: str, device: str, tokens: float) -> float:
    """Return the microseconds of 32 of DeepSeek's 256 experts in nvfp4, drawn alike, in TensorRT-LLM."""
    layer = MixtureOfExperts(kind="experts", experts=256, chosen=8, intermediate=2048)
    hardware = load_hardware(device)
    rates = Rates(load_engine(f"tensorrt-llm-{release}").kernels_on(hardware))
    routed = [op for op in layer.ops(7168, Layout(tp=8, ep=8, weight_dtype="nvfp4")) if op.experts]
    ops = [replace(op, experts=op.experts._replace(uneven=False, ranks=1)) for op in routed if op.experts]
    return 1e6 * sum(float(rates.time(op, Counts(1.0, tokens)).seconds) for op in ops)


def test_experts_in_nvfp4_of_tensorrt_llm_1_2_are_cutlass_on_blackwell():
    """15 times within 4 % on average; tiles are not padded, and the kernels of 1.0 were slower."""
    errors = [np.log(cutlass_us("1.2", "b300-sxm", float(n)) / us) for n, us in CUTLASS_NVFP4.items()]
    assert np.abs(errors).mean() < 0.04
    assert np.abs(errors).max() < 0.13
    assert cutlass_us("1.0", "b200-sxm", 16384.0) > 1.4 * cutlass_us("1.2", "b200-sxm", 16384.0)


def test_cutlass_experts_have_room_for_sorted_copies():
    """A rank of four has room for all 8 copies of each token: 2 x 4,096 numbers of 16 bits for each."""
    layout = Layout(ep=4, dp=4, weight_dtype="nvfp4", cache_dtype="fp8")
    found = deploy("qwen3-235b-a22b", "gb200", "tensorrt-llm-1.2", layout, Settings(max_num_batched_tokens=8192))
    tokens, copies = 4 * 8192, 8 * 2 * 4096 * 2
    assert workspace(found).activation_bytes == pytest.approx(tokens * (copies + 2 * 4096 * 2 / 4))


def test_flashattention_3_loses_time_to_a_cache_in_fp8():
    """Kernel tables have it at 0.57 of an H200's 4.8 TB/s, where one of 16 bits is read at 0.82."""
    h200, reads = load_hardware("h200-sxm"), Counts(decode_reads=1e6)
    op = next(
        op
        for op in Attention(heads=32, kv_heads=8, head_dim=128).ops(4096, Layout(cache_dtype="fp8"))
        if op.rate == "decode_attention"
    )
    shares = {}
    for engine in ("vllm-0.19", "sglang-0.5.10", "tensorrt-llm-1.2"):
        kernels = load_engine(engine).kernels_on(h200).with_fitted(cache=1.0)
        cost = Rates(kernels).time(op, reads)
        shares[engine] = float(op.bytes_read(reads) / 4.8e12 / cost.memory_s)
    assert shares == pytest.approx({"vllm-0.19": 0.57, "sglang-0.5.10": 0.57, "tensorrt-llm-1.2": 0.82})


# The same pull requests and 3222: ms of Triton's kernel, which unpacks int4 weights anew for each tile of rows
TRITON = {
    (256, 8, 7168, 2048): {16: 8.64, 64: 17.743},
    (512, 10, 4096, 1024): {16: 3.425, 64: 8.596, 256: 11.79, 4096: 20.598},
    (8, 2, 4096, 14336): {16: 2.85, 64: 3.858},
}


@pytest.mark.parametrize("shape", TRITON)
def test_triton_unpacks_int4_experts_anew_for_each_tile(shape):
    """Up to 64 tokens, and 4,096, within 25 %: 85 FLOPs of fp32 for each weight and tile, half as many of a zero."""
    total, chosen, hidden, width = shape
    engine, layout = load_engine("sglang-0.5"), Layout(weight_dtype="int4")
    kernels = engine.model_copy(update={"moe_backend": "triton"}).kernels_on(load_hardware("h20-sxm"))
    layer = MixtureOfExperts(kind="experts", experts=total, chosen=chosen, intermediate=width)
    ops = [op for op in layer.ops(hidden, layout) if op.name in ("experts up", "experts down")]
    own, *rest = kernels.rules.expert_kernels
    assert own.unpack_flops == pytest.approx(1.5 * 85, rel=0.01)
    without_zeros = own.model_copy(update={"unpack_flops": 85.0})
    rates = Rates(kernels.with_rules(expert_kernels=(without_zeros, *rest)))
    for tokens, measured in TRITON[shape].items():
        alike = [replace(op, experts=op.experts._replace(uneven=False)) for op in ops]
        found = sum(rates.time(op, Counts(steps=1.0, tokens=tokens)).seconds for op in alike)
        assert found * 1e3 == pytest.approx(measured, rel=0.25)


def test_whoever_asks_for_triton_experts_has_dense_weights_unpacked_into_memory():
    """AWQLinearMethod: Qwen3-30B-A3B's attention is written and read in 16 bits; its experts are not."""
    model = ("qwen3-30b-a3b", "rtx-5090", "sglang-0.5", Layout(weight_dtype="int4"))
    plain, asked = (deploy(*model, Settings(changes=each)) for each in ((), ("moe_backend=triton",)))
    one = Counts(steps=1.0, tokens=1.0, logits=1.0, decode_reads=1000.0)
    moved = [
        next(op for op in each.step_model().explain(one) if op.name == "qkv projection") for each in (plain, asked)
    ]
    assert moved[1].moved_bytes > 2 * moved[0].moved_bytes  # for a single row, too
    counts = Counts(steps=1.0, tokens=4.0, logits=4.0, decode_reads=4000.0)
    costs = [{each.name: each for each in one.step_model().explain(counts)} for one in (plain, asked)]
    qkv = 48 * 2048 * 5120
    moved = costs[1]["qkv projection"].moved_bytes - costs[0]["qkv projection"].moved_bytes
    assert moved == pytest.approx(2 * 2.0 * qkv, rel=0.02)  # written, then read in place of what is stored
    assert costs[1]["experts up"].moved_bytes == costs[0]["experts up"].moved_bytes
    assert costs[1]["experts up"].seconds > 1.3 * costs[0]["experts up"].seconds


def cutlass_on_b200() -> DeviceKernels:
    return load_engine("sglang-0.5").model_copy(update={"moe_backend": "cutlass"}).kernels_on(load_hardware("b200-sxm"))


def test_cutlass_moe_fp4_fills_tiles_of_128_rows_and_takes_long_beside_its_gemms():
    """Ms of a layer of DeepSeek-R1's experts on a B200 in CUDA graphs: sgl-project/sglang pull request 6093."""
    kernels = cutlass_on_b200()
    layer = MixtureOfExperts(kind="experts", experts=256, chosen=8, intermediate=7168)
    ops = [op for op in layer.ops(2048, Layout(weight_dtype="nvfp4")) if op.name in ("experts up", "experts down")]
    rates = Rates(kernels.with_fitted(launch=1.0))
    for tokens, runs_ms in {4: 8.4, 8: 11.9, 16: 18.4}.items():
        alike = [replace(op, experts=op.experts._replace(uneven=False)) for op in ops]
        found = sum(rates.time(op, Counts(steps=1.0, tokens=tokens)).seconds for op in alike)
        assert found * 1e3 == pytest.approx(runs_ms / 25, rel=0.08), tokens
    assert kernels.of_engine.with_experts_of("auto").rules == kernels.rules
    assert kernels.rules.unpacks_from_rows is None  # dense layers are Triton's affair alone
    assert kernels_with().with_experts_of("triton").rules.unpacks_from_rows is None  # an engine that has none


def test_cutlass_moe_fp4_passes_what_each_choice_reads_and_writes_through_memory():
    """Two copies that are written and read, a product, and the read of the quantising kernel: 7 times 16 bits."""
    kernels = cutlass_on_b200()
    hardware = kernels.hardware
    layout = Layout(tp=4, weight_dtype="nvfp4-mlp")
    op = next(op for op in load_model("kimi-k2.5").ops(layout) if op.name == "experts up")
    own = kernels.experts_of(op.format, op.experts)
    without = kernels.with_rules(expert_kernels=(own.model_copy(update={"passes": None}),))
    prompt = Counts(1.0, 8000.0, 1.0)
    more, less = (float(Rates(each).time(op, prompt).seconds) for each in (kernels, without))
    rate = float(hardware.achievable.elementwise_memory_fraction) * hardware.memory_bytes_per_s
    assert (more - less) / op.repeats == pytest.approx(7 * 2 * 8000 * 8 * 7168 / rate)


@given(
    st.integers(1, 4096), st.integers(1, 8), st.integers(8, 256), st.integers(32, 4096), st.sampled_from([80, 256, 304])
)
@example(1, 8, 32, 1536, 80)  # 16 tokens at least
@example(31, 3, 16, 1024, 80)  # E r - k, not E r + k
@example(17, 1, 128, 1024, 80)  # whole blocks, rounded up
@example(500, 2, 128, 128, 80)  # of as many rounds what leaves the fewest units idle
@example(1, 2, 8, 384, 3)  # one round less counts more than all units idle in the last
def test_aiter_takes_the_tiles_that_fill_the_compute_units(
    tokens: int, chosen: int, total: int, width: int, units: int
):
    """As its own function does, in whole numbers (fused_moe.py, get_block_size_M, of get_padded_M)."""
    padded = min(max(16, 1 << (tokens - 1).bit_length()), 1024)
    found = []
    for rows in (32, 64, 128):
        blocks = -(-width // 128) * (padded * chosen + total * rows - chosen + rows - 1) // rows
        found.append(((blocks + units - 1) // units, units - blocks % units, rows))
    expected = sorted(found, key=lambda each: each[:2])[0][-1]
    assert float(aiter_tiles.rows_of(Experts(total, chosen, width=width), float(tokens), float(units))) == expected


@pytest.mark.parametrize("engine", ["sglang-0.5", "sglang-0.5.10", "sglang-0.5.15"])
def test_experts_of_a_hundred_sequences_fill_tiles_of_128_rows_on_mi300x(engine: str):
    """ERNIE-4.5-21B has 64 experts of 1,536 columns, of which a token reaches six."""
    found = deploy("ernie-4.5-21b-a3b", "mi300x", engine)
    up = next(op for op in found.ops if op.name == "experts up")
    rows = [float(found.kernels.padding(up, tokens)) * tokens * 6 for tokens in (64.0, 100.0)]
    touched = [float(up.experts.touched(tokens)) for tokens in (64.0, 100.0)]
    assert rows == pytest.approx([64 * touched[0], 128 * touched[1]])


@pytest.mark.parametrize(("experts", "chosen", "width", "known"), DEFAULT_TILES)
def test_default_tiles_multiply_as_tuned_ones_do_on_an_a100(
    experts: int, chosen: int, width: int, known: dict[int, float]
):
    """30 us of launches beside the kernels; at 0.42 of the rate, an H100's, prompts would take 1.6 times as long."""
    layer, layout = MixtureOfExperts(kind="experts", experts=experts, chosen=chosen, intermediate=width), Layout()
    device = "a100-pcie-40" if experts == 128 else "a100-sxm-80"
    predicted = [30 + 1e6 * experts_s("sglang-0.5", device, layer, 2048, layout, float(tokens)) for tokens in known]
    assert np.mean(np.abs(np.log(np.array(predicted) / list(known.values())))) < 0.1


@pytest.mark.parametrize(("experts", "width", "hidden", "known"), AITER)
def test_aiter_takes_its_published_times_in_16_bits(experts: int, width: int, hidden: int, known: dict[int, float]):
    """6 us start its two GEMMs; tiles by its rule have up to 128 rows where tuned ones have 32 or 64."""
    layer, layout = MixtureOfExperts(kind="experts", experts=experts, chosen=8, intermediate=width), Layout()
    predicted = [6 + 1e6 * experts_s("sglang-0.5", "mi355x", layer, hidden, layout, float(tokens)) for tokens in known]
    assert np.mean(np.abs(np.log(np.array(predicted) / list(known.values())))) < 0.09
