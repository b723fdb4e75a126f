"""Dense GEMMs in nvfp4 on data-center Blackwell, by rows and inputs, beside times of the kernels alone."""

import math

import numpy as np
import pytest

from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import MixtureOfExperts
from simulator.models.layout import Layout
from simulator.models.op_builders import linear
from simulator.models.operations import Counts
from simulator.roofline.gemm import input_loop_s
from simulator.roofline.roofline import Rates

# Rows, columns, inputs, microseconds: flashinfer-ai/flashinfer pull request 2540, TensorRT-LLM's CUTLASS on GB200
GB200 = [(1, 512, 7168, 9.088), (1, 896, 1024, 4.288), (1, 896, 5120, 8.0), (1, 1280, 8192, 10.399)]
GB200 += [(1, 1792, 5120, 8.352), (1, 2560, 8192, 11.472), (4, 4608, 7168, 11.408), (4, 7168, 256, 4.544)]
GB200 += [(4, 7168, 2304, 7.488), (4, 7168, 4608, 9.824), (4, 9216, 7168, 13.728), (16, 9216, 7168, 14.48)]
GB200 += [(64, 896, 5120, 7.888), (64, 2560, 8192, 11.488), (1024, 7168, 256, 6.256), (1024, 7168, 512, 6.912)]
GB200 += [(1024, 7168, 4608, 18.336), (1024, 9216, 7168, 31.344)]
# pytorch/ao pull request 2427, cuBLAS on B200, squares of inputs that are quantised before
B200 = [(2048, 2048, 2048, 10.2), (3072, 3072, 3072, 16.5), (4096, 4096, 4096, 30.8), (6144, 6144, 6144, 84.4)]
B200 += [(8192, 8192, 8192, 205.0)]
START_US = 4.2  # that of the kernel alone; the profiles' has another that quantises


def kernel_us(device: str, rows: float, columns: int, inputs: int) -> float:
    op = linear("", (inputs, columns), Layout(weight_dtype="nvfp4"))
    cost = Rates(DeviceKernels(load_hardware(device))).time(op, Counts(steps=1.0, tokens=rows))
    return float(cost.seconds - cost.overhead_s) * 1e6 + START_US


@pytest.mark.parametrize(("device", "timed", "most"), [("gb200", GB200, 0.05), ("b200-sxm", B200, 0.07)])
def test_rows_and_inputs_take_what_they_took(device: str, timed: list[tuple[int, int, int, float]], most: float):
    errors = [math.log(kernel_us(device, *shape) / us) for *shape, us in timed]
    assert np.mean(np.abs(errors)) < most
    assert np.max(np.abs(errors)) < 0.25


def test_a_loop_over_inputs_adds_to_the_time_of_reading():
    """8,192 inputs are 5.2 us; 8,192 columns of them are 37.7 MB, and a row 20 kB, at 6.4 TB/s: 5.9 us."""
    assert kernel_us("b200-sxm", 1.0, 8192, 8192) == pytest.approx(START_US + 5.24 + 5.90, abs=0.02)
    assert (
        Rates(DeviceKernels(load_hardware("b200-sxm")))
        .time(linear("", (8192, 8192), Layout(weight_dtype="nvfp4")), Counts())
        .seconds
        == 0
    )


def test_formats_and_devices_without_a_loop_have_none():
    for device, stored in (("b200-sxm", "bf16"), ("h100-sxm", "fp8"), ("rtx-5090", "nvfp4")):
        rates, op = Rates(DeviceKernels(load_hardware(device))), linear("", (8192, 8192), Layout(weight_dtype=stored))
        assert input_loop_s(rates.gemms.gemm(rates.peak(stored)[0], op), op) == 0


def test_experts_have_rates_of_their_own_where_their_kernels_are_others():
    for device, share in (("b200-sxm", 0.4), ("gb200", 0.4), ("gb300", 0.261)):
        hardware = load_hardware(device)
        rates, layout = Rates(DeviceKernels(hardware)), Layout(weight_dtype="nvfp4")
        block = MixtureOfExperts(kind="experts", experts=256, chosen=8, intermediate=2048)
        routed = [op for op in block.ops(7168, layout) if op.experts and op.rate == "gemm"]
        found = [(rates.gemms.achieved("fp4", op), input_loop_s(rates.gemms.gemm("fp4", op), op)) for op in routed]
        assert {(each.compute, each.memory, loop_s) for each, loop_s in found} == {(share, 0.712, 0.0)}
        assert hardware.achievable.gemm_of("bf16", experts=True) == hardware.achievable.gemm["bf16"]


def test_an_engine_that_quantises_before_starts_one_kernel():
    b200, op = load_hardware("b200-sxm"), linear("", (4096, 4096), Layout(weight_dtype="nvfp4"))
    starts_s = {
        engine: (kernels := load_engine(engine).kernels_on(b200)).start_s("fp4", op) / kernels.fitted.launch
        for engine in ("tensorrt-llm-1.2", "vllm-0.33")
    }
    assert starts_s == pytest.approx({"tensorrt-llm-1.2": 3.8e-6, "vllm-0.33": 6.3e-6})
