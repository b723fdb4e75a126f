"""`calibrate --measured`: what it recovers, what stays, how sure it is, what it refuses, and what is written."""

import csv
import json
import math
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simulator.calibration import user_calibration
from simulator.calibration.calibrated_constants import CONSTANTS, adjusted, uncalibrated
from simulator.calibration.map_fit import NOISE, OUTLIER, Fit, Problem
from simulator.calibration.own_preset import preset, write_preset
from simulator.calibration.rows_by_preset import rows_by_preset
from simulator.calibration.user_calibration import FOLDS, GAIN, Calibration, calibrated, shared
from simulator.cli import build
from simulator.cli.commands import calibrate_measured
from simulator.engines.engine import KIND, Engine, load_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.models.model import load_model
from simulator.profile import Source, find
from simulator.reports.intervals import Interval, interval
from simulator.validation.measurements import Measurement, Setup, measurement_of
from simulator.validation.prediction import ask
from tests.support.commands import printed

DEVICE = load_hardware("l40s")
TRUE = Source(text="a machine that nobody has", date="", evidence="given")
NAMED = {constant.name: constant for constant in CONSTANTS}
SIZES = [(1, 512), (1, 4096), (8, 512), (32, 1024), (4, 8192), (2, 128)]
LONE = [(1, 128), (1, 512), (1, 1024), (1, 2048)]
METRICS = ("ttft_ms", "tpot_ms", "throughput_out_tok_s")
CELLS = {
    **{"hardware": "l40s", "model": "llama-3.1-8b", "engine": "vllm", "engine_version": "0.33.0", "tp": "1"},
    **{"output_len": "128", "regime": "fixed_batch"},
}
SLOW = {"compute": 0.75, "memory": 0.85, "request_s": 3.0}  # factors on the shipped constants


def rows(factors: dict[str, float], sizes=tuple(SIZES), metrics=METRICS, **cells: str) -> list[Measurement]:
    """What a machine measures whose constants are the shipped ones times some factors."""
    return list(_rows(tuple(factors.items()), tuple(sizes), tuple(metrics), tuple(cells.items())))


@cache
def _rows(factors, sizes, metrics, cells) -> list[Measurement]:
    found = []
    for batch, prompt in sizes:
        setup = CELLS | {"batch": str(batch), "input_len": str(prompt)} | dict(cells)
        blank = [measurement_of(setup | {"metric": metric, "value": "1"}, metric) for metric in metrics]
        at = ask(blank[0].setup)
        shipped = at.deployment.engine
        values = {name: float(NAMED[name].of(shipped, DEVICE)) * factor for name, factor in factors}
        result = at.on(replace(at.deployment, engine=adjusted(shipped, DEVICE, values, TRUE))).answer()
        found += [replace(row, value=result.value(row.metric)) for row in blank]
    return found


@cache
def watched() -> tuple[Calibration, list[set[Setup]]]:
    """A machine as predicted, found from its rows; and the setups that each fit on the way to it has seen."""
    seen_by_fit = []
    plain = Problem.fit

    def fit(self: Problem, seen: np.ndarray) -> Fit:
        seen_by_fit.append({self.rows[index].setup for index in seen})
        return plain(self, seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Problem, "fit", fit)
        return calibrated(rows({}), DEVICE), seen_by_fit


@cache
def slow() -> Calibration:
    return calibrated(rows(SLOW), DEVICE)


@cache
def of_a_slow_host() -> Calibration:
    """From two lone prompts on a machine whose host takes four times as long per request."""
    return calibrated(rows({"request_s": 4.0}, LONE[:2], ["ttft_ms"]), DEVICE)


def value(found: Calibration, name: str) -> float:
    """Return a calibrated constant over the shipped one."""
    after, before = (NAMED[name].of(engine, found.hardware) for engine in (found.engine, found.shipped))
    return float(after) / float(before)


def worst(errors: np.ndarray) -> float:
    return float(np.abs(errors).max())


# ------------------------------------------------------------------------------------------------------- what it finds


