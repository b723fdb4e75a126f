"""The fit: it finds what made the numbers, and what is left out does not move it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from simulator.measurements import Measurement, Setup
from simulator.setups import place
from tools.fitting import Block, Fit, Fits, block_of, blocks, effective, predicted, shipped

PARAMETERS = ("compute", "memory", "step_s")


def setup(source: str, model: str, batch: int, prompt: int) -> Setup:
    return Setup(
        *(source, "2026-01", "H100 SXM 80GB", "", 1, 1, 1, 0, 0, model, "bf16", "", "sglang", "0.5"),
        *(prompt, 128, batch, 0, 0.0, "fixed-batch", ""),
    )


def made(factors: dict[str, float], source: str = "a") -> list[Measurement]:
    """Rows that the profiles would predict with other values: the measurements of a made-up engine."""
    setups = [
        setup(source, model, b, p)
        for model in ("Llama-3.1-8B", "Qwen3-8B")
        for b, p in ((1, 128), (8, 2048), (64, 512))
    ]
    rows = [
        Measurement(f"{source}{index}{metric}", each, metric, "mean", 1.0, "A")
        for index, each in enumerate(setups)
        for metric in ("ttft_ms", "tpot_ms")
    ]
    logs = predicted(rows, {row.id: place(row.setup) for row in rows}, factors)
    return [replace(row, value=math.exp(log)) for row, log in zip(rows, logs, strict=True)]


def fit_of(rows: list[Measurement]) -> Fits:
    block = Block("made", ("sglang-0.5",), (), PARAMETERS)
    placed = {row.id: place(row.setup) for row in rows}
    at = shipped(placed[rows[0].id], PARAMETERS)
    fit = Fit(block, rows, placed, at, {})
    for _ in range(3):
        fit.at = fit.fitted(at)
        fit.measure()
    return Fits({"made": block}, {"made": fit}, {"made": fit.fitted(at)})


@pytest.fixture
def _without_prior(monkeypatch):
    monkeypatch.setattr("tools.fitting.PULL", 0.0)


@pytest.mark.usefixtures("_without_prior")
def test_a_fit_finds_the_values_that_made_the_measurements():
    truth = {"compute": 0.6, "memory": 0.8, "step_s": 4e-3}
    fits = fit_of(made(truth))
    assert np.abs(fits.fits["made"].errors(fits.solved["made"])).max() < 0.05  # memory and host time can stand for
    assert fits.solved["made"]["compute"] == pytest.approx(truth["compute"], rel=0.1)  # one another, compute cannot


@pytest.mark.usefixtures("_without_prior")
def test_a_group_that_is_left_out_does_not_move_the_fit():
    truth = {"compute": 0.6, "memory": 0.8, "step_s": 4e-3}
    fits = fit_of([*made(truth), *made({**truth, "step_s": 40e-3}, source="b")])
    without = fits.without(lambda row: row.setup.source != "b")["made"]
    of_others = [row.setup.source != "b" for row in fits.fits["made"].rows]
    assert np.abs(fits.fits["made"].errors(without))[of_others].max() < 0.07
    assert fits.without(lambda row: row.setup.source != "a")["made"]["step_s"] > 2 * without["step_s"]
    assert fits.without(lambda row: row.setup.source != "nobody") == fits.solved


def test_every_block_names_presets_and_parameters_that_exist_and_parents_stand_first():
    seen: set[str] = set()
    for block in blocks().values():
        assert not block.parent or block.parent in seen
        seen.add(block.name)
        assert block.engines
        assert set(block.parameters)
    placed = place(setup("a", "Llama-3.1-8B", 1, 128))
    assert block_of(blocks().values(), placed.deployment) == blocks()["sglang"]
    assert set(shipped(placed, blocks()["sglang"].parameters)) == set(blocks()["sglang"].parameters)


def test_a_child_has_its_parents_values_where_it_fits_none():
    parent = Block("p", ("a",), (), ("compute", "memory"))
    child = Block("c", ("a",), ("ada",), ("compute",), "p")
    solved = {"p": {"compute": 0.5, "memory": 0.9}, "c": {"compute": 0.7}}
    assert effective(child, {"p": parent, "c": child}, solved) == {"compute": 0.7, "memory": 0.9}
