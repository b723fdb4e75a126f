"""Which kernels vLLM's presets say that its routed experts run in, and how many of them start."""

import pytest

from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import MixtureOfExperts
from simulator.models.layout import Layout
from simulator.models.operations import Op

RELEASES = ("vllm-0.8", "vllm-0.14", "vllm-0.19", "vllm-0.33")


def gemms(stored: str) -> list[Op]:
    layer = MixtureOfExperts(kind="experts", experts=160, chosen=8, intermediate=1536)
    return [op for op in layer.ops(5120, Layout(weight_dtype=stored)) if op.experts and op.columns]


def kernels(engine: str, device: str) -> DeviceKernels:
    return load_engine(engine).kernels_on(load_hardware(device))


@pytest.mark.parametrize("engine", ["vllm-0.8", "vllm-0.14"])
def test_whole_fp8_experts_start_fourteen_kernels_where_cutlass_runs(engine: str):
    """run_cutlass_moe_fp8 on Hopper and data-center Blackwell; Triton elsewhere."""
    for device, launches in (("h100-sxm", [9, 5]), ("b200-sxm", [9, 5]), ("l40s", [5, 1])):
        assert [kernels(engine, device).launches(op) for op in gemms("fp8")] == launches


@pytest.mark.parametrize("engine", RELEASES)
def test_experts_of_floats_run_in_marlin_where_no_tensor_core_has_fp4(engine: str):
    for device in ("a100-sxm-80", "h100-sxm", "l40s", "rtx-3090", "rtx-4090", "a6000"):
        assert all(kernels(engine, device).marlin(op) for op in gemms("nvfp4"))
    for device in ("b200-sxm", "rtx-5090", "rtx-pro-6000"):
        assert not any(kernels(engine, device).marlin(op) for op in gemms("nvfp4"))


@pytest.mark.parametrize("engine", RELEASES)
def test_unpacking_binds_marlin_less_on_geforce_cards(engine: str):
    """Whose tensor cores sum in fp32 at half rate: vLLM pull request 24722."""
    shares = {device: float(kernels(engine, device).own_experts(gemms("int4")[0]).compute) for device in CARDS}
    assert shares == CARDS


CARDS = {"rtx-3090": 1.0, "rtx-4090": 1.0, "rtx-5090": 1.0, "l40s": 0.6, "rtx-pro-6000": 0.6, "a6000": 0.6}
