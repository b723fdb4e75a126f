"""`calibrate --measured`: what it recovers, how little few rows move, what it refuses, and that its preset is found."""

import csv
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simulator.calibration.map_fit import PARAMETERS, SHARES, TIMES, Problem, adjusted, spreads
from simulator.calibration.user_calibration import FOLDS, Overlay, calibrated, preset
from simulator.cli import build
from simulator.engines.engine import Engine, load_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.profile import Source
from simulator.validation.measurements import Measurement, measurement_of
from simulator.validation.prediction import ask

DEVICE = load_hardware("l40s")
TRUE = Source(text="a machine that nobody has", date="", evidence="given")
SIZES = [(1, 512), (1, 4096), (8, 512), (32, 1024), (4, 8192), (2, 128)]
METRICS = ("ttft_ms", "tpot_ms", "throughput_out_tok_s")
CELLS = {
    **{"hardware": "l40s", "model": "llama-3.1-8b", "engine": "vllm", "engine_version": "0.33.0", "tp": "1"},
    **{"output_len": "128", "regime": "fixed_batch"},
}


def setups(count: int = len(SIZES)) -> list[dict[str, str]]:
    return [CELLS | {"batch": str(size), "input_len": str(prompt)} for size, prompt in SIZES[:count]]


def truth(shipped: Engine, moved: dict[str, float]) -> dict[str, float]:
    """Return parameters that differ from the shipped ones by some spreads."""
    fitted, host = shipped.kernels_on(DEVICE).fitted, shipped.overheads
    shares = {n: getattr(fitted, n) * math.exp(spreads()[n] * moved.get(n, 0.0)) for n in SHARES}
    return shares | {n: getattr(host, n) + spreads()[n] * moved.get(n, 0.0) for n in TIMES}


def rows(moved: dict[str, float], count: int = len(SIZES)) -> list[Measurement]:
    """What a machine measures whose engine differs from the shipped one by some spreads."""
    return list(_rows(tuple(moved.items()), count))


@cache
def _rows(moved: tuple[tuple[str, float], ...], count: int) -> list[Measurement]:
    found = []
    for cells in setups(count):
        blank = [measurement_of(cells | {"metric": metric, "value": "1"}, metric) for metric in METRICS]
        at = ask(blank[0].setup)
        engine = adjusted(at.deployment.engine, DEVICE, truth(at.deployment.engine, dict(moved)), TRUE)
        result = at.on(replace(at.deployment, engine=engine)).answer()
        found += [replace(row, value=result.value(row.metric)) for row in blank]
    return found


@cache
def slow() -> Overlay:
    return calibrated(rows(SLOW), DEVICE)


SLOW = {"compute": -0.8, "memory": -1.0, "request_s": 2.0}


# ------------------------------------------------------------------------------------------------------- what it finds


def test_a_slower_machine_is_found_and_its_other_setups_are_predicted():
    found = slow()
    whole = found.score()
    assert (whole.rows, whole.setups) == (18, 6)
    assert whole.before > 0.2
    assert whole.after < whole.before / 4
    before, after = found.shipped.kernels_on(DEVICE).fitted, found.engine.kernels_on(DEVICE).fitted
    assert after.compute / before.compute == pytest.approx(math.exp(spreads()["compute"] * SLOW["compute"]), rel=0.2)
    late = found.engine.overheads.request_s - found.shipped.overheads.request_s
    assert 0.3 < late / (2 * spreads()["request_s"]) < 1.05  # the prior holds it back: two setups tell it


def test_nothing_moves_where_all_is_as_predicted():
    found = calibrated(rows({}), DEVICE)
    assert np.abs(found.before).max() < 1e-9
    before, after = found.shipped.kernels_on(DEVICE), found.engine.kernels_on(DEVICE)
    for name in SHARES:
        assert getattr(after.fitted, name) == pytest.approx(getattr(before.fitted, name), rel=1e-6)
    assert not found.helps


def test_more_rows_move_it_further_and_never_past_the_truth():
    truth = math.exp(spreads()["compute"] * -0.8)
    shares = []
    for count in (3, 6):
        found = calibrated(rows({"compute": -0.8}, count), DEVICE)
        shares.append(found.engine.kernels_on(DEVICE).fitted.compute / found.shipped.kernels_on(DEVICE).fitted.compute)
    assert all(truth - 0.02 < each < 1 for each in shares)
    assert shares[-1] < shares[0] + 0.02


