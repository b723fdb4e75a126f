"""Products in llama.cpp as its own test-backend-ops timed them: 4096 x 14336 of 512 tokens."""

import math
from dataclasses import replace

import pytest

from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.number_formats import number_format
from simulator.models.op_builders import linear
from simulator.models.operations import Counts, Op
from simulator.models.routed_experts import Experts
from simulator.roofline.roofline import Rates
from tests.support.kernels import figure

OUTPUTS, INPUTS, TOKENS = 4096, 14336, 512
FORMATS = ("q4_K_M", "fp16")


def flops_per_s(device: str, engine: str, stored: str) -> float:
    hardware = load_hardware(device)
    rates = Rates(load_engine(engine).kernels_on(hardware))
    op = Op(name="product", rate="gemm", format=stored, flops=Counts(tokens=2.0 * OUTPUTS * INPUTS), columns=OUTPUTS)
    return 2.0 * OUTPUTS * INPUTS * TOKENS / float(rates.time(op, Counts(tokens=float(TOKENS))).seconds)


@pytest.mark.parametrize(
    ("device", "engine", "stored", "tera_flops_per_s"),
    [  # pull requests of ggml-org/llama.cpp: 14624, 17879, 14324, 17437, 11595, 12260, 25380, 24404, 17813, 12015
        ("mi300x", "llama.cpp-b1500", "fp16", 74.0),
        ("mi300x", "llama.cpp-b1500", "q4_0", 55.6),
        ("rx-7900-xtx", "llama.cpp-b6325", "bf16", 60.0),
        ("rx-7800-xt", "llama.cpp-b6325", "bf16", 31.4),
        ("rx-9070-xt", "llama.cpp-b6325", "bf16", 92.0),
        ("rx-9070-xt", "llama.cpp-b6325", "q5_1", 63.6),
        ("rtx-3090", "llama.cpp-vulkan-b6325", "q4_0", 45.4),
        ("rtx-4070", "llama.cpp-vulkan-b6325", "q4_0", 44.7),
        ("arc-b570", "llama.cpp-vulkan-b6325", "q4_K_M", 19.6),
        ("arc-pro-b50", "llama.cpp-vulkan-b6325", "q4_K_M", 13.9),
        ("arc-140t", "llama.cpp-vulkan-b6325", "q4_1", 6.9),
        ("rx-470", "llama.cpp-vulkan-b6325", "q6_K", 2.37),
        ("radeon-pro-vii", "llama.cpp-vulkan-b1500", "q4_0", 4.3),
        ("radeon-680m", "llama.cpp-vulkan-b6325", "q6_K", 2.54),  # by a timer of the backend, as the next
        ("radeon-680m", "llama.cpp-vulkan-b6325", "q8_0", 3.37),
    ],
)
def test_large_products_run_at_the_rates_that_ggml_timed(device, engine, stored, tera_flops_per_s):
    assert flops_per_s(device, engine, stored) / 1e12 == pytest.approx(tera_flops_per_s, rel=0.2)


def test_large_products_over_vulkan_go_by_the_clock_on_nvidia():
    """102 TFLOP/s in q4_K on RTX PRO 6000, whose 188 multiprocessors share 128 tiles of the product that was timed."""
    tiles = math.ceil(OUTPUTS / 128) * math.ceil(TOKENS / 128)
    rate = flops_per_s("rtx-pro-6000-ws", "llama.cpp-vulkan-b6325", "q4_K_M")
    assert rate * tiles / 188 / 1e12 == pytest.approx(102, rel=0.2)