@pytest.mark.slow
def test_a_slower_machine_is_found_and_its_other_setups_are_predicted():
    found = slow()
    whole = found.score()
    assert (whole.rows, whole.setups) == (18, 6)
    assert whole.before > 0.15
    assert whole.after < whole.held_back < whole.before / 4
    assert value(found, "compute") == pytest.approx(SLOW["compute"], rel=0.1)
    assert value(found, "memory") == pytest.approx(SLOW["memory"], rel=0.1)
    assert value(found, "request_s") == pytest.approx(SLOW["request_s"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [4.0, 25.0])  # of 5.3 ms; less is lost in a prefill of 20 ms
def test_four_lone_prompts_find_a_hosts_time_per_request(factor):
    found = calibrated(rows({"request_s": factor}, LONE, ["ttft_ms"]), DEVICE)
    way = math.log(value(found, "request_s")) / math.log(factor)
    assert 0.7 < way < 1.1  # the prior holds it back by 1 / its variance; other constants take some
    assert found.score().after < 0.03
    assert found.score().held_back < 0.1 < found.score().before
    assert found.moved[0].constant.name == "request_s"
    others = rows({"request_s": factor}, [(1, 300), (4, 700)], ["ttft_ms", "tpot_ms"])  # not seen
    for row in others:
        at = ask(row.setup)
        answer = at.on(replace(at.deployment, engine=found.engine)).answer()
        assert answer.value(row.metric) == pytest.approx(row.value, rel=0.06)


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{name: st.floats(0.75, 1.1) for name in ("compute", "memory", "cache")},
            **{name: st.floats(0.3, 4.0) for name in ("request_s", "launch", "prompt_launch_s")},
        },
    )
)
def test_whatever_differs_held_out_setups_are_predicted_no_worse_and_mostly_better(factors):
    sizes = [(1, 512), (1, 2048), (8, 512), (16, 1024)]
    found = calibrated(rows(factors, sizes, ["ttft_ms", "tpot_ms"]), DEVICE)
    if found.score().before <= GAIN:  # no median can fall by more, so that nothing is kept
        assert not found.helps
        return
    unseen = rows(factors, [(2, 700), (4, 1500), (32, 256)], ["ttft_ms", "tpot_ms"])
    errors = {}
    for name, engine in (("before", found.shipped), ("after", found.engine)):
        asked = [ask(row.setup) for row in unseen]
        answers = [at.on(replace(at.deployment, engine=engine)).answer() for at in asked]
        both = zip(unseen, answers, strict=True)
        errors[name] = np.array([math.log(row.value / answer.value(row.metric)) for row, answer in both])
    assert np.abs(errors["after"]).mean() <= max(0.02, 0.7 * np.abs(errors["before"]).mean())


def test_nothing_moves_where_all_is_as_predicted():
    found = watched()[0]
    assert worst(found.before) < 1e-9
    assert not found.fit.moved.any()
    assert found.moved == []
    assert not found.helps
    for constant in CONSTANTS:
        assert constant.of(found.engine, DEVICE) == constant.of(found.shipped, DEVICE)


@pytest.mark.slow
def test_decode_times_alone_leave_what_only_prompts_depend_on():
    found = calibrated(rows({"memory": 0.8}, SIZES[:3], metrics=["tpot_ms"]), DEVICE)
    moved = {each.constant.name for each in found.moved}
    assert "memory" in moved
    assert moved.isdisjoint({"request_s", "prompt_token_s", "prompt_launch_s", "attention", "quantized", "experts"})
    untouched = found.engine.overheads_on(DEVICE).request_s
    assert untouched.source == found.shipped.overheads.request_s.source


@pytest.mark.slow
def test_more_rows_make_it_surer():
    ranges = []
    for count in (1, 2, 3):
        found = calibrated(rows({"request_s": 3.0}, LONE[:count], ["ttft_ms"]), DEVICE)
        (moved,) = (each for each in found.moved if each.constant.name == "request_s")
        assert moved.low < moved.calibrated < moved.high
        ranges.append(moved.high / moved.low)
    assert ranges == sorted(ranges, reverse=True)


@pytest.mark.slow
def test_one_wild_row_moves_little():
    calm = slow()
    rows_of_it = [replace(calm.problem.rows[0], value=calm.problem.rows[0].value * 30), *calm.problem.rows[1:]]
    wild = replace(calm.problem, rows=rows_of_it)
    shares = [each.values(each.fit(np.arange(18)).moved)["compute"] for each in (calm.problem, wild)]
    assert shares[1] == pytest.approx(shares[0], rel=0.25)
    assert shares[1] != shares[0]


