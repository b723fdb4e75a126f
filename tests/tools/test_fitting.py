"""The fit: it finds what made the numbers, and what is left out does not move it."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from simulator.engines.fitted_multipliers import FittedMultipliers
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import ask
from tools.curves import (
    GRID,
    NEUTRAL,
    TIMES,
    Block,
    Curves,
    Job,
    adjusted,
    ask_all,
    block_of,
    blocks,
    predicted,
)
from tools.fit_efficiency import HELD, with_kernels, written
from tools.fitting import OTHER_START, Fit, Fits, Search, effective, idle_parameters, starts, with_parents
from tools.score import left_out

PARAMETERS = ("compute", "memory", "step_s")


def setup(source: str, model: str, batch: int, prompt: int) -> Setup:
    return Setup(
        **{"source": source, "date": "2026-01", "hardware": "H100 SXM 80GB", "tp": 1, "pp": 1, "model": model},
        **{"weight_dtype": "bf16", "engine": "sglang", "engine_version": "0.5.6", "regime": "fixed_batch"},
        **{"batch": batch, "input_tokens": prompt, "output_tokens": 128},
    )


def made(factors: dict[str, float], source: str = "a") -> list[Measurement]:
    """Rows that the profiles would predict with other values: the measurements of a made-up engine."""
    setups = [
        setup(source, model, b, p)
        for model, sizes in (("Llama-3.1-8B", ((1, 128), (64, 512))), ("Qwen3-8B", ((8, 2048),)))
        for b, p in sizes
    ]
    rows = [
        Measurement(f"{source}{index}{metric}", each, metric, "mean", 1.0, "A")
        for index, each in enumerate(setups)
        for metric in ("ttft_ms", "tpot_ms")
    ]
    logs = predicted(rows, ask_all(rows), factors)
    return [replace(row, value=math.exp(log)) for row, log in zip(rows, logs, strict=True)]


def fit_of(rows: list[Measurement], parameters: tuple[str, ...] = PARAMETERS) -> Fits:
    block = Block("made", ("sglang-0.5",), (), parameters)
    asked = ask_all(rows)
    values = prior = {name: NEUTRAL.get(name, 1.0) for name in parameters}
    for _ in range(3):
        fit = Fit(block, Job(rows, asked, values).measured())
        values = fit.fitted(prior, {})
    return Fits({"made": block}, {"made": fit}, {"made": values})


@cache
def fit_of_slow_gemms() -> Fits:
    return fit_of(made({"compute": 0.6}))


@pytest.fixture
def _without_prior(monkeypatch):
    monkeypatch.setattr("tools.fitting.PULL", 0.0)


@pytest.mark.usefixtures("_without_prior")
def test_a_fit_finds_the_values_that_made_the_measurements():
    truth = {"compute": 0.6, "memory": 0.8, "step_s": 4e-3}
    fits = fit_of(made(truth))
    assert np.abs(fits.errors("made", fits.solved)).max() < 0.05  # memory and host time can stand for
    assert fits.solved["made"]["compute"] == pytest.approx(truth["compute"], rel=0.1)  # one another, compute cannot


@pytest.mark.usefixtures("_without_prior")
@pytest.mark.parametrize("error_of_far", [0.1, 0.5])
def test_of_two_minima_a_block_keeps_the_lower_one(monkeypatch, error_of_far):
    near, far = math.log(NEUTRAL["step_s"]), math.log(NEUTRAL["step_s"] * OTHER_START)
    rows = made({"compute": 0.6})

    def error(at: float) -> float:
        return min(0.3 + abs(at - near), error_of_far + abs(at - far))

    def measured(job: Job) -> Curves:
        at = math.log(job.at["step_s"])
        moved = [[error(at + step) - error(at)] * len(rows) for step in GRID]
        return Curves(rows, job.asked, job.at, np.full(len(rows), error(at)), {"step_s": np.array(moved)})

    monkeypatch.setattr(
        "tools.fitting.measure_all", lambda jobs, _: {name: measured(job) for name, job in jobs.items()}
    )
    block = Block("made", ("sglang-0.5",), (), ("step_s",))
    search = Search({"made": block}, {"made": rows}, ask_all(rows), lambda _: None)
    _, solved = search.from_far_starts(*search.settled({}, {"made": {"step_s": NEUTRAL["step_s"]}}))
    lower = far if error_of_far < 0.3 else near
    assert solved["made"]["step_s"] == pytest.approx(math.exp(lower), rel=0.1)


@pytest.mark.usefixtures("_without_prior")
def test_a_group_that_is_left_out_does_not_move_the_fit():
    truth = {"compute": 0.6, "memory": 0.8, "step_s": 4e-3}
    fits = fit_of([*made(truth), *made({**truth, "step_s": 40e-3}, source="b")])
    without = fits.without(lambda row: row.setup.source != "b")
    of_others = [row.setup.source != "b" for row in fits.fits["made"].curves.rows]
    assert np.abs(fits.errors("made", without))[of_others].max() < 0.07
    assert fits.without(lambda row: row.setup.source != "a")["made"]["step_s"] > 2 * without["made"]["step_s"]
    assert fits.without(lambda row: row.setup.source != "nobody") == fits.solved
    found = list(left_out(fits, "source"))
    assert [each.row for each in found] == [*made(truth), *made({**truth, "step_s": 40e-3}, source="b")]
    assert (
        np.mean([each.error for each in found if each.row.setup.source == "a" and each.row.metric == "tpot_ms"]) > 0.3
    )


def test_a_constant_that_made_the_rows_earns_its_place_and_one_that_did_not_is_idle():
    fits = fit_of([*made({"compute": 0.6}), *made({"compute": 0.6}, source="b")], ("compute", "link"))
    assert idle_parameters(fits, "made") == ["link"]  # one device has none


def test_a_block_does_not_depend_on_what_the_profiles_hold_of_its_values():
    """Every one is set before a curve is measured, and a fit starts from its priors."""
    every, rows = blocks(), made({"compute": 0.6})
    at, asked = effective(every["sglang"], every, starts(every)), ask_all(rows)
    others = {name: adjusted(each, {"compute": 0.3, "launch": 5.0, "step_s": 0.01}) for name, each in asked.items()}
    assert at.keys() > {"compute", "launch", "step_s"}
    assert predicted(rows, others, at) == pytest.approx(predicted(rows, asked, at))


def test_curves_hold_at_their_points_and_a_block_is_fitted_with_all_above_it():
    rows = made({"compute": 0.6})
    curves = Job(rows, ask_all(rows), {"compute": 1.0}).measured()
    assert curves.hold_at({"compute": math.exp(GRID[-1]) - 1e-9})
    assert not curves.hold_at({"compute": math.exp(-0.4)})
    assert with_parents(["llama.cpp on Hopper"], blocks()) == [
        *("llama.cpp", "llama.cpp on NVIDIA", "llama.cpp on Ampere", "llama.cpp on Hopper")
    ]
    assert with_parents([""], blocks()) == list(blocks())


def test_rows_that_nothing_explains_are_kept_from_a_fit():
    rows = made({"compute": 0.6})
    curves = Job(rows, ask_all(rows), {"compute": 1.0}).measured()
    for kind in ({"source": "cloudrift-deplodock", "replicas": 8}, {"source": "holtmann-consumer-blackwell", "tp": 2}):
        theirs = [replace(row, setup=replace(row.setup, **kind)) for row in rows]
        assert not Fit(Block("made", ("sglang-0.5",), (), ("compute",)), replace(curves, rows=theirs)).seen
    alone = [replace(row, setup=replace(row.setup, source="cloudrift-deplodock")) for row in rows]
    assert Fit(Block("made", ("sglang-0.5",), (), ("compute",)), replace(curves, rows=alone)).seen


def test_every_block_names_presets_and_parameters_that_exist_and_parents_stand_first():
    seen: set[str] = set()
    for block in blocks().values():
        assert not block.parent or block.parent in seen
        seen.add(block.name)
        assert block.engines
    asked = ask(setup("a", "Llama-3.1-8B", 1, 128))
    assert block_of(blocks().values(), asked.deployment) == blocks()["sglang"]


def test_a_child_has_its_parents_values_where_it_fits_none():
    parent = Block("p", ("a",), (), ("compute", "memory"))
    child = Block("c", ("a",), ("ada",), ("compute",), "p")
    solved = {"p": {"compute": 0.5, "memory": 0.9}, "c": {"compute": 0.7}}
    assert effective(child, {"p": parent, "c": child}, solved) == {"compute": 0.7, "memory": 0.9}


def test_a_child_has_no_value_of_what_its_engine_lacks():
    parent = Block("p", ("a",), (), ("compute",), prior={"experts_launch_s": 5e-4})
    child = Block("c", ("b",), (), ("compute",), "p", lacks=("experts_launch_s",))
    grandchild = Block("g", ("b",), ("ada",), (), "c")
    every = {"p": parent, "c": child, "g": grandchild}
    assert starts(every)["p"] == {"compute": 1.0, "experts_launch_s": 5e-4}
    assert [effective(every[name], every, starts(every)) for name in "cg"] == [{"compute": 1.0}] * 2
    assert "experts_launch_s" not in effective(blocks()["sglang"], blocks(), starts(blocks()))


def test_a_prior_that_is_not_fitted_is_held_against_the_parents_value():
    rows = made({"compute": 0.6})
    curves = Job(rows, ask_all(rows), {"compute": 1.0, "memory": 1.0}).measured()
    parent = Block("p", ("sglang-0.5",), (), ("compute",))
    child = Block("c", ("sglang-0.5",), ("hopper",), (), "p", prior={"compute": 0.9})
    every = {"p": parent, "c": child}
    solved = Fits(every, {"p": Fit(parent, curves), "c": Fit(child, curves)}, {}).without(lambda _: False)
    assert solved["c"] == {"compute": 0.9} != solved["p"]
    assert effective(child, every, solved)["compute"] == 0.9


def test_a_child_that_sees_nothing_has_its_prior_and_no_tail_and_no_rented_pair_is_fitted():
    rows = made({"compute": 0.6})
    curves = Job(rows, ask_all(rows), {"compute": 1.0}).measured()
    fit = Fit(Block("made", ("sglang-0.5",), (), ("compute",)), curves)
    assert fit.fitted({"compute": 0.7}, {}, lambda _: False) == {"compute": 0.7}
    tails = replace(curves, rows=[replace(row, stat="p99") for row in rows])
    assert Fit(fit.block, tails).fitted({"compute": 0.7}, {}) == {"compute": 0.7}
    pair = {"source": "holtmann-consumer-blackwell", "tp": 2}
    for asked, left in (({**pair, "tp": 1}, len(rows)), (pair, 0)):
        rented = replace(curves, rows=[replace(row, setup=replace(row.setup, **asked)) for row in rows])
        assert len(Fit(fit.block, rented).seen) == left


def test_a_rule_that_a_fit_adds_goes_on_from_the_one_that_held(tmp_path, monkeypatch):
    fits, preset = fit_of_slow_gemms(), tmp_path / "simulator" / "engines" / "made.yaml"
    fit = replace(fits.fits["made"], block=Block("made", ("made",), ("hopper",), ("compute",), presets=("made",)))
    fits = Fits({"made": fit.block}, {"made": fit}, {"made": {"compute": 0.6}})
    preset.parent.mkdir(parents=True)
    shipped_rules = (
        "  - families: [ada]\n    rules:\n      weight_only: [fp4]\n"
        "  - rules:\n      staged: true\n    fitted:\n      cache: {value: 0.9, guess: none}\n"
    )
    preset.write_text(f"sources:\n  old: {{}}\nkernels:\n{shipped_rules}")
    monkeypatch.setattr("tools.fit_efficiency.ROOT", tmp_path)
    written(fits)
    fitted = {**yaml.safe_load(shipped_rules)[-1]["fitted"], "compute": {"value": 0.6, "source": "fit-made"}}
    added, *others = yaml.safe_load(preset.read_text())["kernels"]
    assert others == yaml.safe_load(shipped_rules)
    assert added == {"families": ["hopper"], "fitted_on": ["hopper"], **others[-1], "fitted": fitted}
    once = preset.read_text()
    written(fits)
    assert preset.read_text() == once


@pytest.mark.parametrize("preset", sorted(Path("simulator/engines").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_kernels_of_a_preset_are_written_as_they_stand_to_the_byte(preset):
    text = preset.read_text()
    if rules := yaml.safe_load(text).get("kernels"):
        assert with_kernels(text, rules) == text


def test_a_comment_stays_with_its_figure_and_its_families():
    text = """engine: made