def test_arc_multiplies_weights_over_sycl_once_they_lie_in_16_bits():
    """44.5 TFLOP/s in q8_0 on Arc Pro B60 (test-backend-ops); eight rows in the kernel that unpacks what it reads."""
    hardware = load_hardware("arc-pro-b60")
    rates = Rates(load_engine("llama.cpp-b6325").kernels_on(hardware))
    op = linear("", (INPUTS, OUTPUTS), Layout(weight_dtype="q8_0"))
    flops = 2.0 * OUTPUTS * INPUTS * TOKENS
    assert flops / rates.time(op, Counts(1.0, float(TOKENS))).seconds / 1e12 == pytest.approx(44.5, rel=0.2)
    assert 2 * rates.time(op, Counts(1.0, 8.0)).seconds < rates.time(op, Counts(1.0, 9.0)).seconds


@pytest.mark.parametrize("engine", ["llama.cpp-vulkan-b1500", "llama.cpp-vulkan-b6325"])
def test_arc_a_has_no_matrix_units_over_vulkan(engine):
    """Its vector units reach 20.7 TFLOP/s in fp16 (clpeak, ggml-org/llama.cpp pull request 17374), XMX 80."""
    assert flops_per_s("arc-a770-16", engine, "q4_0") < 20.7e12
    assert flops_per_s("arc-b580", engine, "q4_0") > 20.7e12


@pytest.mark.parametrize(
    ("stored", "outputs", "inputs", "measured_s"),
    [("q4_K_M", 5120, 17408, 4.94e-3), ("q6_K", 5120, 17408, 5.61e-3), ("q8_0", 5120, 6144, 1.78e-3)],
)
def test_mmq_multiplies_as_it_was_timed_alone(stored, outputs, inputs, measured_s):
    """2,048 rows on RTX 3090, of llama.cpp's kernels in vLLM's plugin for GGUF (its MMA MMQ kernel page)."""
    hardware = load_hardware("rtx-3090")
    kernels = load_engine("llama.cpp-b6325").kernels_on(hardware)
    op = linear("", (inputs, outputs), Layout(weight_dtype=stored))
    assert Rates(kernels).time(op, Counts(1.0, 2048.0)).seconds == pytest.approx(measured_s, rel=0.15)


@pytest.mark.parametrize(("device", "tera_flops_per_s"), [("a100-sxm-80", 65.6), ("h20-sxm", 86.9), ("t4", 16.8)])
def test_mmq_goes_by_the_clock_and_not_by_the_peak(device, tera_flops_per_s):
    """532 FLOPs a clock of a multiprocessor, at the share of it that GEMMs hold; 16 bits go by the peak, in cuBLAS."""
    assert flops_per_s(device, "llama.cpp-b6325", "q4_K_M") / 1e12 == pytest.approx(tera_flops_per_s, rel=0.01)
    hardware = load_hardware(device)
    twice = {**hardware.peak_flops_per_s, "fp16": figure(2.0 * hardware.peak_flops_per_s["fp16"])}
    faster = hardware.model_copy(update={"peak_flops_per_s": twice})
    kernels = load_engine("llama.cpp-b6325").kernels_on(hardware)
    counts, ops = Counts(1.0, 512.0), [linear("", (INPUTS, OUTPUTS), Layout(weight_dtype=each)) for each in FORMATS]
    clocked, wide = (Rates(replace(kernels, hardware=each)) for each in (hardware, faster))
    assert clocked.time(ops[0], counts).compute_s == pytest.approx(wide.time(ops[0], counts).compute_s)
    assert clocked.time(ops[1], counts).compute_s == pytest.approx(2 * wide.time(ops[1], counts).compute_s)


def test_integers_without_tensor_cores_bound_mmq():
    """GTX 1660: 0.26 of the 20.1 TOP/s of its vector units, and not the 532 FLOPs a clock of tensor cores."""
    hardware = load_hardware("gtx-1660")
    rule = load_engine("llama.cpp-b6325").kernels_on(hardware).rules.clocked_gemms
    assert rule.flops_per_s(hardware, "q4_K_M") == pytest.approx(0.26 * 20.11e12)
    assert rule.model_copy(update={"int8_fraction": None}).flops_per_s(hardware, "q4_K_M") > 15e12


