"""Seconds in which the host launches a step, kernel by kernel or in pieces: counted by hand for a few ops."""

import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.host_launches import launches_s, step_launches_s
from simulator.deployment.settings import Settings
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import LAST_OF_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.operations import Counts, Op
from simulator.models.routed_experts import Experts
from simulator.roofline.graphs import NO_LAUNCHES
from simulator.simulation.scheduler_limits import limits
from tests.support.kernels import figure, kernels_with

ONE = Counts(1.0, 1.0, 1.0)
LLAMA = load_model("llama-3.2-1b")  # 16 layers
SLOW = load_hardware("h100-sxm").model_copy(update={"host_slowness": figure(2.0)})
# In three layers: two norms; a scan, of four kernels more for prompts; attention of both kinds; experts of two kernels
OPS = (
    Op("norms", "elementwise", launches=2, repeats=3),
    Op("scan", "gemm", launches=1, prompt_launches=4, repeats=3, splits=True),
    Op("prompts", "prefill_attention", repeats=3, splits=True),
    Op("decodes", "decode_attention", repeats=3, splits=True),
    Op(LAST_OF_EXPERTS, "gemm", launches=2, repeats=3, experts=Experts(8, 2)),
)


def test_each_kernel_of_a_step_takes_the_host_as_long_and_a_layer_of_experts_more():
    """Prompts 6 + 15 + 3 + 3 + 6 kernels, decodes 6 + 3 + 3 + 6; in pieces 21 and 6 of them, and 17 graphs."""
    kernels, each_s = kernels_with(prompt_launch_s=5e-6, experts_launch_s=70e-6), 2 * 5e-6
    found = launches_s(DeviceKernels(SLOW, kernels), LLAMA, OPS)
    assert found.prompts.least_s == pytest.approx(33 * each_s + 3 * 2 * 70e-6)
    assert found.decodes.least_s == pytest.approx(18 * each_s + 3 * 2 * 70e-6)
    assert found.prompts.piecewise_s == pytest.approx((21 + 17) * each_s)
    assert found.decodes.piecewise_s == pytest.approx((6 + 17) * each_s)
    assert found.prompts.gaps_s == pytest.approx(16 * 10e-6)
    alone = launches_s(DeviceKernels(SLOW, kernels_with(prompt_launch_s=5e-6)), LLAMA, OPS)
    assert alone.decodes.least_s == pytest.approx(18 * each_s)
    assert launches_s(DeviceKernels(SLOW), LLAMA, OPS) == NO_LAUNCHES


def test_eager_kernels_of_all_layers_are_launched_by_python():
    """Twelve kernels in each of 16 layers, 4 us each, on a host that is half as fast."""
    overheads = load_engine("vllm").overheads.model_copy(update={"kernel_s": 4e-6})
    found = [
        step_launches_s(DeviceKernels(SLOW, kernels), Layout(), LLAMA, overheads)
        for kernels in (kernels_with(eager_kernels=12.0), kernels_with())
    ]
    assert found == [pytest.approx(16 * 12 * 4e-6 * 2), 0.0]


def test_up_projections_of_latent_attention_are_two_kernels_of_decodes_and_one_of_prompts():
    """That of keys multiplies queries before attention, that of values what comes out of it; prompts have one GEMM."""
    found = deploy("deepseek-v2-lite", "h100-sxm", "sglang-0.5")
    ups = [op for op in found.ops if op.name == "kv up"]
    layers = sum(op.repeats for op in ups)
    assert layers == 27
    launched = launches_s(found.kernels, found.model, ups)
    own = found.kernels.with_rules(prompt_kernels={})
    prompts, decodes = (each.least_s for each in (launches_s(own, found.model, ups).prompts, launched.decodes))
    assert (prompts, decodes) == (pytest.approx(layers * 60e-6), pytest.approx(2 * layers * 60e-6))
    starts_s = [
        float(cost.overhead_s)
        for op, cost in zip(found.ops, found.step_model().explain(ONE), strict=False)
        if op in ups
    ]
    gemm_s = float(found.hardware.achievable.gemm["bf16"].launch_s) * float(found.kernels.fitted.launch)
    assert sum(starts_s) == pytest.approx(2 * layers * gemm_s)


