"""Dense GEMMs and experts on AMD Instinct beside times of the kernels alone (tests/fixtures/kernels-instinct.csv)."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import MixtureOfExperts
from simulator.models.layout import Layout
from simulator.models.op_builders import linear
from simulator.models.operations import Counts
from simulator.reports.figures_of_ops import DeviceOps, rate_figures
from simulator.roofline.gemm import input_loop_s
from simulator.roofline.roofline import Rates

FIXTURE = Path(__file__).parents[1] / "fixtures" / "kernels-instinct.csv"
QUANTISER_US = 1.9  # of the profiles' start, where a kernel quantises inputs; not timed
ROUTING_US = 7.4 + 7.0 + QUANTISER_US  # what chooses, sorts and quantises before experts; not timed
STORED = {"fp4": "nvfp4"}  # a format that is multiplied in the type


def kernel_us(device: str, timed: str, rows: float, columns: int, inputs: int) -> float:
    """Predicted microseconds of a GEMM without the kernel that quantises its inputs."""
    stored = STORED.get(timed, timed)
    rates, op = Rates(DeviceKernels(load_hardware(device))), linear("", (inputs, columns), Layout(weight_dtype=stored))
    counts = Counts(steps=1.0, tokens=rows)
    apart_s = float(rates.gemms.prepared_s(rates.peak(stored)[0], op, counts))
    return 1e6 * float(rates.time(op, counts).seconds - apart_s) - QUANTISER_US * (timed != "bf16")


def times(device: str, timed: str, *, experts: bool) -> list[dict[str, str]]:
    rows = csv.DictReader(FIXTURE.read_text().splitlines())
    return [
        row for row in rows if (row["device"], row["format"]) == (device, timed) and bool(row["experts"]) == experts
    ]


def errors(device: str, timed: str, least: int, most: int) -> np.ndarray:
    shapes = [
        (*(int(row[name]) for name in ("rows", "outputs", "inputs")), float(row["us"]))
        for row in times(device, timed, experts=False)
    ]
    return np.array(
        [np.log(kernel_us(device, timed, *shape) / us) for *shape, us in shapes if least <= shape[0] <= most]
    )


@pytest.mark.parametrize(
    ("device", "timed", "most", "bias"),
    [
        ("mi300x", "bf16", 0.07, 0.06),
        ("mi300x", "int8", 0.06, 0.03),
        ("mi300x", "fp8-block", 0.11, 0.03),
        ("mi308x", "fp8-block", 0.14, 0.05),
        ("mi355x", "bf16", 0.21, 0.08),
        ("mi355x", "int8", 0.13, 0.05),
        ("mi355x", "fp8", 0.15, 0.05),
        ("mi355x", "fp4", 0.06, 0.04),
        ("mi355x", "fp8-block", 0.11, 0.08),
    ],
)
def test_rows_and_inputs_take_what_they_took(device: str, timed: str, most: float, bias: float):
    found = errors(device, timed, 1, 40_000)
    assert len(found) >= 16
    assert np.mean(np.abs(found)) < most
    assert abs(np.mean(found)) < bias


def test_few_rows_of_a_decode_take_what_they_took():
    for device, timed in (("mi300x", "fp8"), ("mi300x", "fp8-block"), ("mi355x", "bf16"), ("mi355x", "fp8")):
        assert np.mean(np.abs(errors(device, timed, 1, 64))) < 0.22


def test_inputs_in_blocks_have_rates_of_their_own():
    """Those of blocks take longer for many rows and for many inputs; a device without them has one rate."""
    for rows in (16.0, 8192.0):
        assert kernel_us("mi300x", "fp8-block", rows, 4608, 7168) > 1.3 * kernel_us("mi300x", "fp8", rows, 4608, 7168)
    hardware, op = load_hardware("h100-sxm"), linear("", (7168, 4608), Layout(weight_dtype="fp8-block"))
    assert hardware.achievable.gemm_of("fp8", experts=False, blocks=True) == hardware.achievable.gemm["fp8"]
    assert input_loop_s(Rates(DeviceKernels(hardware)).gemms.gemm("fp8", op), op) == 0


def test_figures_of_blocks_are_named_where_they_are_used():
    kernels = load_engine("vllm-0.33").kernels_on(load_hardware("mi300x"))
    for stored, kind in (("fp8-block", "blocks"), ("fp8", "gemm")):
        op = linear("", (7168, 4608), Layout(weight_dtype=stored))
        names = [name for name, _ in rate_figures(DeviceOps(kernels, (op,)))]
        assert f"achievable.{kind}.fp8.compute_fraction" in names


def experts_us(rates: Rates, row: dict[str, str]) -> float:
    """Predicted microseconds of a layer of experts, chosen alike, without what is not timed."""
    experts, chosen, width = (int(row[name]) for name in ("experts", "chosen", "outputs"))
    layer = MixtureOfExperts(kind="experts", experts=experts, chosen=chosen, intermediate=width)
    ops = [op for op in layer.ops(int(row["inputs"]), Layout(weight_dtype=row["format"])) if op.columns and op.experts]
    alike = [replace(op, experts=op.experts._replace(uneven=False)) for op in ops]
    counts = Counts(steps=1.0, tokens=float(row["rows"]))
    return sum(float(rates.time(op, counts).seconds) for op in alike) * 1e6 - ROUTING_US


@pytest.mark.parametrize("engine", ["sglang-0.5", "sglang-0.5.10"])
def test_experts_in_blocks_take_what_they_took(engine: str):
    hardware, rows = load_hardware("mi355x"), times("mi355x", "fp8-block", experts=True)
    rates = Rates(load_engine(engine).kernels_on(hardware))
    found = np.array([np.log(experts_us(rates, row) / float(row["us"])) for row in rows])
    deepseek = np.array([row["inputs"] == "7168" for row in rows])
    assert len(rows) == 53
    assert np.mean(np.abs(found)) < 0.18
    assert np.mean(np.abs(found[deepseek])) < 0.12
    assert abs(np.mean(found)) < 0.05


@pytest.mark.parametrize("engine", ["vllm-0.8", "vllm-0.14", "vllm-0.19", "vllm-0.33"])
def test_experts_of_gpt_oss_take_what_they_took(engine: str):
    hardware, rows = load_hardware("mi355x"), times("mi355x", "mxfp4", experts=True)
    rates = Rates(load_engine(engine).kernels_on(hardware))
    found = np.array([np.log(experts_us(rates, row) / float(row["us"])) for row in rows])
    assert len(rows) == 20
    assert np.mean(np.abs(found)) < 0.18
    assert abs(np.mean(found)) < 0.05


@pytest.mark.parametrize(("device", "columns"), [("mi355x", 3072), ("mi300x", 2944)])
def test_experts_of_gpt_oss_are_padded_on_instinct(device: str, columns: int):
    hardware, layer = load_hardware(device), MixtureOfExperts(kind="experts", experts=128, chosen=4, intermediate=2880)
    op = next(op for op in layer.ops(2880, Layout(weight_dtype="mxfp4")) if op.columns and op.experts)
    for engine in ("vllm-0.8", "vllm-0.14", "vllm-0.19", "vllm-0.33"):
        padded = load_engine(engine).kernels_on(hardware).padded(op)
        assert padded.expert_bytes / op.expert_bytes == pytest.approx((columns / 2880) ** 2)
