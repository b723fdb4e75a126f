"""What kernels of some engines do beside the least work: heads that read alone, every expert, padded reads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deployment.batches import Batch, decode_counts
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.engines.kernel_rules import CROWDED_HEADS, ExpertKernels
from simulator.engines.kernels import Kernels
from simulator.errors import ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.models.blocks import NORMS
from simulator.models.layers import Attention
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.op_builders import linear
from simulator.models.operations import Counts, Op
from simulator.models.routed_experts import Experts
from simulator.questions.batch_question import BatchQuestion
from simulator.questions.workload_question import WorkloadQuestion
from simulator.roofline.gemm import soft_maximum
from simulator.roofline.roofline import Rates
from simulator.roofline.speed_of_light import LightRates
from simulator.validation.measurements import Setup
from simulator.validation.setups import place
from simulator.validation.sources import recipe_of
from simulator.validation.sources.papers import ENDED_TOKENS
from tests.support.kernels import figure, kernels_with
from tests.support.measured import answer, question

MAX_1550 = load_hardware("max-1550")
GLM = load_model("glm-4.6").blocks["experts"].ffn


def attention_s(
    kernels: Kernels,
    sequences: float,
    *,
    heads: int = 32,
    kv_heads: int = 8,
    context: int = 8192,
    prompt: float = 0.0,
) -> float:
    """One layer's decode attention over 1,000 cached tokens of each sequence on the MI300X, without its launch."""
    layer = Attention(heads=heads, kv_heads=kv_heads, head_dim=128)
    op = next(op for op in layer.ops(4096, Layout()) if op.rate == "decode_attention")
    rates = Rates(DeviceKernels(load_hardware("mi300x"), kernels), context_tokens=context)
    counts = Counts(1.0, sequences + prompt, sequences, 1000.0 * sequences, prefill_tokens=prompt)
    cost = rates.time(op, counts)
    return float(cost.seconds - cost.overhead_s)


PAGED = kernels_with(per_head=1.0, per_head_crowded=0.25)


def test_query_heads_that_read_alone_read_a_group_as_often_as_it_has_heads():
    """16 sequences x 32 heads are 512: 32 x 256 numbers of 2 bytes for each of 16,000 tokens, at 5.3 TB/s."""
    assert attention_s(PAGED, 16) == pytest.approx(16_000 * 32 * 256 * 2 / 5.3e12)
    assert attention_s(PAGED, 17) == pytest.approx(17_000 * 32 * 256 * 2 / (0.25 * 5.3e12))  # more than 512
    assert attention_s(PAGED, 17, context=4096) == pytest.approx(attention_s(PAGED, 17) / 2)  # half the row of scores
    assert attention_s(PAGED, 16, prompt=500) == attention_s(PAGED, 16)  # a prompt's tokens have a kernel of their own


def test_a_narrow_cache_costs_heads_that_read_alone_as_much_as_one_of_16_bits():
    layers = (
        Attention(heads=32, kv_heads=8, head_dim=128).ops(4096, Layout(cache_dtype=each)) for each in ("fp8", "fp16")
    )
    ops = [next(op for op in each if op.rate == "decode_attention") for each in layers]
    rates = Rates(DeviceKernels(load_hardware("h100-sxm"), PAGED))
    fp8_s, fp16_s = (rates.time(op, Counts(1.0, 16.0, 16.0, decode_reads=1e6)).memory_s for op in ops)
    assert fp8_s == pytest.approx(fp16_s)
    fp8_s, fp16_s = (rates.time(op, Counts(1.0, 64.0, 64.0, decode_reads=1e6)).memory_s for op in ops)
    assert fp8_s == pytest.approx(fp16_s / 2)  # of more than 512 heads each reads its own bytes