def test_experts_that_the_host_takes_one_by_one_start_one_by_one():
    """V100 from 64 tokens of the batch on (ggml_cuda_mul_mat_id): as many starts as experts, and tiles of none."""
    hardware = load_hardware("v100-sxm2-32")
    kernels = load_engine("llama.cpp-b6325").kernels_on(hardware)
    op = Op(name="experts", rate="gemm", format="q4_K_M", experts=Experts(128, 8, uneven=False))
    start_s = kernels.start_s("fp16", linear("", (INPUTS, OUTPUTS), Layout(weight_dtype="q4_K_M")))
    assert kernels.apart_s(op, 63.0, "fp16") == 0.0
    assert kernels.apart_s(op, 512.0, "fp16") == pytest.approx(128 * start_s)
    assert kernels.padding(op, 63.0) > 1.5
    assert kernels.padding(op, 64.0) == 1.0
    assert load_engine("llama.cpp-b6325").kernels_on(load_hardware("rtx-3090")).apart_s(op, 512.0, "fp16") == 0


def test_least_rows_of_other_engines_kernels_are_not_ggmls():
    """On an H20 one row in Marlin takes as long as 27; ggml has kernels of its own."""
    hardware = load_hardware("h20-sxm")
    rates = Rates(load_engine("llama.cpp-b6325").kernels_on(hardware))
    op = linear("", (INPUTS, OUTPUTS), Layout(weight_dtype="q4_K_M"))
    assert rates.time(op, Counts(1.0, 1.0)).compute_s < rates.time(op, Counts(1.0, 27.0)).compute_s / 20


def test_vega_20_multiplies_integers_over_vulkan_and_other_vegas_do_not():
    """Radeon VII has dot products of four int8 (llama.cpp prints int dot: 1), Vega 64 has none."""
    for device, has in (("radeon-vii", True), ("rx-vega-64", False)):
        hardware = load_hardware(device)
        rates = Rates(load_engine("llama.cpp-vulkan-b6325").kernels_on(hardware))
        assert rates.clocked(linear("", (INPUTS, OUTPUTS), Layout(weight_dtype="q4_0"))) is has
        assert not rates.clocked(linear("", (INPUTS, OUTPUTS), Layout(weight_dtype="fp16")))
    assert flops_per_s("radeon-vii", "llama.cpp-vulkan-b6325", "q4_0") > 1.5 * flops_per_s(
        "radeon-vii", "llama.cpp-vulkan-b1500", "q4_0"
    )


@pytest.mark.parametrize("device", ["v100-sxm2-32", "mi100", "mi300x"])
@pytest.mark.parametrize("engine", ["llama.cpp-vulkan-b1500", "llama.cpp-vulkan-b6325"])
def test_drivers_without_cooperative_matrices_multiply_in_vector_units(device, engine):
    """NVIDIA's have them from Turing on, Radeon's from RDNA 3 on."""
    assert flops_per_s(device, engine, "q4_0") < load_hardware(device).peak_flops_per_s["fp32"]


@pytest.mark.parametrize(
    ("device", "least"),
    [("rtx-4090", (33, None, None)), ("a100-sxm-80", (33, None, None)), ("v100-sxm2-32", (33, 64, 64))],
)
def test_nvidia_multiplies_what_was_unpacked_until_mmq_had_int8_tensor_cores(device, least):
    hardware, builds = load_hardware(device), ("b1500", "b3220", "b6325")
    rules = [load_engine(f"llama.cpp-{each}").kernels_on(hardware).rules for each in builds]
    assert tuple(each.unpacks_from_rows for each in rules) == least