@pytest.mark.parametrize("off", [0.5, OUTLIER, 6.0, -60.0])
def test_a_step_weighs_a_row_by_huber(off):
    """One row, off by some NOISE, of slope s per NOISE: w = min(1, OUTLIER / off) moves by w s off / (1 + w s^2)."""
    problem, count = watched()[0].problem, len(watched()[0].problem.constants)
    row, still = np.array([0]), np.zeros(count)
    exact = replace(problem.rows[0], value=math.exp(problem.log_predictions(still, row)[0] + off * NOISE))
    slope = np.zeros((1, count))
    slope[0, [constant.name for constant in problem.constants].index("request_s")] = pull = 0.05
    found = replace(problem, rows=[exact, *problem.rows[1:]])._step(still, slope, row, np.ones(1))
    weight, pull = min(1.0, OUTLIER / abs(off)), pull / NOISE
    assert found.sum() == pytest.approx(weight * pull * off / (1 + weight * pull**2), rel=1e-9)
    assert np.count_nonzero(found) == 1


@pytest.mark.slow
def test_tails_are_scored_and_not_fitted():
    plain = of_a_slow_host().problem.rows
    found = calibrated([*plain, *(replace(row, stat="p99", value=3 * row.value) for row in plain)], DEVICE)
    assert found.score().rows == 2 * len(plain)
    np.testing.assert_allclose(found.fit.moved, of_a_slow_host().fit.moved, atol=1e-9)
    assert found.fit.moved.any()


def test_held_back_rows_are_not_seen():
    """A fit gets no row of a setup that it is judged by."""
    *folds, whole = watched()[1]
    assert len(folds) == FOLDS
    assert len(whole) == len(SIZES)
    held = [whole - fold for fold in folds]
    assert set().union(*held) == whole
    assert sum(map(len, held)) == len(whole)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3))
def test_a_rule_belongs_to_one_device_and_the_last_one_counts(values):
    shipped, other = load_engine("vllm-0.33"), load_hardware("h100-sxm")
    wanted = dict(zip(("compute", "launch", "request_s"), values, strict=True))
    once = adjusted(shipped, DEVICE, wanted, TRUE)
    assert once.kernels_on(other) == shipped.kernels_on(other)
    assert once.overheads_on(other) == shipped.overheads
    assert {name: float(NAMED[name].of(once, DEVICE)) for name in wanted} == wanted
    twice = adjusted(adjusted(shipped, DEVICE, dict.fromkeys(wanted, 1.0), TRUE), DEVICE, wanted, TRUE)
    assert twice.kernels == once.kernels


# ------------------------------------------------------------------------------------------------------ how sure it is


def width(of: Interval) -> float:
    return math.log(of.high / of.low)


def test_one_row_narrows_its_interval_and_not_below_what_people_differ_by():
    (row,) = rows({"request_s": 3.0}, [(1, 512)], ["ttft_ms"])
    found = calibrated([row], DEVICE)
    at = ask(row.setup).deployment
    own = Engine.from_mapping(preset(found, find(KIND, found.shipped.id)), "preset")
    shipped, calibrated_at = (interval(replace(at, engine=each), "ttft_ms", "single") for each in (at.engine, own))
    assert 2 * NOISE < width(calibrated_at) < width(shipped)
    assert calibrated_at.basis == "measured" != shipped.basis
    tpot = [interval(replace(at, engine=each), "tpot_ms", "single") for each in (at.engine, own)]
    assert tpot[1] == tpot[0]  # nothing was measured of it
    assert np.isnan(found.score().held_back)


@pytest.mark.slow
def test_rows_that_agree_narrow_the_interval_and_rows_at_odds_widen_it():
    agreeing = rows({}, LONE[:2], ["ttft_ms"])
    odd = [replace(row, value=row.value * factor) for row, factor in zip(agreeing, (3, 0.5), strict=True)]
    at = ask(agreeing[0].setup).deployment
    widths = []
    for each in (agreeing, odd):
        own = Engine.from_mapping(preset(calibrated(each, DEVICE), find(KIND, "vllm-0.33")), "preset")
        widths.append(width(interval(replace(at, engine=own), "ttft_ms", "single")))
    assert widths[0] < width(interval(at, "ttft_ms", "single")) < widths[1]


