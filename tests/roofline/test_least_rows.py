"""Dense GEMMs of few rows on an H20, whose tensor cores multiply whole tiles of them and are slow beside its memory."""

import pytest

from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.op_builders import linear
from simulator.models.operations import Counts
from simulator.roofline.roofline import Rates

# Rows, inputs, columns, microseconds: alibaba/InferSim bench_data/gemm/h20/data.csv, in fp8 (read 2026-11-27)
FP8 = [(16, 5120, 51200, 141.87), (64, 5120, 51200, 142.57), (16, 4096, 24576, 53.4), (64, 25600, 5120, 74.9)]
FP8 += [(128, 5120, 51200, 267.4), (1024, 5120, 10240, 412.8), (16384, 5120, 7168, 4310.0)]
# One row in 16 bits: ROCm/rocm-libraries pull request 12329, its column of an H20
SKINNY = [(1, 17792, 13312, 354.4), (1, 13312, 76032, 1454.8), (1, 13312, 9984, 190.1), (1, 8192, 76032, 898.0)]


def gemm_us(rows: int, inputs: int, columns: int, weight_dtype: str, device: str = "h20-sxm") -> float:
    op = linear("", (inputs, columns), Layout(weight_dtype=weight_dtype), "mixer")
    counts = Counts(steps=1.0, tokens=float(rows), logits=float(rows))
    return float(Rates(DeviceKernels(load_hardware(device))).time(op, counts).seconds) * 1e6


@pytest.mark.parametrize(("rows", "inputs", "columns", "us"), FP8)
def test_sixty_four_rows_in_fp8_take_no_longer_than_sixteen(rows: int, inputs: int, columns: int, us: float):
    assert gemm_us(rows, inputs, columns, "fp8") == pytest.approx(us, rel=0.09)


@pytest.mark.parametrize(("rows", "inputs", "columns", "us"), SKINNY)
def test_one_row_in_16_bits_takes_as_long_as_a_hundred(rows: int, inputs: int, columns: int, us: float):
    assert gemm_us(rows, inputs, columns, "bf16") == pytest.approx(us, rel=0.09)


def test_a_tile_of_128_rows_holds_the_least_rows_and_no_row_more_is_faster():
    """In 16 bits 101 of up to 64 rows, then the 128 of a tile, whichever of them are needed."""
    us = [gemm_us(rows, 5120, 51200, "bf16") for rows in range(1, 258)]
    assert us == sorted(us)
    assert us[64 - 1] == pytest.approx(us[1 - 1], rel=0.01)
    assert us[65 - 1] == pytest.approx(us[128 - 1], rel=0.01)
    assert us[128 - 1] == pytest.approx(us[64 - 1] * 128 / 101, rel=0.15)  # six waves, the last half full


def test_weights_that_are_unpacked_have_tiles_of_their_own_and_an_h100_reads_as_fast_as_it_can():
    whole, packed = (gemm_us(1, 5120, 51200, each) for each in ("bf16", "int4"))
    assert packed < whole / 3
    assert gemm_us(1, 5120, 51200, "bf16", "h100-sxm") < whole / 2


def test_only_a_cpu_unpacks_numbers_for_tokens():
    """A fork of llama.cpp for CPUs, on an H20: another row never makes a product faster."""
    h20, op = load_hardware("h20-sxm"), linear("", (8192, 8192), Layout(weight_dtype="q4_K_M"))
    rates = Rates(load_engine("ik-llama.cpp-b3441").kernels_on(h20))
    seconds = [float(rates.time(op, Counts(steps=1.0, tokens=float(rows))).seconds) for rows in range(1, 33)]
    assert seconds == sorted(seconds)
