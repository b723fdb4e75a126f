"""Products on TPU7x beside kernel times (AI-Hypercomputer/accelerator-microbenchmarks, read 2026-11-28)."""

import pytest

from simulator.engines.device_kernels import DeviceKernels
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.op_builders import linear
from simulator.models.operations import Counts
from simulator.roofline.roofline import Rates


@pytest.mark.parametrize(("size", "tflops", "off"), [(128, 2.59, 0.05), (16_384, 950.1, 0.02), (32_768, 956.4, 0.01)])
def test_squares_in_bf16_on_each_core_of_tpu7x(size, tflops, off):
    """Both cores multiply a square each: as one product of twice the rows on the chip."""
    rates, op = Rates(DeviceKernels(load_hardware("tpu7x"))), linear("", (size, size), Layout())
    found_s = float(rates.time(op, Counts(steps=1.0, tokens=2 * size)).seconds)
    assert found_s == pytest.approx(2 * size**3 / tflops / 1e12, rel=off)