# --------------------------------------------------------------------------------------------------- which preset it is


def test_rows_of_another_version_calibrate_the_preset_that_questions_use_unless_one_is_named():
    measured = rows({"request_s": 3.0}, LONE[:1], ["ttft_ms"], engine_version="0.19.1")
    usual = calibrated(measured, DEVICE)
    assert usual.shipped.id == load_engine("vllm").id
    assert usual.other_versions == ("vllm-0.19",)
    named = calibrated(measured, DEVICE, "vllm-0.19")
    assert (named.shipped.id, named.other_versions) == ("vllm-0.19", ())


def test_rows_calibrate_the_preset_of_their_version_and_the_usual_one_by_its_own_where_it_has_some():
    older = rows({}, LONE[:2], ["ttft_ms"], engine_version="0.19.1")
    newer = rows({}, LONE[:1], ["ttft_ms"])
    lost = [replace(row, setup=replace(row.setup, model="nobody-7b")) for row in newer]
    assert rows_by_preset(older, DEVICE) == {"vllm-0.19": older, "vllm-0.33": older}
    assert rows_by_preset([*newer, *older, *lost], DEVICE) == {"vllm-0.19": [*older, *lost], "vllm-0.33": newer}
    assert rows_by_preset(older, DEVICE, "vllm-0.14") == {"vllm-0.14": older}
    assert rows_by_preset(lost, DEVICE) == {"vllm-0.33": lost}


def test_what_older_rows_move_predicts_other_rows_of_their_version(tmp_path):
    """`calibrate` wrote the newest preset alone, which `validate` of rows of another version never reads."""
    own, mine, other = tmp_path / "own", tmp_path / "mine.csv", tmp_path / "other.csv"
    columns = "hardware,model,engine,engine_version,tp,input_len,output_len,batch,metric,value"
    mine.write_text(f"{columns}\nl40s,llama-3.1-8b,vllm,0.19.1,1,512,64,1,ttft_ms,95\n")
    other.write_text(f"{columns}\nl40s,llama-3.1-8b,vllm,0.19.1,1,600,64,1,ttft_ms,100\n")
    text = printed("calibrate", "--measured", str(mine), "--out", str(own))
    assert sorted(path.stem for path in (own / "engines").iterdir()) == ["vllm-0.19", "vllm-0.33"]
    assert "--engine vllm-0.19" in text
    assert "for questions without --engine" in " ".join(text.split())
    before, after = (
        json.loads(printed("validate", str(other), "--jobs", "1", "--format", "json", *more))["measurements"][0]
        for more in ([], ["--profiles", str(own)])
    )
    assert abs(after["predicted"] - 100) < 0.3 * abs(before["predicted"] - 100)


def test_other_models_have_the_share_of_what_moved_that_models_have_in_common(tmp_path):
    found = slow()
    read = Engine.from_yaml(write_preset(found, tmp_path))
    assert read.calibrated_for("llama-3.1-8b").kernels_on(DEVICE).of_engine.residuals
    measured, other = (read.calibrated_for(model) for model in ("llama-3.1-8b", "qwen3-8b"))
    assert not other.kernels_on(DEVICE).of_engine.residuals
    assert found.moved
    for each in found.moved:
        floor = each.constant.floor
        values = [float(each.constant.of(engine, DEVICE)) + floor for engine in (measured, other)]
        whole, part = (math.log(value / (each.shipped + floor)) for value in values)
        assert part == pytest.approx(shared(1) * whole, rel=0.05, abs=1e-3)
    at = replace(ask(found.measurements[0].setup).deployment, engine=read)
    assert at.kernels.of_engine.residuals
    assert not replace(at, model=load_model("qwen3-8b")).kernels.of_engine.residuals


def test_rows_ten_times_slower_than_predicted_are_said_to_have_another_unit(tmp_path):
    columns = "hardware,model,engine,engine_version,tp,input_len,output_len,batch,metric,value"
    for value, is_told in (("6000", True), ("60", False)):
        mine = tmp_path / f"{value}.csv"
        mine.write_text(f"{columns}\nl40s,llama-3.1-8b,vllm,0.33.0,1,512,64,1,ttft_ms,{value}\n")
        text = " ".join(printed("calibrate", "--measured", str(mine), "--out", str(tmp_path / value)).split())
        assert ("times slower than predicted" in text) is is_told