@pytest.mark.parametrize(
    ("engine", "layout", "given", "ahead"),
    [
        ("vllm-0.33", Layout(), (), True),
        ("vllm-0.14", Layout(tp=2), (), True),
        ("vllm-0.14", Layout(pp=2), (), False),  # a stage waits for the one before
        ("vllm-0.14", Layout(), ("async_scheduling=false",), False),
        ("vllm-0.8", Layout(), (), False),
        ("vllm-0.8", Layout(), ("async_scheduling=true",), True),
        ("sglang-0.5", Layout(), (), True),
        ("tensorrt-llm-1.2", Layout(), (), True),
        ("tensorrt-llm-0.15", Layout(), (), False),
    ],
)
def test_an_engine_that_decides_a_step_ahead_launches_it_ahead(engine, layout, given, ahead):
    found = deploy("llama-3.1-8b", "h100-sxm", engine, layout, settings=Settings(changes=given))
    assert limits(found).launches_ahead is ahead


@pytest.mark.parametrize(
    ("model", "device", "given", "waits"),
    [
        ("llama-3.1-8b", "mi300x", (), True),  # AITER slices by a number on the device
        ("llama-3.1-8b", "rtx-4090", (), True),  # FlashInfer's plan() copies lengths to the host
        ("llama-3.1-8b", "rtx-4090", ("attention_backend=triton",), False),
        ("glm-4.7-flash", "a100-sxm-80", (), False),  # latent attention runs in Triton
        ("gemma-4-31b", "mi300x", (), False),  # as all of Gemma 4's there
        ("llama-3.1-8b", "h100-sxm", (), False),
        ("llama-3.1-8b", "b200-sxm", (), False),
        ("qwen3-coder-next", "b200-sxm", (), True),  # scans list the chunks of prompts on the host
    ],
)
@pytest.mark.parametrize("engine", ["sglang-0.5", "sglang-0.5.10", "sglang-0.5.15"])
def test_prompts_wait_for_the_device_where_their_lengths_are_read_back(engine, model, device, given, waits):
    found = deploy(model, device, engine, settings=Settings(changes=given))
    assert limits(found, assume_fits=True).prompts_wait is waits


@pytest.mark.parametrize(
    ("engine", "waits"), [("sglang-0.5", True), ("sglang-0.5.10", False), ("sglang-0.5.15", False)]
)
def test_aiters_latent_attention_has_lengths_on_the_host_from_0_5_10_on(engine, waits):
    found = deploy("deepseek-v3", "mi300x", engine, Layout(tp=8))
    assert limits(found, assume_fits=True).prompts_wait is waits


@pytest.mark.parametrize(("engine", "waits"), [("vllm-0.14", True), ("vllm-0.19", False)])
def test_scans_of_vllm_waited_until_lengths_were_taken_from_the_host(engine, waits):
    """Pull request 38361 (2026-03)."""
    found = deploy("qwen3-coder-next", "b200-sxm", engine)
    assert limits(found, assume_fits=True).prompts_wait is waits


@pytest.mark.parametrize(("device", "weights", "call_s"), [("b200-sxm", "fp8", 77e-6), ("b200-sxm", "nvfp4", 65e-6)])
def test_flashinfer_chooses_a_kernel_for_each_dense_gemm_in_python(device: str, weights: str, call_s: float):
    """Four GEMMs in each of 32 layers, where no graph holds them; the logits, in 16 bits, are torch's."""
    found = deploy("llama-3.1-8b", device, "vllm-0.19", Layout(weight_dtype=weights))
    own, plain = (
        launches_s(kernels, found.model, found.ops)
        for kernels in (found.kernels, found.kernels.with_rules(gemm_calls=()))
    )
    assert own.prompts.least_s - plain.prompts.least_s == pytest.approx(4 * 32 * call_s)
    assert own.prompts.piecewise_s == plain.prompts.piecewise_s


def test_gemms_in_16_bits_and_on_hopper_are_operators_that_launch():
    """FlashInfer is asked for fp8 and nvfp4 alone, on Blackwell; nor is it for routed experts (MiniMax in nvfp4)."""
    for device, weights in (("b200-sxm", "bf16"), ("h100-sxm", "fp8"), ("b200-sxm", "fp8-block")):
        found = deploy("llama-3.1-8b", device, "vllm-0.19", Layout(weight_dtype=weights))
        assert not any(found.kernels.gemm_call(op) for op in found.ops)
    moe = deploy("qwen3-30b-a3b", "b200-sxm", "vllm-0.19", Layout(weight_dtype="nvfp4"))
    assert not any(moe.kernels.gemm_call(op) for op in moe.ops if op.experts)