kernels:
  # NVIDIA's
  - families: [hopper] # not Ada
    rules:
      cache: fp8 # a rule
    fitted:
      # two lines
      # on it
      compute: {value: 0.5, guess: "no. #1"} # half
      cache: {value: 0.9, guess: "none"}
  - fitted:
      compute: {value: 0.7, guess: "none"}
  # the end
"""
    hopper, general = yaml.safe_load(text)["kernels"]
    assert with_kernels(text, [hopper, general]) == text
    hopper["fitted"] = {"cache": hopper["fitted"]["cache"], "compute": {"value": 0.6, "source": "fit-made"}}
    ada = {"families": ["ada"], "fitted": {"compute": {"value": 0.8, "guess": "none"}}}
    written_again = with_kernels(text, [ada, hopper, general])
    assert yaml.safe_load(written_again)["kernels"] == [ada, hopper, general]
    assert written_again.count("#") == text.count("#") - 1  # the one within a guess
    two_lines = "      # two lines\n      # on it\n      compute: {value: 0.6, source: fit-made} # half\n"
    assert two_lines in written_again
    assert "  # NVIDIA's\n  - families: [hopper] # not Ada\n" in written_again


def test_no_rule_is_fitted():
    for block in blocks().values():
        assert {*block.parameters, *block.prior} <= FittedMultipliers.model_fields.keys() | TIMES


@pytest.mark.parametrize(
    ("own", "step"),
    [
        ({"memory": 0.8}, {"value": "4 ms", "source": "fit-older"}),
        ({"memory": 0.8, "step_s": 0.002}, {"value": "2 ms", "source": "fit-newer"}),
    ],
)
def test_a_figure_that_a_parent_found_keeps_the_parents_sample(own, step, tmp_path, monkeypatch):
    curves = fit_of_slow_gemms().fits["made"].curves
    preset = tmp_path / "simulator" / "engines" / "made.yaml"
    every = {
        "older": Block("older", ("made",), (), ("compute", "step_s")),
        "newer": Block("newer", ("made",), (), tuple(own), parent="older", presets=("made",)),
    }
    solved = {"older": {"compute": 0.6, "step_s": 0.004}, "newer": own}
    preset.parent.mkdir(parents=True)
    preset.write_text('engine: made\nsources:\n  old: {}\noverheads:\n  step_s: {value: 1 us, guess: "none"}\n')
    monkeypatch.setattr("tools.fit_efficiency.ROOT", tmp_path)
    written(Fits(every, {name: Fit(block, curves) for name, block in every.items()}, solved))
    found = yaml.safe_load(preset.read_text())
    assert found["overheads"] == {"step_s": step}
    (rule,) = found["kernels"]
    assert (rule["fitted"]["compute"]["source"], rule["fitted"]["memory"]["source"]) == ("fit-older", "fit-newer")
    assert set(found["sources"]) == {"fit-older", "fit-newer", "old"}


def test_a_held_figure_follows_its_prior_and_a_guess_made_by_hand_stays(tmp_path, monkeypatch):
    curves, preset = fit_of_slow_gemms().fits["made"].curves, tmp_path / "simulator" / "engines" / "made.yaml"
    preset.parent.mkdir(parents=True)
    preset.write_text("engine: made\nkernels:\n  - fitted:\n      cache: {value: 0.9, guess: none}\n")
    monkeypatch.setattr("tools.fit_efficiency.ROOT", tmp_path)
    for prior in (0.7, 0.8):
        block = Block("made", ("made",), (), (), presets=("made",), prior={"memory": prior, "cache": prior})
        written(Fits({"made": block}, {"made": Fit(block, curves)}, {"made": dict(block.prior)}))
        (rule,) = yaml.safe_load(preset.read_text())["kernels"]
        assert rule["fitted"] == {
            "cache": {"value": 0.9, "guess": "none"},
            "memory": {"value": prior, "guess": HELD},
        }


def test_a_curve_is_exact_on_its_grid_and_goes_on_as_at_its_end():
    curve = Curves([], {}, {"compute": 2.0}, np.zeros(1), {"compute": np.array([[step**2] for step in GRID])})
    for step in GRID:
        assert curve.errors({"compute": 2.0 * math.exp(step)})[0] == pytest.approx(step**2)
    ends = [curve.errors({"compute": 2.0 * math.exp(GRID[-1] + share)})[0] for share in (0.0, 0.1, 0.2)]
    assert ends[2] - ends[1] == pytest.approx(ends[1] - ends[0])
    assert curve.errors({})[0] == 0.0