def test_tensorrt_llm_reads_the_cache_once_for_groups_that_its_kernel_knows():
    """Groups of 4 and of 8 query heads, by release: XQA came in 0.8 for 8, in 0.11 for all."""
    found = {}
    for version in ("0.5", "0.8", "0.11"):
        kernels = load_engine(f"tensorrt-llm-{version}").kernels_on(load_hardware("h100-sxm"))
        found[version] = [kernels.reads_per_head(decode_op(32 // group, "fp8")) for group in (4, 8)]
    assert found == {"0.5": [True, True], "0.8": [True, False], "0.11": [False, False]}
    assert load_engine("tensorrt-llm-0.11").kernels_on(load_hardware("h100-sxm")).reads_per_head(decode_op(32, "fp8"))


def test_heads_that_read_alone_are_bound_by_the_clock_of_a_device():
    """H200 takes as long as H100, in fp8 as in fp16; the memory of an L40S is slower than 4 heads that read alone."""
    counts = Counts(1.0, 16.0, 16.0, decode_reads=1e6)

    def seconds(device: str, cache: str, **changes: None) -> float:
        kernels = load_engine("tensorrt-llm-0.5").kernels_on(load_hardware(device)).with_fitted(**changes)
        return float(Rates(kernels).time(decode_op(8, cache), counts).memory_s)

    numbers = float(load_engine("tensorrt-llm-0.5").kernels_on(load_hardware("h100-sxm")).fitted.per_head)  # a clock
    alone_s = 4 * 2 * 8 * 128 * 1e6 / (numbers * 132 * 1.983e9)
    for device, cache in (("h100-sxm", "fp16"), ("h200-sxm", "fp16"), ("h200-sxm", "fp8")):
        assert seconds(device, cache) == pytest.approx(alone_s, rel=1e-3)
    assert seconds("l40s", "fp8") == seconds("l40s", "fp8", per_head=None)


def test_tensorrt_llms_all_reduce_norms():
    """gpt-oss at tp 4: 36 layers whose norms start no kernel of their own; alone, and with attention DP, they do."""
    kinds = {"alone": Layout(), "tensor": Layout(tp=4), "data": Layout(dp=4, ep=4)}
    ops = {
        kind: next(op for op in deploy("gpt-oss-120b", "b200", "tensorrt-llm", each)._step_ops() if op.name == NORMS)
        for kind, each in kinds.items()
    }
    assert {kind: op.launches for kind, op in ops.items()} == {"alone": 1, "tensor": 0, "data": 1}
    assert ops["tensor"].activation_bytes == ops["alone"].activation_bytes


def test_tensorrt_llm_1_reads_chunks_per_query_head_where_a_context_is_longer():
    """Pull request 6306: MMHA, not XQA, from contexts of a chunk on; trtllm-gen's kernels know chunks on Blackwell.

    Llama 4: 5 heads of a group read 2 x 8 x 128 numbers, 14 in a clock of 132 multiprocessors at 1.98 GHz.
    """
    layer = Attention(heads=40, kv_heads=8, head_dim=128, window=8192, chunked=True)
    op = next(op for op in layer.ops(5120, Layout(cache_dtype="fp8")) if op.rate == "decode_attention")
    counts = Counts(1.0, 8.0, 8.0, decode_reads_windowed=1e6)
    kernels = load_engine("tensorrt-llm-1.2").kernels_on(load_hardware("h200-sxm")).of_engine
    seconds = {
        (device, context): Rates(DeviceKernels(load_hardware(device), kernels), context_tokens=context)
        .time(op, counts)
        .memory_s
        for device in ("h200-sxm", "b200-sxm")
        for context in (8191, 8192)
    }
    assert seconds["h200-sxm", 8192] == pytest.approx(5 * 2048 * 1e6 / (14 * 132 * 1.983e9), rel=1e-3)
    assert seconds["h200-sxm", 8191] < seconds["h200-sxm", 8192] / 3
    assert seconds["b200-sxm", 8191] == seconds["b200-sxm", 8192]
    sliding = decode_op(8, "fp8", 8192)
    assert not kernels.rules.chunked_decode.holds(load_hardware("h200-sxm"), sliding, 8192)


def decode_op(kv_heads: int, cache: str, window: int | None = None) -> Op:
    """Decode attention of a layer of 32 heads."""
    layer = Attention(heads=32, kv_heads=kv_heads, head_dim=128, window=window)
    return next(op for op in layer.ops(4096, Layout(cache_dtype=cache)) if op.rate == "decode_attention")


def test_vllm_v0_falls_back_to_paged_attention_for_windows_and_fp8_caches():
    """Its selector.py; before 0.4.3 every decode is PagedAttention (pull request 3648)."""
    kinds = ("fp16", None), ("fp16", 4096), ("fp8", None)
    found = {
        engine: [
            load_engine(engine).kernels_on(load_hardware("h100-sxm")).reads_per_head(decode_op(8, *kind))
            for kind in kinds
        ]
        for engine in ("vllm-0.2", "vllm-0.5", "vllm-0.8")
    }
    assert found == {"vllm-0.2": [True] * 3, "vllm-0.5": [False, True, True], "vllm-0.8": [False] * 3}


def test_beyond_512_sequences_times_heads_v1_reads_the_cache_from_memory_for_each_head():
    """Mistral-7B v0.1 on an H100: 16 sequences are 512 heads, which share what one has read, and 17 are more."""
    rates = Rates(load_engine("vllm-0.5").kernels_on(load_hardware("h100-sxm")))
    few, many = (
        rates.time(decode_op(8, "fp16", 4096), Counts(1.0, each, each, decode_reads_windowed=1e3 * each))
        for each in (16, 17)
    )
    assert few.memory_s == pytest.approx(16_000 * 32 * 256 * 2 / (2 * 3.35e12))
    assert many.memory_s == pytest.approx(17_000 * 32 * 256 * 2 / 3.35e12)


@pytest.mark.parametrize("peak", ["fp8", "fp16"])
def test_narrow_gemms_have_a_further_share(peak):
    fitted = kernels_with(compute=0.8, quantized=1.25, experts=0.5).fitted
    share = 1.0 if peak == "fp8" else 0.8
    whole, blocks = (linear("", (128, 128), Layout(weight_dtype=each)) for each in ("fp8", "fp8-block"))
    assert fitted.of_compute(peak, whole) == pytest.approx(share)
    assert fitted.of_compute(peak, replace(whole, experts=Experts(8, 2))) == pytest.approx(0.5 * share)
    assert fitted.of_compute(peak, blocks) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("engine", "stored", "as_bf16", "routed_s"),
    [
        ("tensorrt-llm-1.2", "fp8", True, 7.6e-6),
        ("tensorrt-llm-1.2", "fp8-block", False, 7.6e-6),
        ("sglang-0.5.10", "fp8", False, 7.6e-6),
        ("vllm-0.14", "fp8", False, 5 * 4.2e-6),  # CUTLASS's path, from its second GEMM on
    ],
)
def test_products_start_as_in_bf16_where_the_kernel_before_quantises(engine, stored, as_bf16, routed_s):
    """4.2 us on an H200, and 7.6 with the kernel that quantises; experts sort their inputs in any case."""
    hardware = load_hardware("h200-sxm")
    kernels = load_engine(engine).kernels_on(hardware)
    product = linear("", (4096, 4096), Layout(weight_dtype=stored))
    started = Rates(kernels).gemms.achieved("fp8", product).launch_s / kernels.fitted.launch
    assert started == pytest.approx(4.2e-6 if as_bf16 else 7.6e-6)
    routed = Rates(kernels).gemms.achieved("fp8", replace(product, experts=Experts(8, 2)))
    assert routed.launch_s / kernels.fitted.launch == pytest.approx(routed_s)


@given(st.integers(2, 10_000))
def test_tiles_of_own_kernels_grow_with_the_tokens_of_an_expert(tokens):
    """Of 64 rows at most: from a tile of 16 where an expert has fewer than 8, to as good as none where it has many."""
    op, h100 = replace(linear("", (128, 128), Layout()), experts=Experts(128, 4)), load_hardware("h100-sxm")
    tile = {"compute": figure(1.0), "least_tile": figure(16.0), "most_tile": figure(64.0)}
    own = ExpertKernels(formats=("bf16",), families=("hopper",), **tile)
    every = kernels_with(expert_tile=64.0), kernels_with(expert_tile=64.0, expert_kernels=(own,))
    whole, growing = (float(DeviceKernels(h100, kernels).padding(op, float(tokens))) for kernels in every)
    each = tokens * 4 / float(op.experts.touched(float(tokens)))
    assert whole == pytest.approx(1 + 32 / each)
    assert growing == pytest.approx(max(1 + min(max(each, 16), 64) / 2 / each, 16 / each))
    assert float(DeviceKernels(load_hardware("b200-sxm"), every[1]).padding(op, float(tokens))) == whole
    assert DeviceKernels(h100).padding(op, float(tokens)) == 1.0


def test_tiles_of_the_whole_batch_are_padded_for_each_expert():
    """MMQ on Strix Halo takes 128 columns for 512 tokens, of which each of 256 experts has 16: half a tile more is 64.

    Eight tokens take a tile of 8, and reach 57 experts.
    """
    halo = load_hardware("strix-halo")
    kernels = load_engine("llama.cpp-b6325").kernels_on(halo)
    op = replace(linear("", (128, 128), Layout(weight_dtype="q4_K_M")), experts=Experts(256, 8))
    assert float(kernels.padding(op, 512.0)) == pytest.approx(1 + 64 / 16, rel=0.01)
    assert float(kernels.padding(op, 8.0)) == pytest.approx(1 + 4 * float(op.experts.touched(8.0)) / 64)
    found = kernels.padding(op, np.array([1.0, 8.0, 512.0]))
    assert found == pytest.approx([1.0, *(float(kernels.padding(op, each)) for each in (8.0, 512.0))])
    assert kernels.padding(replace(op, experts=None), 512.0) == 1.0
    own = ExpertKernels(formats=("q4_K_M",), families=("rdna3.5",), compute=figure(1.0))
    assert kernels.with_rules(expert_kernels=(own,)).padding(op, 512.0) == 1.0  # they have tiles of their own, or none


def test_a_tile_of_experts_loops_over_its_inputs():
    """Of 5,120 inputs, 2 ns each: one token of GLM-4.6 takes 10 us at least, however many devices share an expert."""
    rates = Rates(DeviceKernels(load_hardware("h100-sxm"), kernels_with(k_loop_s=2e-9)))
    op = next(op for op in GLM.ops(5120, Layout(tp=8)) if op.name == "experts up")
    assert op.inputs == 5120
    alone = rates.time(op, Counts(steps=1.0, tokens=1.0))
    read_s = float(
        Rates(DeviceKernels(rates.hardware)).time(op, Counts(steps=1.0, tokens=1.0)).seconds - alone.overhead_s
    )
    assert alone.seconds - alone.overhead_s == pytest.approx(soft_maximum(read_s, 5120 * 2e-9, 1.5))
    dense = linear("", (5120, 5120), Layout())
    once = Counts(steps=1.0, tokens=1.0)
    assert rates.time(dense, once).seconds == Rates(DeviceKernels(rates.hardware)).time(dense, once).seconds


def test_experts_that_run_in_no_triton_kernel_wait_for_no_loop_of_it():
    """NVFP4 anywhere, block scales on data-center Blackwell, whole fp8 (CUTLASS) on Hopper: the others keep it."""
    for device, stored in [("b200-sxm", "nvfp4"), ("b200-sxm", "fp8-block"), ("h100-sxm", "fp8"), ("h100-sxm", "int4")]:
        for engine in ("vllm-0.8", "vllm-0.14", "vllm-0.19", "vllm-0.33"):
            hardware = load_hardware(device)
            kernels = load_engine(engine).kernels_on(hardware)
            op = next(op for op in GLM.ops(5120, Layout(weight_dtype=stored)) if op.name == "experts up")
            assert kernels.k_loop_s(op) == 0.0, (device, stored, engine)
            wide = replace(op, format="bf16")
            assert kernels.k_loop_s(wide) == 5120 * kernels.rules.k_loop_s > 0.0


def test_default_tiles_are_for_sizes_that_nobody_tuned():
    """SGLang 0.5.10 has a file for 128 experts of 768 on an H100 in bf16, and none for 704 (GLM-4.5-Air on two)."""
    h100 = load_hardware("h100-sxm")
    kernels = load_engine("sglang-0.5.10").kernels_on(h100)
    tuned, other = (Experts(128, 8, width=width) for width in (768, 704))
    assert kernels.experts_of("bf16", tuned) is None
    assert kernels.experts_of("bf16", other).default_tiles
    assert kernels.experts_of("fp16", other).default_tiles  # takes the tiles of bf16
    assert kernels.experts_of("fp8-block", other) is None
    on_instinct = replace(kernels, hardware=load_hardware("mi300x"))
    assert on_instinct.experts_of("bf16", other) is None  # AITER's, not Triton's
    assert load_engine("vllm-0.33").kernels_on(h100).experts_of("bf16", other) is None


def test_the_width_of_experts_is_that_on_a_device():
    assert {op.experts.width for op in GLM.ops(5120, Layout(tp=8)) if op.experts} == {192}
    assert {op.experts.width for op in GLM.ops(5120, Layout(tp=8, ep=8)) if op.experts} == {1536}


@pytest.mark.parametrize(("engine", "device", "reached"), [("vllm-0.33", "h100-sxm", 254), ("vllm-0.33", "b200", 407)])
def test_experts_of_four_bits_are_multiplied_as_fast_as_they_are_unpacked(engine, device, reached):
    """254 TFLOP/s of Marlin's experts on H100 (sglang pull request 38884); 407 on B200 beside unpacking."""
    hardware = load_hardware(device)
    kernels = load_engine(engine).kernels_on(hardware)
    op = replace(linear("", (128, 128), Layout(weight_dtype="int4")), experts=Experts(128, 4))
    peak = hardware.peak_flops_per_s["bf16"]
    share = Rates(kernels).gemms.achieved("bf16", op).compute / kernels.fitted.compute
    assert share * peak == pytest.approx(reached * 1e12, rel=0.02)
    dense = Rates(kernels).gemms.achieved("bf16", replace(op, experts=None)).compute / kernels.fitted.compute
    machete = 0.75 * hardware.achievable.gemm["bf16"].compute_fraction
    assert dense == pytest.approx(machete if device == "h100-sxm" else share)


def test_fused_experts_are_four_kernels_that_multiply_in_the_type_of_their_inputs():
    """One routes, the first GEMM activates and quantises, one sums: 21 us.

    flashinfer pull request 5301 has 25.7 us for one token in nvfp4, whose eight experts are read in 3.
    """
    hardware, layout = load_hardware("b200"), Layout(weight_dtype="mxfp4")
    rates = Rates(load_engine("tensorrt-llm-1.2").kernels_on(hardware))
    first, second, *_ = (op for op in load_model("gpt-oss-120b").ops(layout) if op.experts and op.rate == "gemm")
    assert [rates.kernels.launches(op) for op in (first, second)] == [2, 2]
    assert rates.peak("mxfp4")[0] == "fp8"
    assert LightRates(rates.kernels).peak_flops_per_s("mxfp4") == hardware.peak_flops_per_s["fp4"]
    started = sum(rates.gemms.achieved("fp8", op).launch_s for op in (first, second)) / rates.kernels.fitted.launch
    assert started == pytest.approx(9.6e-6 + 3 * 3.8e-6)
    h100, card = (replace(rates.kernels, hardware=load_hardware(each)) for each in ("h100-sxm", "rtx-pro-6000"))
    assert [h100.launches(op) for op in (first, second)] == [6, 2]
    assert [card.launches(op) for op in (first, second)] == [first.launches, second.launches] == [5, 1]


@pytest.mark.parametrize("rate", ["decode_attention", "prefill_attention"])
def test_a_rank_of_data_parallel_attention_counts_the_heads_of_its_own_sequences(rate):
    """Half of 32 sequences x 32 heads are 512, few enough for the kernel of 16; and half of the scores are written."""
    op = next(op for op in Attention(heads=32, kv_heads=8, head_dim=128).ops(4096, Layout()) if op.rate == rate)
    rates = Rates(
        DeviceKernels(load_hardware("mi300x"), kernels_with(per_head=1.0, per_head_crowded=0.25, score_bytes=24.0))
    )
    halves = Counts(1.0, 16.0, 16.0, 16_000.0, prefill_pairs=1e6)
    wholes = Counts(1.0, 32.0, 32.0, 32_000.0, prefill_pairs=2e6)
    assert rates.time(op.of_one_rank(2), wholes).seconds == pytest.approx(rates.time(op, halves).seconds)


def test_a_device_without_rates_of_decode_attention_is_refused_but_at_the_speed_of_light():
    hardware = load_hardware("h100-sxm")
    bare = hardware.model_copy(update={"achievable": hardware.achievable.model_copy(update={"decode_attention": None})})
    op = Op("", "decode_attention", cache_bytes=Counts(decode_reads=4096.0))
    with pytest.raises(ProfileError, match="decode_attention"):
        Rates(DeviceKernels(bare)).time(op, Counts(1.0, 1.0, 1.0, 10.0))
    assert LightRates(DeviceKernels(bare)).time(op, Counts(1.0, 1.0, 1.0, 10.0)).seconds > 0


def test_rules_of_formats_that_nobody_knows_are_refused():
    for rule in ({"fuses": ("fp9",)}, {"weight_only": ("fp9",)}):
        with pytest.raises(ValueError, match="fp9"):
            kernels_with(**rule)


@pytest.mark.parametrize(("share", "reached"), [(0.9, 0.9 * 0.905), (1.2, 0.95)])
def test_decode_attention_reads_no_faster_than_any_stream(share, reached):
    """A B200 reads its cache at 0.905 of its bandwidth, and no kernel streams at more than 0.95."""
    hardware = load_hardware("b200-sxm")
    op = next(op for op in Attention(heads=32, kv_heads=8, head_dim=128).ops(4096, Layout()) if op.cache_format)
    cost = Rates(DeviceKernels(hardware, kernels_with(cache=share))).time(op, Counts(decode_reads=1e6))
    assert cost.memory_s == pytest.approx(1e6 * 2 * 8 * 128 * 2 / (reached * hardware.memory_bytes_per_s))


def test_experts_compute_whole_tiles():
    """64 tokens reach all 8 experts, 16 each: half a tile of 32 more doubles what they compute."""
    op = next(op for op in load_model("mixtral-8x7b").ops() if op.experts)
    kernels = Kernels(), kernels_with(expert_tile=32.0)
    exact, tiled = (
        Rates(DeviceKernels(load_hardware("mi300x"), each)).time(op, Counts(1.0, 64.0)).compute_s for each in kernels
    )
    assert tiled == pytest.approx(2 * exact)


def test_a_package_of_two_devices_is_crowded_at_twice_the_heads():
    mi250 = load_hardware("mi250")
    op = next(op for op in Attention(heads=32, kv_heads=8, head_dim=128).ops(4096, Layout()) if op.cache_format)
    rates = Rates(DeviceKernels(mi250, PAGED))
    per_token = [rates.time(op, Counts(1.0, n, n, 1.0)).seconds - rates.time(op, Counts(1.0)).seconds for n in (32, 33)]
    assert per_token[1] == pytest.approx(4 * per_token[0])


@given(st.integers(1, 300), st.sampled_from([1, 2, 4, 8]))
def test_reading_alone_is_never_faster_and_shares_nothing_where_there_are_no_groups(sequences, group):
    shared = attention_s(Kernels(), sequences, kv_heads=32 // group)
    assert attention_s(PAGED, sequences, kv_heads=32 // group) >= shared * (1 - 1e-12)
    if group == 1 and sequences * 32 <= CROWDED_HEADS:
        assert attention_s(PAGED, sequences, kv_heads=32) == pytest.approx(shared)


def test_an_fp8_cache_is_converted_where_the_device_has_no_fp8():
    """Llama-3-8B: 2 x 8 x 128 x 32 numbers a token, for each of 4 query heads, 70 of 19.5 TFLOP/s: 0.94 us.

    Argonne's A100: 1.34 to 1.53 us in vLLM, 0.63 us more than an int8 cache in TensorRT-LLM.
    """
    found = {}
    for device, cache in (("a100-sxm-40", "fp8"), ("a100-sxm-40", "int8"), ("h100-sxm", "fp8")):
        layout = default_layout(load_model("llama-3-8b"), dtypes=("fp16", cache))
        ops = [op for op in load_model("llama-3-8b").ops(layout) if op.rate == "decode_attention"]
        rates = Rates(DeviceKernels(load_hardware(device)))
        found[device, cache] = sum(rates.time(op, Counts(decode_reads=1.0)).seconds for op in ops)
    assert found["a100-sxm-40", "fp8"] - found["a100-sxm-40", "int8"] == pytest.approx(0.94e-6, rel=0.15)
    assert found["h100-sxm", "fp8"] < 0.1e-6


def test_optimum_habana_computed_every_expert():
    """Mixtral on Gaudi 2: 93.4 GB of weights at 2.46 TB/s are 38 ms a token."""
    looping = Settings(changes=("every_expert=true",))
    deployment = deploy("mixtral-8x7b", "gaudi2", "optimum-habana", settings=looping)
    light, shipped = deployment.at_light.step_model(), deployment.step_model()
    routed, all_of_them = (next(op for op in each.ops if op.experts) for each in (light, shipped))
    assert shipped.seconds(Counts(1.0, 1.0, 1.0, 60.0)) > 93.0e9 / 2.46e12
    assert all_of_them.flops.tokens == pytest.approx(4 * routed.flops.tokens)  # 8 experts instead of 2
    assert all_of_them.bytes_read(Counts(1.0, 1.0)) > 3.9 * routed.bytes_read(Counts(1.0, 1.0))
    assert all_of_them.with_every_expert() == all_of_them


def test_optimum_habana_reads_the_experts_that_tokens_choose_and_starts_all():
    """Qwen3-30B on Gaudi 3: 48 layers of 128 starts of 4 us are 24.6 ms a token; gpt-oss reads its 32 experts."""
    chosen, every = (deploy(name, "gaudi3", "optimum-habana") for name in ("qwen3-30b-a3b", "gpt-oss-20b"))
    first = [next(op for op in one.step_model().ops if op.experts) for one in (chosen, every)]
    assert [op.experts.chosen for op in first] == [8, 32]
    assert chosen.kernels.expert_starts_s("bf16", first[0]) == pytest.approx(128 * 4e-6)
    assert every.kernels.expert_starts_s("bf16", first[1]) == pytest.approx(2 * 32 * 4e-6)
    assert 24.6e-3 < chosen.step_model().seconds(Counts(1.0, 1.0, 1.0, 60.0)) < 30e-3
    looping = deploy("deepseek-v2-lite", "gaudi2", "optimum-habana", settings=Settings(changes=("every_expert=true",)))
    assert looping.step_model().seconds(Counts(1.0, 1.0, 1.0, 60.0)) > 26 * 64 * 3 * 4e-6


def test_a_compiled_graph_reads_the_cache_up_to_a_power_of_two():
    """8,192 positions: the median token of 128 + 8,064 reads as much as every one of 4,096 + 4,096.

    AWS measured 15.22 and 15.31 ms for them (Llama-3-8B, 8 sequences on inf2.48xlarge).
    """
    neuronx = deploy("llama-3-8b", "inferentia2", "transformers-neuronx")
    exact = replace(neuronx, engine=neuronx.engine.model_copy(update={"static_cache": None}))

    def read(prompt: int, output: int, deployment: Deployment = neuronx) -> set[float]:
        attended = prompt + np.arange(1.0, output)
        return set(np.asarray(decode_counts(deployment, Batch(8, prompt, output), attended).decode_reads) / 8)

    assert read(4096, 4096) == {8192.0}
    assert read(128, 8064) == {256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0}
    assert read(128, 1024) == {256.0, 512.0, 1024.0, 1152.0}
    assert read(1, 8) == {128.0}
    assert read(128, 1024, exact) == set(range(129, 1152))
    four = default_layout(neuronx.model, tp=4)
    found, least = (estimate(replace(each, layout=four), Batch(8, 128, 1024)) for each in (neuronx, exact))
    assert found.light == least.light
    assert found.decode.light_s == least.decode.light_s
    assert found.expected.tpot_s > least.expected.tpot_s


def test_argonnes_runs_on_the_max_1550_time_the_compilation_of_the_first_call():
    """19.3 s for 1 x (128 + 128) tokens and 47.7 s for 2,048 + 2,048: 18 s and 14 ms a token."""
    cold = replace(argonne("vLLM", "Llama-3-8B", "Intel Max 1550", 1, 1, 128), engine_version="0.5", cache_dtype="")
    model, mi300x = load_model("llama-3-8b"), load_hardware("mi300x")
    assert recipe_of(cold, model, MAX_1550).first_call_s == 18.0
    assert recipe_of(cold, model, mi300x).first_call_s == 0.0
    assert recipe_of(replace(cold, client=""), model, MAX_1550).first_call_s == 0.0
    latencies_ms = [answer(replace(cold, client=client)).value("e2e_latency_ms") for client in (cold.client, "")]
    assert latencies_ms[0] - latencies_ms[1] == pytest.approx(18_000)
    assert answer(cold, light=True).value("e2e_latency_ms") < 18_000


def argonne(engine: str, model: str, hardware: str, tp: int, batch: int, length: int) -> Setup:
    """A row of Argonne's throughput tables, as many tokens out as in."""
    return Setup(
        **{"source": "argonne", "date": "2024-09", "client": "LLM-Inference-Bench", "regime": "fixed_batch"},
        **{"hardware": hardware, "devices": tp, "tp": tp, "pp": 1, "model": model, "engine": engine},
        **{"weight_dtype": "fp16", "cache_dtype": "fp16", "batch": batch},
        **{"input_tokens": length, "output_tokens": length},
    )


def test_vllm_v0_lists_the_blocks_of_its_sequences_in_each_step():
    """H100, Llama-3-8B, 64 sequences: a step over 3,072 instead of 192 tokens each took 10.3, 7.3 and 6.1 ms longer on
    1, 2 and 4 devices (Argonne): some 4 ms do not shrink with the cache that a device reads.
    """
    old, new = (load_engine(each).overheads for each in ("vllm-0.5", "vllm-0.33"))
    short, long = (Counts(1.0, 64.0, 64.0, 64.0 * each) for each in (192, 3072))
    grown_s = old.host_s(long) - old.host_s(short)
    assert grown_s == pytest.approx(old.cached_token_s * 64 * 2880) and 2e-3 < grown_s < 6e-3
    assert new.host_s(long) == new.host_s(short)
    table = deploy("llama-3-8b", "h100-sxm", "vllm-0.5").step_table()
    assert table.slopes[0] > old.cached_token_s


def test_a_batch_that_does_not_fit_the_cache_is_queued_under_every_policy_with_a_queue():
    """16 x (2,048 + 2,048) tokens of half a megabyte are 34 GB, and 23.5 GB are left beside Llama-2-7b on 40: six
    sequences end after the others. Argonne's vLLM took 86.7 s; with room for all it would take 70.
    """
    setup = argonne("vLLM", "Llama-2-7b", "A100 (Argonne ALCF)", 1, 16, 2048)
    crowded, alone = answer(setup), answer(replace(setup, batch=8))
    assert crowded.value("e2e_latency_ms", "p99") == pytest.approx(86_700, rel=0.1)
    assert crowded.value("e2e_latency_ms", "p50") < 0.8 * crowded.value("e2e_latency_ms", "p99")
    assert alone.value("e2e_latency_ms", "p99") == alone.value("e2e_latency_ms", "p50")
    assert isinstance(alone.asked.question, BatchQuestion)
    assert question(setup).users == WorkloadQuestion(
        input_len="2048", output_len="2048", max_concurrency="16", num_prompts=16
    )


def test_one_text_in_all_sequences_reaches_the_experts_of_one():
    """Mixtral on four A100, 16 sequences: TensorRT-LLM took 11 ms a step, and all experts are 23 GB a device, 15 ms."""
    drawn, repeated = (
        place(argonne(each, "Mixtral-8x7B", "A100 (Argonne ALCF)", 4, 16, 128)).deployment
        for each in ("vLLM", "TensorRT-LLM")
    )
    assert repeated.engine.id == "tensorrt-llm-0.8"  # by how its steps grow with their length: see release_of
    one, sixteen, prompts = Counts(1.0, 1.0, 1.0), Counts(1.0, 16.0, 16.0), Counts(1.0, 2048.0, prefill_tokens=2048.0)
    drawn_op, alike = (next(op for op in each.ops if op.experts) for each in (drawn, repeated))
    weights = alike.bytes_read(one) - one.dot(alike.activation_bytes)
    assert alike.bytes_read(sixteen) - sixteen.dot(alike.activation_bytes) == pytest.approx(weights)
    assert drawn_op.bytes_read(sixteen) > 3.9 * alike.bytes_read(sixteen)
    assert drawn_op.bytes_read(prompts) == pytest.approx(alike.bytes_read(prompts))


@pytest.mark.parametrize(
    ("hardware", "stated", "release"), [("GH200", "", "0.12"), ("H100", "", "0.10"), ("H100", "0.9", "0.9 2024-09")]
)
def test_argonnes_tensorrt_llm_is_newer_on_gh200(hardware, stated, release):
    found = argonne("TensorRT-LLM", "Llama-3-8B", hardware, 1, 1, 128)
    given = replace(found, engine_version=stated)
    assert recipe_of(given, load_model("llama-3-8b"), load_hardware(hardware)).preset == ("TensorRT-LLM", release)


def test_texts_of_splitwise_end_before_the_length_that_was_asked_for():
    """34.9 s for 2,048, 4,096 and 8,192 tokens of Llama-2-70b on two A100, whose tokens take 55 ms: 635 of them."""
    setup = replace(argonne("vLLM", "Llama-2-70b", "A100 SXM 80GB", 2, 1, 512), source="splitwise-sim", client="")
    long = replace(setup, output_tokens=8192.0)
    known = load_model("llama-2-70b"), load_hardware("a100-sxm-80gb")
    assert recipe_of(setup, *known).output_tokens == 512
    assert recipe_of(long, *known).output_tokens == ENDED_TOKENS
    assert recipe_of(replace(long, source="argonne"), *known).output_tokens == 8192
    four, eight = (answer(replace(setup, output_tokens=each)).row for each in (4096.0, 8192.0))
    assert four == eight


def test_deepspeed_mii_is_timed_on_its_first_call():
    """2.61 s for 128 tokens of Mixtral on four A100, and 3.55 s for 256: 14 ms a token leave 0.8 s (Argonne)."""
    setup = argonne("Deepspeed-MII", "Mixtral-8x7B", "A100 (Argonne ALCF)", 4, 1, 128)
    warm = replace(setup, client="")
    timed, repeated = answer(setup), answer(warm)
    assert timed.value("e2e_latency_ms") - repeated.value("e2e_latency_ms") == pytest.approx(500)
    assert timed.value("ttft_ms") - repeated.value("ttft_ms") == pytest.approx(500)


def panels_s(inputs: int, outputs: int, tokens: float, device: str = "rtx-5090") -> tuple[float, float]:
    """Seconds of a product in nvfp4 on a card of SM120 without its launch, and of its bytes alone."""
    hardware = load_hardware(device)
    op = linear("product", (inputs, outputs), Layout(weight_dtype="nvfp4"))
    cost = Rates(DeviceKernels(hardware)).time(op, Counts(1.0, tokens, tokens))
    return float(cost.seconds - cost.overhead_s), float(cost.memory_s)


def test_few_columns_keep_few_multiprocessors_busy():
    # 26 us in its bytes and 15.4 beyond, of which 4.65 are a launch, on an RTX PRO 6000 of the same bandwidth
    for device in ("rtx-5090", "rtx-pro-6000", "rtx-pro-6000-ws"):
        assert panels_s(8192, 8192, 1.0, device)[0] == pytest.approx(26.0e-6 + 15.4e-6 - 4.65e-6, rel=0.01)
    assert panels_s(4096, 4096, 1.0)[0] == panels_s(4096, 8192, 1.0)[0] == panels_s(8192, 4096, 1.0)[0] / 2
    wide_s, alone_s = panels_s(4096, 131_072, 1.0)
    assert wide_s == alone_s
    assert panels_s(4096, 6144, 1.0, "rtx-5060ti-16")[0] == panels_s(4096, 6144, 1.0, "rtx-5060ti-16")[1]
    op = linear("product", (8192, 8192), Layout(weight_dtype="nvfp4"))
    assert Rates(DeviceKernels(load_hardware("rtx-5090"))).time(op, Counts()).seconds == 0  # no step, no panel


@given(st.integers(1, 64), st.integers(1, 256), st.sampled_from([1.0, 32.0, 4096.0]))
def test_panels_never_make_a_product_faster_or_more_columns_cheaper(inputs, columns, tokens):
    seconds, alone_s = panels_s(128 * inputs, 128 * columns, tokens)
    wider_s = panels_s(128 * inputs, 128 * columns + 128, tokens)[0]
    assert wider_s * (1 + 1e-12) >= seconds >= alone_s * (1 - 1e-12)


def test_a_weight_only_format_is_unpacked_and_others_of_its_type_are_not():
    card, b200, release = load_hardware("rtx-5090"), load_hardware("b200"), load_engine("vllm-0.8")
    on_card, on_b200 = (Rates(release.kernels_on(each)) for each in (card, b200))
    assert [on_card.peak(each)[0] for each in ("mxfp4", "nvfp4", "fp8")] == ["bf16", "fp4", "fp8"]
    assert [on_b200.peak(each)[0] for each in ("mxfp4", "nvfp4")] == ["fp8", "fp4"]
    assert LightRates(release.kernels_on(card)).peak_flops_per_s("mxfp4") == card.peak_flops_per_s["fp4"]


@pytest.mark.parametrize("stored", ["fp8", "nvfp4", "mxfp4"])
def test_light_knows_no_kernels(stored):
    names = ("compute", "quantized", "memory", "unpacked", "packed", "experts", "cache", "attention", "per_head")
    shares = dict.fromkeys(names, 0.5)
    families = ("hopper", "blackwell", "blackwell-geforce", "cdna3")
    tile = {"compute": figure(0.1), "most_tile": figure(64.0)}
    own = ExpertKernels(formats=(stored,), families=families, inputs="fp8", launches=(figure(9.0), figure(9.0)), **tile)
    tiles = {"expert_tile": 64.0, "expert_kernels": (own,), "unpack_tokens": 8.0, "score_bytes": 24.0}
    rules = {"weight_only": ("fp8", "fp4"), "fuses": ("fp8",), "routes_apart": True}
    links = {"one_ring": True, "staged": True, "one_shot_tokens": 128.0, "link": 3.0, "launch": 3.0}
    slow = kernels_with(**shares, **tiles, **rules, **links)
    layout = Layout(tp=4, weight_dtype=stored, cache_dtype="fp8")
    counts = Counts(*np.array([[1.0, 20.0, 20.0, 9000.0, 9000.0, 0.0, 0.0], [1.0, 16e3, 5.0, 0.0, 0.0, 16e3, 9e6]]).T)
    for device in ("h200-sxm", "b200-sxm", "rtx-5090", "mi300x"):
        light, with_kernels = (LightRates(DeviceKernels(load_hardware(device), each)) for each in (Kernels(), slow))
        for op in load_model("minimax-m2.5").ops(layout):
            assert np.array_equal(light.time(op, counts).seconds, with_kernels.time(op, counts).seconds), op.name


def test_two_cards_without_peer_to_peer_are_as_fast_as_their_lanes():
    cards = load_hardware("rtx-5060ti-16"), load_hardware("rtx-5090")
    few, many = (each.achievable.all_reduce[2].bus_bytes_per_s / each.pcie_bytes_per_s for each in cards)
    assert few == pytest.approx(many)


def prepared_s(rates: Rates, op: Op, tokens: float) -> float:
    """What a product takes beside its own limits and its start."""
    cost = rates.time(op, Counts(1.0, tokens))
    kernel_s = soft_maximum(cost.compute_s, cost.memory_s, rates.gemms.achieved(rates.peak(op.format)[0], op).exponent)
    return float(cost.seconds - cost.overhead_s - kernel_s) / op.repeats


def test_inputs_that_are_scaled_in_blocks_are_read_in_16_bits_and_written_in_8():
    """1,000 tokens of 4,096 inputs, however many outputs, at half of the 3.35 TB/s of an H100; per tensor none."""
    rates = Rates(DeviceKernels(load_hardware("h100-sxm")))
    for outputs in (1024, 16_384):
        op = linear("product", (4096, outputs), Layout(weight_dtype="fp8-block"))
        assert prepared_s(rates, op, 1000) == pytest.approx(1000 * 4096 * 3 / (0.5 * 3.35e12))
        assert prepared_s(rates, replace(op, format="fp8"), 1000) == pytest.approx(0.0, abs=1e-12)
    assert prepared_s(Rates(DeviceKernels(load_hardware("a100-sxm-80"))), op, 1000) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("stored", "sorts", "up_bytes", "down_bytes"),
    [
        ("fp8-block", False, 4096 * 3, 8 * 1536 * 3),  # once for each token, and each expert's own activations
        ("fp8-block", True, 8 * 4096 * (2 + 2 + 3), 8 * 1536 * 3),  # copied in 16 bits, then quantised
        ("fp8", True, 8 * 4096 * 2, 0),
        ("fp8", False, 0, 0),
        ("bf16", True, 8 * 4096 * 4, 0),
        ("mxfp4", True, 8 * 4096 * 4, 0),  # unpacked: its inputs have 16 bits
    ],
)
def test_experts_take_sorted_copies_of_their_inputs_or_find_them(stored, sorts, up_bytes, down_bytes):
    """Qwen3-235B: 8 experts of 1,536 for a token of 4,096 numbers."""
    rates = Rates(DeviceKernels(load_hardware("h100-sxm"), kernels_with(sorts_inputs=sorts)))
    ops = load_model("qwen3-235b-a22b").ops(Layout(weight_dtype=stored))
    up, down = (op for op in ops if op.experts and op.rate == "gemm")
    stream = 0.5 * 3.35e12
    assert prepared_s(rates, up, 2000) == pytest.approx(2000 * up_bytes / stream, abs=1e-11)
    assert prepared_s(rates, down, 2000) == pytest.approx(2000 * down_bytes / stream, abs=1e-11)
    light = LightRates(rates.kernels).time(up, Counts(1.0, 2000.0))
    assert light.seconds == max(light.compute_s, light.memory_s)


def test_ranks_of_attention_quantise_the_inputs_of_their_own_tokens():
    """Of 2,000 tokens on eight ranks each has 250, before they go to their experts."""
    ops = load_model("qwen3-235b-a22b").ops(Layout(weight_dtype="fp8-block", ep=8, dp=8))
    up = next(op for op in ops if op.name == "experts up")
    found_s = prepared_s(Rates(DeviceKernels(load_hardware("h100-sxm"))), up, 2000)
    assert found_s == pytest.approx(250 * 4096 * 3 / (0.5 * 3.35e12))


@pytest.mark.parametrize(("apart", "starts_us"), [(False, 6 * 8.2), (True, 2 * 8.2 + 4 * 3.8)])
def test_what_chooses_and_sorts_experts_starts_like_a_product_of_16_bits(apart, starts_us):
    """Six kernels on a B200, two of them products in fp4: 8.2 us each by its profile, 3.8 in bf16."""
    ops = [op for op in load_model("minimax-m2.5").ops(Layout(weight_dtype="nvfp4")) if op.experts]
    rates = Rates(DeviceKernels(load_hardware("b200-sxm"), kernels_with(routes_apart=apart)))
    assert sum(rates.time(op, Counts(1.0)).overhead_s / op.repeats for op in ops) == pytest.approx(starts_us * 1e-6)


def test_experts_whose_inputs_are_scaled_in_blocks_have_a_share_of_their_own():
    """Where it is not known they have that of all experts."""
    ops = {
        stored: next(op for op in load_model("minimax-m2.5").ops(Layout(weight_dtype=stored)) if op.experts)
        for stored in ("bf16", "fp8", "fp8-block")
    }

    def shares(**given: float) -> list[float]:
        fitted = kernels_with(**given).fitted
        return [fitted.of_compute("bf16" if stored == "bf16" else "fp8", op) for stored, op in ops.items()]

    assert shares(experts=0.9) == [0.9, 0.9, 0.9]
    assert shares(experts=0.9, block_experts=0.7) == [0.9, 0.9, 0.7]
    assert shares(quantized=1.2, block_experts=0.7) == [1.0, 1.2, 0.7]
    unpacked = kernels_with(block_experts=0.7).fitted.of_compute("bf16", ops["fp8-block"])
    assert unpacked == 1.0  # where nothing multiplies fp8, no input is scaled


@pytest.mark.parametrize(
    ("engine", "device", "multiplied", "marlin"),
    [
        ("vllm-0.14", "rtx-pro-6000", "bf16", True),
        ("vllm-0.14", "rtx-5090", "bf16", True),
        ("vllm-0.19", "rtx-5090", "bf16", True),
        ("vllm-0.33", "rtx-5090", "fp8", False),
        ("vllm-0.33", "rtx-4090", "bf16", True),
        ("vllm-0.33", "a100-sxm-80", "bf16", True),
    ],
)
def test_mxfp4_experts_of_vllm_run_in_marlin_where_no_other_kernel_has_them(engine, device, multiplied, marlin):
    """RTX PRO 6000 fell back to Marlin in 0.12 to 0.18 (vllm issues 30135, 40153); newer CUTLASS takes mxfp8."""
    hardware = load_hardware(device)
    kernels = load_engine(engine).kernels_on(hardware)
    op = next(op for op in load_model("gpt-oss-20b").ops(Layout(weight_dtype="mxfp4")) if op.experts)
    assert Rates(kernels).peak("mxfp4")[0] == multiplied
    assert kernels.marlin(op) == marlin


def test_mxfp4_experts_run_in_marlin_on_hopper_where_asked():
    """VLLM_MXFP4_USE_MARLIN=1: columns are padded for it, eight kernels; B200 has no other than its own."""
    hardware, layout = load_hardware("h200-sxm"), Layout(tp=8, weight_dtype="mxfp4")
    engine = load_engine("vllm-0.14")
    asks = engine.model_copy(update={"moe_backend": "marlin"})
    plain, asked = (each.kernels_on(hardware) for each in (engine, asks))
    ops = [op for op in load_model("gpt-oss-120b").ops(layout) if op.experts and op.rate == "gemm"]
    assert [kernels.marlin(ops[0]) for kernels in (plain, asked)] == [False, True]
    held = [sum(kernels.padded(op).expert_bytes for op in ops) for kernels in (plain, asked)]
    assert held[1] / held[0] == pytest.approx(3072 * 384 / (2880 * 360))
    assert {asked.launches(op) for op in ops} == {6, 2}
    assert not asks.kernels_on(load_hardware("b200-sxm")).marlin(ops[0])  # runs TensorRT-LLM's


def test_light_sums_in_half_where_an_engine_does():
    """An RTX 4090 has 165 TFLOP/s of sums in fp32, twice as many of sums in fp16."""
    card, op, prompt = (
        load_hardware("rtx-4090"),
        linear("", (4096, 4096), Layout(weight_dtype="fp16")),
        Counts(1.0, 4096.0),
    )
    usual, half = (
        LightRates(DeviceKernels(card, kernels_with(sums_in_half=each))).time(op, prompt) for each in (False, True)
    )
    assert usual.compute_s == pytest.approx(2 * 4096**3 / card.peak_flops_per_s["fp16"])
    assert half.compute_s == usual.compute_s / 2


@pytest.mark.parametrize("preset", ["vllm-0.8", "vllm-0.14", "vllm-0.19", "vllm-0.33", "sglang-0.5", "sglang-0.5.15"])
@pytest.mark.parametrize("rule", ["scans_wait", "scan_flops_per_byte", "sends_residual"])
def test_what_python_and_triton_do_is_the_same_on_all_devices(preset, rule):
    assert len({getattr(each.rules, rule) for each in load_engine(preset).kernels}) == 1