def test_rows_that_name_no_engine_are_of_the_usual_one():
    measured = rows({}, LONE[:1], ["ttft_ms"])
    assert calibrated(measured, DEVICE).shipped.id == load_engine("vllm").id
    nameless = [replace(row, setup=replace(row.setup, engine="")) for row in measured]
    assert calibrated(nameless, DEVICE).shipped.id == load_engine("vllm").id


# --------------------------------------------------------------------------------------------------- what it refuses


def test_no_row_that_can_be_predicted_is_refused_with_the_reason():
    with pytest.raises(NotModelledError, match=r"no row of vllm-0\.33 on h100-sxm: l40s: it is not h100-sxm"):
        calibrated(rows(SLOW), load_hardware("h100-sxm"))


def test_rows_of_another_device_engine_or_model_are_named():
    odd = [
        replace(row, setup=replace(row.setup, **change))
        for change in ({"hardware": "h100-sxm"}, {"engine": "sglang"}, {"model": "nobody-7b"})
        for row in rows({}, SIZES[:1])
    ]
    fine = rows(SLOW, SIZES[:1])
    found = calibrated([*fine, *odd], DEVICE, "vllm")
    assert len(found.measurements) == len(fine)
    assert [number for reason, number in found.problem.left_out.items()] == [3, 3, 3]
    assert [word in " ".join(found.problem.left_out) for word in ("h100-sxm", "sglang-", "nobody-7b")] == [True] * 3
    with pytest.raises(NotModelledError, match="one preset is calibrated at a time"):
        calibrated([*fine, *odd], DEVICE)


# ------------------------------------------------------------------------------------------------------- what it writes


def test_a_preset_whose_rules_hold_several_figures_is_written(tmp_path):
    """llama.cpp's tiles on an A100, at least and at most: they stopped `calibrate --measured` with a traceback."""
    a100 = load_hardware("a100-sxm-80")
    cells = CELLS | {"hardware": "a100-sxm-80", "engine": "llama.cpp", "engine_version": "b6400", "batch": "1"}
    measured = measurement_of(cells | {"input_len": "512", "metric": "ttft_ms", "value": "90"}, "mine")
    found = calibrated([measured], a100)
    read = Engine.from_yaml(write_preset(found, tmp_path))
    tiles = read.kernels_on(a100).rules.expert_tiles
    assert [*map(float, tiles)] == [8, 128]
    assert tiles == found.shipped.kernels_on(a100).rules.expert_tiles


@pytest.mark.slow
def test_the_preset_is_the_shipped_one_but_for_what_was_measured():
    found = slow()
    read = Engine.from_mapping(preset(found, find(KIND, found.shipped.id)), "preset")
    rule, ours = (each.kernels_on(DEVICE).of_engine for each in (read, found.shipped))
    for moved in found.moved:
        written = moved.constant.of(read, DEVICE)
        assert written == pytest.approx(moved.calibrated, rel=1e-3)
        assert written.source.evidence == "measured"
        assert "18 rows of 6 setups" in written.source.text
    still = {constant.name for constant in CONSTANTS} - {moved.constant.name for moved in found.moved}
    assert still
    for name in still:
        assert NAMED[name].of(read, DEVICE) == NAMED[name].of(found.shipped, DEVICE)
    assert (rule.rules, rule.fitted_on) == (ours.rules, ours.fitted_on)
    kinds = {f"{metric} {regime}" for metric in METRICS for regime in ("single", "fixed_batch")}
    assert {kind: len(values) for kind, values in rule.residuals.items()} == {
        kind: 2 if "single" in kind else 4 for kind in kinds
    }
    assert (read.policy, read.memory, read.overheads) == (
        found.shipped.policy, found.shipped.memory, found.shipped.overheads,
    )  # fmt: skip
    assert read.kernels_on(load_hardware("h100-sxm")) == found.shipped.kernels_on(load_hardware("h100-sxm"))
    assert uncalibrated(read, DEVICE).kernels_on(DEVICE).of_engine == ours


def table(path: Path, measured: list[Measurement]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*CELLS, "batch", "input_len", "metric", "value"])
        writer.writeheader()
        for row in measured:
            setup = row.setup
            cells = CELLS | {"batch": setup.batch, "input_len": f"{setup.input_tokens:g}", "hardware": setup.hardware}
            writer.writerow(cells | {"metric": row.metric, "value": f"{row.value:.8g}"})
    return path


