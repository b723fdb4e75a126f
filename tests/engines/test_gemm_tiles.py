"""Dense GEMMs whose smallest tile has many rows: fp8 in vLLM on SM120, beside times of the kernel alone."""

import pytest

from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.op_builders import linear
from simulator.models.operations import Counts
from simulator.roofline.roofline import Rates

CARD = "rtx-5090"
# TFLOP/s of vLLM 0.15.1's fp8 kernel, scaled by channel, of 4,096 inputs and 6,144 outputs on an RTX 5090, by rows:
# vllm-project/vllm pull request 34424, before the change and with it
OLD = {1: 1.024770, 16: 16.455449, 64: 66.282656, 128: 131.791062, 256: 262.376881}
NEW = {1: 4.128756, 16: 89.481096}


def product_s(engine: str, stored: str, tokens: float, shape: tuple[int, int] = (4096, 6144), device: str = CARD):
    """Seconds of a product without what its launch takes, and of its bytes alone."""
    hardware = load_hardware(device)
    rates = Rates(load_engine(engine).kernels_on(hardware))
    cost = rates.time(linear("product", shape, Layout(weight_dtype=stored)), Counts(1.0, tokens, tokens))
    return float(cost.seconds - cost.overhead_s), float(cost.memory_s)


@pytest.mark.parametrize("rows", OLD)
def test_a_tile_of_128_rows_takes_its_published_time_however_few_rows_there_are(rows):
    published_s = 2.0 * rows * 4096 * 6144 / (OLD[rows] * 1e12)
    assert product_s("vllm-0.14", "fp8", rows)[0] == pytest.approx(published_s, rel=0.15)


def test_newer_releases_have_smaller_tiles():
    """Published with weights in the cache of the device: less than their bytes take here."""
    for rows, teraflops in NEW.items():
        own_s, memory_s = product_s("vllm-0.19", "fp8", rows)
        assert own_s == pytest.approx(memory_s, rel=0.05)
        assert own_s > 2.0 * rows * 4096 * 6144 / (teraflops * 1e12)
    old_s, new_s = (product_s(f"vllm-{each}", "fp8-block", 1.0, (8192, 1024))[0] for each in ("0.14", "0.33"))
    assert old_s == pytest.approx(4.0 * new_s, rel=0.01)  # 128 and 32 rows


def test_tiles_bind_only_where_columns_fill_few_multiprocessors():
    one, many, waves = (product_s("vllm-0.14", "fp8", 1.0, (4096, 128 * each))[0] for each in (1, 170, 171))
    assert one < many <= waves
    assert waves == pytest.approx(2 * 2.0 * 128 * 128 * 4096 / (419e12 / 170), rel=0.01)  # two tiles after one another
    assert one == pytest.approx(waves / 2.0, rel=0.01)
    for stored, device in (("bf16", CARD), ("fp8", "h100"), ("fp8", "l40s")):
        own_s, memory_s = product_s("vllm-0.14", stored, 1.0, device=device)
        assert own_s == pytest.approx(memory_s, rel=0.02)