def test_one_wild_row_moves_little():
    calm = rows({"compute": -0.5})
    wild = [replace(calm[0], value=calm[0].value * 30), *calm[1:]]
    shares = [calibrated(each, DEVICE).engine.kernels_on(DEVICE).fitted.compute for each in (calm, wild)]
    assert shares[1] == pytest.approx(shares[0], rel=0.25)


def test_tails_are_scored_and_not_fitted():
    plain = rows(SLOW)
    tails = [replace(row, stat="p99", value=3 * row.value) for row in plain if row.metric == "tpot_ms"]
    found = calibrated([*plain, *tails], DEVICE)
    assert found.score().rows == 24
    assert found.engine.kernels_on(DEVICE).fitted.compute == pytest.approx(
        slow().engine.kernels_on(DEVICE).fitted.compute
    )
    assert found.engine.overheads.request_s == pytest.approx(slow().engine.overheads.request_s)


def test_held_back_rows_are_not_seen(monkeypatch):
    """A fit gets no row of a setup that it is judged by."""
    seen_by_fit = []
    plain = Problem.fit

    def watched(self, seen, slopes):
        seen_by_fit.append({self.rows[index].setup for index in seen})
        return plain(self, seen, slopes)

    monkeypatch.setattr(Problem, "fit", watched)
    calibrated(rows(SLOW), DEVICE)
    *folds, whole = seen_by_fit
    assert len(folds) == FOLDS
    assert len(whole) == len(SIZES)
    held = [whole - fold for fold in folds]
    assert set().union(*held) == whole
    assert sum(map(len, held)) == len(whole)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.1, 2.0), min_size=6, max_size=6))
def test_a_rule_belongs_to_one_device_and_the_last_one_counts(values):
    shipped, other = load_engine("vllm-0.33"), load_hardware("h100-sxm")
    wanted = dict(zip(PARAMETERS, values, strict=True))
    once = adjusted(shipped, DEVICE, wanted, TRUE)
    assert once.kernels_on(other) == shipped.kernels_on(other)
    assert {name: float(getattr(once.kernels_on(DEVICE).fitted, name)) for name in SHARES} == {
        name: wanted[name] for name in SHARES
    }
    twice = adjusted(adjusted(shipped, DEVICE, dict.fromkeys(PARAMETERS, 1.0), TRUE), DEVICE, wanted, TRUE)
    assert twice.kernels == once.kernels


# --------------------------------------------------------------------------------------------------- what it refuses


def test_too_few_setups_are_refused_with_what_to_measure():
    with pytest.raises(NotModelledError, match=r"2 setups on l40s: 3 are needed.*Measure other lengths or loads too"):
        calibrated(rows(SLOW, 2), DEVICE)


def test_rows_of_another_device_engine_or_model_are_named():
    odd = [
        replace(row, setup=replace(row.setup, **change))
        for change in ({"hardware": "h100-sxm"}, {"engine": "sglang"}, {"model": "nobody-7b"})
        for row in rows({}, 1)
    ]
    found = calibrated([*rows(SLOW), *odd], DEVICE, "vllm")
    assert len(found.measurements) == 18
    assert [number for reason, number in found.left_out.items()] == [3, 3, 3]
    assert [word in " ".join(found.left_out) for word in ("h100-sxm", "sglang-", "nobody-7b")] == [True] * 3
    with pytest.raises(NotModelledError, match="one preset is calibrated at a time"):
        calibrated([*rows(SLOW), *odd], DEVICE)


# ------------------------------------------------------------------------------------------------------- what it writes