def test_unpacked_weights_take_the_time_of_passing_through_memory():
    """They are read as stored, written and read in 16 bits: 17 to 25 ms for 20 GB of an 8B on RTX 4090 and 3090."""
    hardware = load_hardware("rtx-4090")
    rates = Rates(load_engine("llama.cpp-b1500").kernels_on(hardware))
    packed, wide = (
        rates.time(linear("", (INPUTS, OUTPUTS), Layout(weight_dtype=each)), Counts(1.0, float(TOKENS)))
        for each in ("q4_K_M", "fp16")
    )
    moved = INPUTS * OUTPUTS * (number_format("q4_K_M").size_bytes + 2.0)
    assert 1.0 <= (packed.seconds - wide.seconds) / (moved / hardware.memory_bytes_per_s) < 1.6


def test_kernels_of_one_chip_start_alike():
    """RTX PRO 6000 is the chip of RTX 5090; L40S, whose table of vLLM's GEMMs has no launches, is that of RTX 4090."""
    op = linear("", (INPUTS, OUTPUTS), Layout(weight_dtype="q4_0"))
    for engine in ("llama.cpp-b1500", "llama.cpp-b6325"):
        started = [
            load_engine(engine).kernels_on(device).with_fitted(launch=1.0).start_s("fp16", op)
            for device in map(load_hardware, ("rtx-pro-6000-ws", "rtx-5090", "l40s", "rtx-4090"))
        ]
        assert len(set(started)) == 1
        assert started[0] > 0


@pytest.mark.parametrize(("device", "most"), [("rtx-3090", 2.0), ("rtx-a6000", 1.0)])
def test_sums_in_fp16_reach_twice_the_peak_of_sums_in_fp32_on_geforce(device, most):
    hardware = load_hardware(device)
    kernels = load_engine("llama.cpp-b6325").kernels_on(hardware).with_fitted(compute=10.0)
    op = linear("", (INPUTS, OUTPUTS), Layout(weight_dtype="fp16"))
    assert Rates(kernels).gemms.achieved("fp16", op).compute == most


def test_a_generation_of_instinct_multiplies_as_the_one_before_it_in_proportion_to_its_peak():
    """ggml took gfx950 for CDNA 3, and has the same kernels for it since (ggml-org/llama.cpp pull request 21570)."""
    share = {device: flops_per_s(device, "llama.cpp-b6325", "q4_0") for device in ("mi300x", "mi355x")}
    assert share["mi355x"] / 2500 == pytest.approx(share["mi300x"] / 1307, rel=0.25)


def test_data_center_blackwell_multiplies_by_the_instructions_of_hopper():
    """FlashAttention 2, of mma.sync, reaches 381 TFLOP/s on B200 and 335 on H100: 1.14 times as many."""
    rates = [flops_per_s(device, "llama.cpp-b6325", "q4_K_M") for device in ("b200-sxm", "h100-sxm")]
    assert rates[0] / rates[1] == pytest.approx(1.14, rel=0.2)


@pytest.mark.parametrize(
    ("device", "times"),
    [("p40", 2), ("rx-6800", 2), ("mi50-32", 2), ("mi210", 3), ("mi300x", 3), ("rtx-3090", 3)],
)
def test_experts_of_a_prompt_fill_tiles_that_the_whole_batch_picks_on_every_gpu(device, times):
    """512 tokens reach each of 128 experts with 32 rows, which fill tiles of 64, or 128 with matrix units."""
    hardware = load_hardware(device)
    kernels = load_engine("llama.cpp-b6325").kernels_on(hardware)
    op = Op(name="experts", rate="gemm", format="q4_K_M", experts=Experts(128, 8, uneven=False))
    assert kernels.padding(op, 512.0) == pytest.approx(times)


@pytest.mark.parametrize(("device", "most"), [("rtx-4090", 128), ("p40", 128), ("arc-b580", 128), ("rx-7900-xtx", 64)])
def test_tiles_of_experts_over_vulkan_have_128_columns_but_on_amd_and_older_intel(device, most):
    """ggml_vk_guess_matmul_id_pipeline: by the tokens of the batch, where mul_mat_id_l is not switched off."""
    rules = load_engine("llama.cpp-vulkan-b6325").kernels_on(load_hardware(device)).rules
    assert rules.expert_tiles == (32, most)
    assert load_engine("llama.cpp-vulkan-b6325").kernels_on(load_hardware("arc-a770-16")).rules.expert_tiles == (32, 64)


