"""GEMMs of weight-only formats by rows: vector kernels for a few, weights unpacked in memory for many."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.op_builders import linear
from simulator.models.operations import Counts, Op, Sequence, count
from simulator.models.routed_experts import Experts
from simulator.roofline.op_time import OpTime
from simulator.roofline.roofline import Rates
from simulator.roofline.speed_of_light import LightRates
from simulator.roofline.step_floor import step_floor
from simulator.roofline.weight_only import rows_of
from tests.support.kernels import figure, kernels_with

HALO = load_hardware("strix-halo")
SIDE = 4096
WEIGHTS = SIDE * SIDE


def product(stored: str = "q4_K_M") -> Op:
    """A square GEMM with weights in a format."""
    return linear("", (SIDE, SIDE), Layout(weight_dtype=stored))


def cost(op: Op, rows: float, **rules: object) -> OpTime:
    """Its cost on Strix Halo under some rules."""
    return Rates(DeviceKernels(HALO, kernels_with(**rules))).time(op, Counts(steps=1.0, tokens=rows))


def test_weights_of_many_rows_are_unpacked_in_memory():
    """From 64 rows on 4.85 bits a weight are read and 16 written, at 0.6 of 256 GB/s; then a GEMM of 16 bits."""
    rule = {"unpacks_from_rows": 64.0, "unpacked": 0.5, "packed": 0.8}
    op, plain = product(), {"unpacked": 0.5, "packed": 0.8}
    assert cost(op, 63.0, **rule).seconds == pytest.approx(cost(op, 63.0, **plain).seconds)
    unpacking_s = WEIGHTS * (4.85 + 16) / 8 / (0.6 * 256e9)
    wide = cost(product("fp16"), 64.0)
    many = cost(op, 64.0, **rule)
    assert many.seconds == pytest.approx(wide.seconds + unpacking_s)
    assert many.moved_bytes == pytest.approx(wide.moved_bytes + WEIGHTS * (4.85 + 16) / 8)
    assert cost(product("fp16"), 64.0, **rule).seconds == wide.seconds  # nothing to unpack
    light = LightRates(DeviceKernels(HALO, kernels_with(**rule))).time(op, Counts(1.0, 64.0))
    assert light.seconds == LightRates(DeviceKernels(HALO)).time(op, Counts(1.0, 64.0)).seconds


def test_experts_are_unpacked_by_the_rows_that_each_has():
    """128 tokens reach all 8 experts, 2 of them each: 32 rows. 256 tokens: 64."""
    op = replace(product(), weight_bytes=0.0, expert_bytes=product().weight_bytes, experts=Experts(8, 2))
    op = replace(op, flops=op.flops.over(0.5))
    assert [float(rows_of(op, Counts(1.0, n))) for n in (128.0, 256.0)] == pytest.approx([32.0, 64.0])
    assert rows_of(replace(op, experts=Experts(8, 1)), Counts(1.0, 1.0)) == 1.0  # one token, one expert
    rule = {"unpacks_from_rows": 63.0}
    assert cost(op, 128.0, **rule).seconds == cost(op, 128.0).seconds
    unpacking_s = 8 * WEIGHTS * (4.85 + 16) / 8 / (0.6 * 256e9)
    wide = replace(op, format="fp16", expert_bytes=2.0 * WEIGHTS)
    assert cost(op, 256.0, **rule).seconds == pytest.approx(cost(wide, 256.0).seconds + unpacking_s)


def test_a_few_rows_are_multiplied_by_vector_units():
    """Eight rows at a tenth of 29.7 TFLOP/s; nine, experts and 16 bits as ever."""
    op, rule = product(), {"vector_rows": 8.0, "vector": 0.1}
    assert cost(op, 8.0, **rule).compute_s == pytest.approx(8 * 2 * WEIGHTS / 2.97e12)
    routed = replace(op, experts=Experts(8, 2))
    for each, rows in ((op, 9.0), (routed, 1.0), (routed, 8.0), (product("fp16"), 1.0)):
        assert cost(each, rows, **rule).compute_s == cost(each, rows).compute_s
    for rates in ({"vector_rows": 8.0}, {"vector": 0.1}):  # no rate is known, or no kernel
        assert cost(op, 1.0, **rates).compute_s == cost(op, 1.0).compute_s


def test_experts_of_a_few_tokens_are_multiplied_by_vector_units():
    """Both experts of one token at a tenth of 29.7 TFLOP/s; two tokens as ever."""
    op = replace(product(), weight_bytes=0.0, expert_bytes=product().weight_bytes, experts=Experts(8, 2))
    rule = {"vector_rows": 8.0, "vector": 0.1, "vector_expert_tokens": 1.0}
    assert cost(op, 1.0, **rule).compute_s == pytest.approx(2 * WEIGHTS / 2.97e12)
    assert cost(op, 2.0, **rule).compute_s == cost(op, 2.0).compute_s


def test_experts_start_in_as_many_launches_as_an_engine_counts():
    """One for each of two GEMMs where ggml fuses the choice of experts; the first has five where nobody counted."""
    first, last = (op for op in load_model("qwen3-30b-a3b").ops(Layout()) if op.experts and op.rate == "gemm")
    plain, counted = DeviceKernels(HALO), kernels_with(expert_launches=(figure(1.0), figure(1.0)))
    ggml = DeviceKernels(HALO, counted)
    assert [ggml.launches(op) for op in (first, last)] == [1, 1]
    assert [plain.launches(op) for op in (first, last)] == [5, 1]
    assert ggml.launches(product()) == 1
    assert ggml.start_s("fp16", first) == plain.start_s("fp16", first) / 5


@pytest.mark.parametrize("build", ["b1500", "b6325"])
def test_vector_units_unpack_formats_without_superblocks_faster(build):
    """Over HIP: 0.26 of 29.7 TFLOP/s, files of other bits too; K-quants as fitted."""
    kernels = load_engine(f"llama.cpp-{build}").kernels_on(HALO)
    for stored in ("q8_0", "q4_0@4.54", "q8_K_XL@9.1", "mxfp4", "mxfp4+q4_K_M", "iq4_XS@4.4+q8_0"):
        assert kernels.vector_share(stored) == 0.26
    assert kernels.vector_share("q4_K_M@4.9") == kernels.fitted.vector
    one = Rates(kernels).time(product("q8_0"), Counts(1.0, 1.0))
    assert one.compute_s == pytest.approx(2 * WEIGHTS / (0.26 * 29.7e12))


@pytest.mark.parametrize(("build", "tokens"), [("b1500", 1), ("b6325", 8)])
def test_vulkan_builds_differ_in_the_tokens_of_vector_experts(build, tokens):
    """One, in newer builds eight (ggml_vk_use_mul_mat_vec_id)."""
    assert load_engine(f"llama.cpp-vulkan-{build}").kernels_on(HALO).rules.vector_expert_tokens == tokens


def test_products_with_one_row_take_the_time_of_kernels():
    """Radeon 8060S over HIP, 4096 x 14336: q8_0 in 287 us, q5_K in 203 (ROCm/legacy-rocm-build issue 4748)."""
    kernels = load_engine("llama.cpp-b6325").kernels_on(HALO)
    for stored, measured_s in (("q8_0", 287e-6), ("q5_K_M@5.5", 203e-6)):
        op = linear("", (14336, 4096), Layout(weight_dtype=stored))
        seconds = Rates(kernels).time(op, Counts(1.0, 1.0)).seconds
        assert seconds - kernels.start_s("fp16", op) == pytest.approx(measured_s, rel=0.05)


def test_logits_count_the_sequences_that_need_them():
    """A step of 512 tokens multiplies the head with one row."""
    layout = Layout(1, 1, 1, "q4_K_M", "fp16", "fp16")
    model = deploy("llama-2-7b", "strix-halo", "llama.cpp-b1500", layout)
    head = next(op for op in model.ops if op.rate == "gemm" and op.flops.logits)
    assert rows_of(head, Counts(1.0, 512.0, 1.0)) == 1.0


@pytest.mark.parametrize(
    ("prompt", "measured_s"), [(1, 0.228), (8, 0.556), (32, 0.600), (128, 2.731), (512, 6.616), (2048, 35.713)]
)
def test_a_70b_on_strix_halo_takes_the_time_of_its_kernels(prompt, measured_s):
    """llama-bench of lhl/strix-halo-testing, HIP, b5863: 8 and 32 tokens take as long, 128 five times that."""
    layout = Layout(1, 1, 1, "q4_K_M", "fp16", "fp16")
    deployment = deploy("llama-3.1-70b", "strix-halo", "llama.cpp-b1500", layout)
    engine = deployment.engine.kernels_on(HALO)
    assert (engine.rules.unpacks_from_rows, engine.rules.vector_rows) == (64, 8)
    fused = replace(engine, of_engine=engine.of_engine.with_attention(fused=True))
    model = replace(deployment.step_model(), kernels=fused)
    assert model.seconds(count([Sequence(prompt, 0)])) == pytest.approx(measured_s, rel=0.25)


@pytest.mark.parametrize("micro_batch_tokens", [0, 512])
def test_tables_and_floors_follow_the_steps_of_kernels(micro_batch_tokens):
    """A table has the seconds of each number of tokens, and the floor of a block is the least of it."""
    layout = Layout(1, 1, 1, "q4_K_M", "fp16", "fp16")
    model = deploy("llama-2-7b", "strix-halo", "llama.cpp-b1500", layout).step_model()
    model = replace(model, micro_batch_tokens=micro_batch_tokens)
    body = replace(model, ops=tuple(op for op in model.ops if not op.flops.logits))
    steps = body.seconds(Counts(np.ones(600), np.arange(1.0, 601.0))) - model.overheads.step_s
    table, floor = model.table(600, 4).token_s, step_floor(model, 600, 4).tokens
    assert table[1:] == pytest.approx(steps)
    assert table[64] > 1.5 * table[63]
    blocks = np.split(steps, floor.last[:-1].astype(int) + 1)
    assert floor.seconds == pytest.approx([block.min() for block in blocks], rel=0.02)
    assert all(least <= block.min() * (1 + 1e-12) for least, block in zip(floor.seconds, blocks, strict=True))


@pytest.mark.parametrize("build", ["b1500", "b6325"])
def test_formats_that_unpack_freely_lose_no_time_to_it(build):
    """Of Vulkan builds to b6325: Q4_0 and files of so many bits, not Q4_K."""
    kernels = load_engine(f"llama.cpp-vulkan-{build}").kernels_on(HALO)
    shares = [kernels.compute_share("fp16", product(each)) for each in ("q4_0", "q4_0@4.54", "q4_K_M")]
    lost = float(kernels.fitted.unpacked)
    freely = float(kernels.fitted.compute) if build == "b1500" else float(kernels.fitted.compute) * lost
    assert shares == pytest.approx([freely, freely, float(kernels.fitted.compute) * lost])