def test_the_preset_is_the_shipped_one_but_for_what_was_measured():
    found = slow()
    read = Engine.from_mapping(preset(found), "preset")
    rule = read.kernels_on(DEVICE)
    for name in SHARES:
        assert getattr(rule.fitted, name) == pytest.approx(
            getattr(found.engine.kernels_on(DEVICE).fitted, name), rel=1e-3
        )
        assert getattr(rule.fitted, name).source.evidence == "measured"
        assert "18 rows of 6 setups" in getattr(rule.fitted, name).source.text
    ours = found.shipped.kernels_on(DEVICE)
    assert (rule.rules, rule.fitted_on, rule.fitted.prompt_launch_s) == (
        ours.rules,
        ours.fitted_on,
        ours.fitted.prompt_launch_s,
    )
    kinds = {f"{metric} fixed_batch": 6 for metric in METRICS}
    assert {kind: len(values) for kind, values in rule.residuals.items()} == kinds
    assert read.overheads.request_s == pytest.approx(found.engine.overheads.request_s, rel=1e-3)
    assert (read.policy, read.memory, read.overheads.sequence_s) == (
        found.shipped.policy, found.shipped.memory, found.shipped.overheads.sequence_s,
    )  # fmt: skip
    assert read.kernels_on(load_hardware("h100-sxm")) == found.shipped.kernels_on(load_hardware("h100-sxm"))


def table(path: Path, measured: list[Measurement]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*CELLS, "batch", "input_len", "metric", "value"])
        writer.writeheader()
        for index, row in enumerate(measured):
            cells = setups()[index // len(METRICS)]
            writer.writerow(cells | {"metric": row.metric, "value": f"{row.value:.8g}"})
    return path


def run(*arguments: str):
    return CliRunner().invoke(build(arguments), arguments, catch_exceptions=False)


ESTIMATE = ("estimate", "--model", "llama-3.1-8b", "--hardware", "l40s", "--engine", "vllm-0.33", "--batch", "8")


def test_the_command_writes_a_preset_that_profiles_finds(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERCAST_PROFILES", "")  # put back afterwards: --profiles sets it
    file, own = table(tmp_path / "mine.csv", rows(SLOW)), tmp_path / "own"
    before = json.loads(run(*ESTIMATE, "--format", "json").stdout)["estimates"][0]
    result = run("calibrate", "--measured", str(file), "--hardware", "l40s", "--out", str(own), "--format", "json")
    found = json.loads(result.stdout)
    assert found["calibration"][-1]["metric"] == "all"
    assert found["calibration"][-1]["after"] < found["calibration"][-1]["before"]
    assert (own / "engines" / "vllm-0.33.yaml").is_file()
    whole = json.loads(run(*ESTIMATE, "--profiles", str(own), "--format", "json").stdout)
    assert {row["evidence"] for row in whole["rests_on"] if row["figure"] == "kernels.fitted.compute"} == {"measured"}
    after = whole["estimates"][0]
    assert after["ttft_s"] > before["ttft_s"] + 0.01
    assert after["interval_basis"] == "measured" != before["interval_basis"]
    for name in ("ttft_s", "tpot_s"):
        wide, narrow = (each[f"{name}_high"] / each[f"{name}_low"] for each in (before, after))
        assert narrow < 0.95 * wide


def test_rows_faster_than_light_are_pointed_out_and_move_no_share_past_the_peak(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERCAST_PROFILES", "")
    fast = [replace(row, value=row.value * (3 if "tok_s" in row.metric else 1 / 3)) for row in rows({})]
    file = table(tmp_path / "mine.csv", fast)
    text = run("calibrate", "--measured", str(file), "--out", str(tmp_path / "own")).stdout
    assert "rows beat the device's speed of light" in text
    memory = calibrated(fast, DEVICE).engine.kernels_on(DEVICE).fitted.memory
    assert memory * DEVICE.achievable.gemm["bf16"].memory_fraction <= 1 + 1e-9


def test_what_does_not_help_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERCAST_PROFILES", "")
    file = table(tmp_path / "mine.csv", rows({}))
    result = run("calibrate", "--measured", str(file), "--hardware", "l40s", "--out", str(tmp_path / "own"))
    assert "nothing is written" in result.stdout
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize(
    ("devices", "said"), [(("L40S", "H100"), "the rows are of 2: H100, L40S"), (("", ""), "no row names one")]
)
def test_rows_of_several_devices_or_of_none_ask_which(tmp_path, devices, said):
    file = tmp_path / "two.csv"
    file.write_text(
        "".join(["hardware,model,metric,value\n", *(f"{each},Llama-3.1-8B,tpot_ms,30\n" for each in devices)])
    )
    with pytest.raises(InfercastError, match=rf"{said}\. Give --hardware NAME"):
        run("calibrate", "--measured", str(file))