@pytest.mark.parametrize(("stored", "measured_s"), [("q4_0", 220e-6), ("q4_1", 263e-6), ("q5_1", 343e-6)])
def test_one_row_over_vulkan_on_polaris(stored, measured_s):
    """RX 470 (ggml-org/llama.cpp pull request 10991, test-backend-ops)."""
    hardware = load_hardware("rx-470")
    kernels = load_engine("llama.cpp-vulkan-b6325").kernels_on(hardware)
    op = linear("", (INPUTS, OUTPUTS), Layout(weight_dtype=stored))
    seconds = Rates(kernels).time(op, Counts(1.0, 1.0)).seconds - kernels.start_s("fp16", op)
    assert seconds == pytest.approx(measured_s, rel=0.2)


@pytest.mark.parametrize(
    ("device", "timed"),
    [
        ("mi300x", {64: 21.0, 128: 25.5, 256: 41.2, 512: 77.2}),
        ("rx-7900-xtx", {32: 4.95, 64: 6.17, 128: 6.77, 256: 12.9, 512: 23.7}),
    ],
)
def test_experts_of_a_prompt_run_at_the_rates_that_ggml_timed(device, timed):
    """4 of 32 experts of 2048 x 1792 in q4_K (ggml-org/llama.cpp pull requests 18896 and 17879, test-backend-ops)."""
    hardware, flops = load_hardware(device), 4 * 2.0 * 2048 * 1792
    bytes_each = 2048 * 1792 * number_format("q4_K_M").size_bytes
    op = Op(name="experts", rate="gemm", format="q4_K_M", flops=Counts(tokens=flops), experts=Experts(32, 4))
    op = replace(op, inputs=2048, columns=1792, expert_bytes=bytes_each)
    rates = Rates(load_engine("llama.cpp-b6325").kernels_on(hardware))
    seconds = [float(rates.time(op, Counts(tokens=float(tokens))).seconds) for tokens in timed]
    errors = [math.log(flops * n / at / 1e12 / rate) for (n, rate), at in zip(timed.items(), seconds, strict=True)]
    assert max(map(abs, errors)) < 0.25
    assert abs(sum(errors) / len(errors)) < 0.15


@pytest.mark.parametrize("device", ["mi50-32", "rx-6800", "mi210"])
def test_a_lane_multiplies_a_row_of_k_quants_as_fast_on_older_radeon_as_on_radeon_8060s(device):
    """4.9 operations a weight: at 1 and 2 FLOPs of fp32 for each operation that the peaks count."""
    share = {
        each: load_engine("llama.cpp-b6325").kernels_on(load_hardware(each)).vector_share("q4_K_M")
        for each in (device, "strix-halo")
    }
    assert share[device] == pytest.approx(2 * share["strix-halo"], rel=0.02)


@pytest.mark.parametrize(
    ("device", "times"), [("rtx-5090", 1.675), ("gb10", 1.675), ("rtx-4090", 1.0), ("b200-sxm", 1.0)]
)
def test_blackwell_of_desktops_multiplies_mxfp4_by_fp4_tensor_cores(device, times):
    """GB10: 104 TFLOP/s in mxfp4 where q4_K makes 62 (unslothai/llama.cpp pull request 198), from b7500 on alone."""
    hardware = load_hardware(device)
    rates = {}
    for build in ("b6325", "b7500"):
        rule = load_engine(f"llama.cpp-{build}").kernels_on(hardware).rules.clocked_gemms
        rates[build] = rule.flops_per_s(hardware, "mxfp4_MoE") / rule.flops_per_s(hardware, "q4_K_M")
    assert rates == {"b6325": pytest.approx(1.0), "b7500": pytest.approx(times, rel=1e-3)}