def run(*arguments: str):
    return CliRunner().invoke(build(arguments), arguments, catch_exceptions=False)


ESTIMATE = ("estimate", "--model", "llama-3.1-8b", "--hardware", "l40s", "--format", "json")


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """A new folder of profiles, named as a user does once for all commands."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("INFERCAST_PROFILES", str(folder))
    return folder


def test_the_same_question_is_answered_with_the_calibrated_preset(tmp_path, own):
    before = json.loads(run(*ESTIMATE).stdout)["estimates"][0]
    measured = rows({"request_s": 4.0}, LONE, ["ttft_ms"])
    text = run("calibrate", "--measured", str(table(tmp_path / "mine.csv", measured))).stdout
    assert text.startswith("vllm-0.33 on l40s: calibrated. The shipped preset was ")
    assert all(len(line) <= 80 for line in text.partition("\nWrote")[0].splitlines())
    assert "infercast estimate --model llama-3.1-8b --hardware l40s --input-len" in text
    assert [path.name for path in (own / "engines").iterdir()] == ["vllm-0.33.yaml"]
    whole = json.loads(run(*ESTIMATE).stdout)
    (used,) = (row for row in whole["rests_on"] if row["figure"] == "overheads.request_s")
    assert used["evidence"] == "measured"
    after = whole["estimates"][0]
    (true,) = (row.value for row in measured if row.setup.input_tokens == 1024)
    assert after["ttft_s"] == pytest.approx(true / 1e3, rel=0.03)
    assert after["interval_basis"] == "measured" != before["interval_basis"]
    wide, narrow = (each["ttft_s_high"] / each["ttft_s_low"] for each in (before, after))
    assert narrow < 0.9 * wide


def test_the_command_that_is_printed_runs(tmp_path):
    """It states the parallelism and the load, and the folder, which nothing but the command names."""
    mine, own = tmp_path / "mine.csv", tmp_path / "own"
    columns = "hardware,model,engine,engine_version,tp,input_len,output_len,batch,metric,value"
    mine.write_text(f"{columns}\nh100-sxm,llama-3.3-70b,vllm,0.33.0,4,512,128,8,tpot_ms,14\n")
    text = printed("calibrate", "--measured", str(mine), "--out", str(own))
    program, *words = shlex.split(text.partition("It is used by:\n")[2].partition("\nErrors are")[0])
    assert program == "infercast"
    assert {"--tp", "--profiles", str(own)} <= set(words)
    (row,) = json.loads(printed(*words, "--format", "json"))["estimates"]
    assert row["interval_basis"] == "measured"


@pytest.mark.slow
def test_calibrating_again_starts_from_the_shipped_preset_and_keeps_other_devices(tmp_path, own):
    once = of_a_slow_host()
    mine = table(tmp_path / "mine.csv", once.problem.rows)
    other = [replace(row, setup=replace(row.setup, hardware="h100-sxm")) for row in rows({}, LONE[:2], ["ttft_ms"])]
    run("calibrate", "--measured", str(mine))
    first = (own / "engines" / "vllm-0.33.yaml").read_text()
    run("calibrate", "--measured", str(mine))
    assert (own / "engines" / "vllm-0.33.yaml").read_text() == first
    run("calibrate", "--measured", str(table(tmp_path / "other.csv", other)))
    both = Engine.from_yaml(own / "engines" / "vllm-0.33.yaml")
    assert both.overheads_on(DEVICE).request_s == pytest.approx(once.engine.overheads_on(DEVICE).request_s, rel=1e-3)
    h100 = load_hardware("h100-sxm")
    assert both.kernels_on(h100).of_engine.residuals
    assert both.kernels_on(h100).rules == load_engine("vllm").kernels_on(h100).rules
    assert both.overheads_on(h100).request_s != both.overheads_on(DEVICE).request_s


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_one_result_file_is_a_first_correction_and_several_files_count_together(tmp_path):
    files = []
    for index, size in enumerate(LONE[:2]):
        files += ["--measured", str(table(tmp_path / f"{index}.csv", rows({"request_s": 3.0}, [size], ["ttft_ms"])))]
    one = run("calibrate", *files[:2], "--format", "json")
    (score,) = (row for row in json.loads(one.stdout)["calibration"] if row["metric"] == "all")
    assert (score["setups"], score["held_back"]) == (1, None)
    assert score["after"] < 0.2 * score["before"]
    assert "a first correction" in run("calibrate", *files[:2]).stdout
    both = json.loads(run("calibrate", *files, "--format", "json").stdout)
    assert [row["setups"] for row in both["calibration"]] == [2, 2]
    assert both["calibration"][-1]["held_back"] < both["calibration"][-1]["before"]


@pytest.mark.usefixtures("own")
def test_rows_faster_than_light_are_left_out_and_said(tmp_path):
    good, bad = rows({"memory": 0.8}, SIZES[2:3], ["tpot_ms"]), rows({}, SIZES[:1], ["tpot_ms"])
    in_seconds = [replace(row, value=row.value / 1e3) for row in bad]
    found = calibrated([*in_seconds, *good], DEVICE)
    assert found.measurements == tuple(good)
    text = " ".join(
        run("calibrate", "--measured", str(table(tmp_path / "mine.csv", [*in_seconds, *good]))).stdout.split()
    )
    assert "Left out, 1 row: tpot_ms 0.0" in text
    assert "beats the device's speed of light, 17.5. Is it in seconds? Give what the metric's name says. Else" in text
    assert ".." not in text
    with pytest.raises(InfercastError, match=r"1 measurement: tpot_ms 0\.\d+ beats .* Is it in seconds\?"):
        calibrated(in_seconds, DEVICE)


def test_a_reason_to_leave_rows_out_ends_in_one_full_stop(tmp_path):
    fine, other = rows({}, SIZES[:1], ["tpot_ms"]), rows({}, SIZES[:1], ["tpot_ms"], hardware="h100-sxm")
    asked = ("calibrate", "--measured", str(table(tmp_path / "mine.csv", [*fine, *other])), "--hardware", "l40s")
    text = " ".join(run(*asked, "--out", str(tmp_path / "own")).stdout.split())
    assert "Left out, 1 row: h100-sxm: it is not l40s. Calibrate it on its own. " in text


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_rows_that_are_too_fast_move_no_share_past_the_peak(tmp_path, monkeypatch):
    monkeypatch.setattr(user_calibration, "beating_light", lambda _found: [])
    fast = [replace(row, value=row.value * (3 if "tok_s" in row.metric else 1 / 3)) for row in rows({}, SIZES[3:5])]
    shipped = load_engine("vllm-0.33").kernels_on(DEVICE).fitted
    run("calibrate", "--measured", str(table(tmp_path / "mine.csv", fast)))
    found, gemm = load_engine("vllm-0.33").kernels_on(DEVICE).fitted, DEVICE.achievable.gemm["bf16"]
    assert (found.compute, found.memory) > (shipped.compute, shipped.memory)
    assert found.compute * gemm.compute_fraction == pytest.approx(1.0, abs=1e-3)  # as far as it may
    assert found.memory * gemm.memory_fraction <= 1 + 1e-9


@pytest.mark.slow
def test_rows_that_agree_move_nothing_and_count_for_the_interval(tmp_path, own):
    text = run("calibrate", "--measured", str(table(tmp_path / "mine.csv", rows({})))).stdout
    assert "nothing moved" in text
    assert "What moved" not in text
    read = Engine.from_yaml(own / "engines" / "vllm-0.33.yaml").kernels_on(DEVICE)
    assert read.of_engine.residuals
    assert read.fitted == load_engine("vllm-0.33").kernels_on(DEVICE).fitted


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


def test_a_preset_whose_rows_cannot_be_fitted_is_named(monkeypatch):
    def fitted(_rows, _hardware, name, _progress):
        if name == "vllm-0.19":
            raise NotModelledError("its rows", "none can be predicted", "State more")
        return name

    monkeypatch.setattr(calibrate_measured, "rows_by_preset", lambda *_: {"vllm-0.33": [1, 2], "vllm-0.19": [3]})
    monkeypatch.setattr(calibrate_measured, "calibrated", fitted)
    found, left = calibrate_measured._calibrated([], DEVICE, "")
    assert found == ["vllm-0.33"]
    assert left == ["Not calibrated, vllm-0.19 (1 row): its rows: none can be predicted. State more."]
