"""Dense GEMMs compute whole tiles, in waves of as many as a device has multiprocessors: times of Vidur's on an A100."""

import math

import numpy as np
import pytest

from simulator.engines.device_kernels import DeviceKernels
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.op_builders import linear
from simulator.models.operations import Counts, Op
from simulator.roofline.gemm import wave_padding
from simulator.roofline.roofline import Rates

# Rows, inputs, columns, microseconds (medians): microsoft/vidur data/profiling/compute/a100/meta-llama/Llama-2-70b-hf
# and h100, over one and eight devices (commits 25e529de and 683364e9, read 2026-11-27)
A100 = [(64, 8192, 57344, 604.5), (72, 8192, 57344, 739.0), (128, 8192, 57344, 720.0), (136, 8192, 57344, 1076.0)]
A100 += [(256, 8192, 57344, 1155.5), (264, 8192, 57344, 1573.0), (384, 8192, 57344, 1643.0), (392, 8192, 57344, 2114.0)]
A100 += [(4096, 8192, 57344, 15940.0), (136, 8192, 7168, 119.0), (264, 8192, 7168, 201.0), (384, 8192, 7168, 204.0)]
A100 += [(512, 8192, 7168, 300.0), (896, 8192, 7168, 428.5), (904, 8192, 7168, 547.5)]
A100 += [(392, 3584, 8192, 159.0), (520, 3584, 8192, 157.0), (776, 3584, 8192, 221.0), (896, 3584, 8192, 224.0)]
H100 = [(256, 8192, 57344, 385.0), (264, 8192, 57344, 484.0), (256, 8192, 8192, 64.0), (384, 8192, 8192, 90.0)]
H100 += [(256, 28672, 8192, 182.5), (384, 28672, 8192, 282.5), (392, 28672, 8192, 326.5), (384, 8192, 10240, 102.0)]


def gemm_us(device: str, rows: float, inputs: int, columns: int, weight_dtype: str = "bf16") -> float:
    op = linear("", (inputs, columns), Layout(weight_dtype=weight_dtype))
    return float(Rates(DeviceKernels(load_hardware(device))).time(op, Counts(steps=1.0, tokens=rows)).seconds) * 1e6


@pytest.mark.parametrize(("device", "timed"), [("a100-sxm-80", A100), ("h100-sxm", H100)])
def test_rows_and_columns_take_what_they_took(device: str, timed: list[tuple[int, int, int, float]]):
    errors = [math.log(gemm_us(device, *shape) / us) for *shape, us in timed]
    assert np.mean(np.abs(errors)) < 0.11


def test_a_row_beyond_a_tile_takes_another_and_those_within_it_none():
    assert gemm_us("a100-sxm-80", 257, 8192, 57344) > 1.3 * gemm_us("a100-sxm-80", 256, 8192, 57344)
    assert gemm_us("a100-sxm-80", 257, 8192, 57344) == pytest.approx(gemm_us("a100-sxm-80", 384, 8192, 57344), rel=0.01)


def test_fewer_tiles_than_multiprocessors_have_no_waves():
    """Ten tiles of 108: split along the inputs, at the rate of all, whatever a wave reaches."""
    assert wave_padding(np.array([128.0, 100.0]), Op("", "gemm", columns=1280), 1.0, 0.5, 108.0).tolist() == [1.0, 1.28]


def test_weights_that_are_unpacked_and_devices_without_a_figure_have_no_tiles():
    for device, weight_dtype in (("a100-sxm-80", "int4"), ("l40s", "bf16")):
        one_more = gemm_us(device, 257, 8192, 57344, weight_dtype) / gemm_us(device, 256, 8192, 57344, weight_dtype)
        assert one_more < 1.01
