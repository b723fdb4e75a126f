"""From a user's own few measurements to the constants of an engine on a device, and how far off it still is.

The constants move from the shipped values as far as the rows say (map_fit.py). The error that is reported is that of
setups that were held back from the fit. `own_preset.py` writes the result for the user's folder.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from simulator.arrays import Floats
from simulator.calibration.map_fit import NOISE, Fit, Problem, setups_of
from simulator.calibration.terms import Term, adjusted, uncalibrated
from simulator.day import today
from simulator.engines.engine import Engine, engine_of, load_engine, usual_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import Hardware
from simulator.profile import Source
from simulator.reports.intervals import Interval, interval
from simulator.units import counted
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Answered, Asked, ask, predict
from simulator.validation.scores import beating_light

SECONDS = "Is it in seconds? Give what the metric's name says."
CHECK = "Else check the device, the parallelism and the number formats that were stated."
FOLDS, LEAST = 5, 2  # parts of the setups that are held back in turn; fewest setups for that
GAIN = 0.005  # of the measured value: a smaller gain is rounding
SURE = 1.28  # standard deviations on each side that hold 80 %


class CalibrationScore(NamedTuple):
    """Medians of |relative error|: as shipped, as calibrated, held back (by a fit to other setups; NaN without)."""

    rows: int
    setups: int
    before: float
    after: float
    held_back: float


class Moved(NamedTuple):
    """A constant's shipped value, the calibrated one, and the ends of the 80 % interval that the rows leave it."""

    term: Term
    shipped: float
    shipped_as: str  # evidence of the shipped value
    calibrated: float
    low: float
    high: float
    by: float  # in prior standard deviations


@dataclass(frozen=True)
class Calibration:
    """The constants of one engine on one device fitted to measurements, with the errors that judge them.

    Errors are ln(measured / predicted) by row: `before` as shipped, `fitted` by the fit to all rows, `held_back` by a
    fit that has not seen the row's setup, NaN where there is only one.
    """

    problem: Problem
    fit: Fit
    before: Floats
    fitted: Floats
    held_back: Floats
    other_versions: tuple[str, ...] = ()  # presets that the rows' versions lead to, where they are not this one

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The rows that were used."""
        return tuple(self.problem.rows)

    @property
    def hardware(self) -> Hardware:
        """The device that was measured."""
        return self.problem.hardware

    @property
    def shipped(self) -> Engine:
        """The preset from which the constants moved."""
        return self.problem.engine

    @property
    def engine(self) -> Engine:
        """The calibrated engine with its residuals; constants are the shipped ones where the fit does not help."""
        rows, setups = len(self.problem.rows), len(self.problem.asked)
        values = self.problem.values(self.fit.moved) if self.helps else {}
        found = adjusted(self.shipped, self.hardware, values, _source(self.problem.rows, rows, setups))
        rule, *others = found.kernels
        own = rule.model_copy(update={"residuals": self.residuals})
        return found.model_copy(update={"kernels": (own, *others)})

    @property
    def intervals(self) -> list[tuple[str, Interval, Interval]]:
        """The 80 % intervals of what was measured ("metric regime"): as shipped, and as calibrated."""
        at, own = next(iter(self.problem.asked.values())).deployment, self.engine
        before, after = replace(at, engine=self.shipped), replace(at, engine=own)
        found = []
        for kind in self.residuals:
            metric, _, regime = kind.partition(" ")
            found.append((kind, interval(before, metric, regime), interval(after, metric, regime)))
        return found

    @property
    def judged(self) -> Floats:
        """Errors by which the fit is judged: held back where there are several setups, else of the fit itself."""
        return self.fitted if np.isnan(self.held_back).any() else self.held_back

    @property
    def after(self) -> Floats:
        """Errors of what is written: `fitted`, or `before` where the fit does not help."""
        return self.fitted if self.helps else self.before

    def score(self, metric: str = "") -> CalibrationScore:
        """Return the score of the rows of one metric; "" is all metrics."""
        chosen = np.array([metric in ("", row.metric) for row in self.problem.rows])
        setups = {row.setup for row, is_chosen in zip(self.problem.rows, chosen, strict=True) if is_chosen}
        errors = (_median(each[chosen]) for each in (self.before, self.after, self.held_back))
        return CalibrationScore(int(chosen.sum()), len(setups), *errors)

    @property
    def metrics(self) -> list[str]:
        """The metrics that were measured, in the order of the rows."""
        return list(dict.fromkeys(row.metric for row in self.problem.rows))

    @property
    def helps(self) -> bool:
        """Whether the median error falls by more than GAIN, and that of setups held back does not grow by as much."""
        shipped = _median(self.before)
        return _median(self.fitted) < shipped - GAIN and _median(self.judged) < shipped + GAIN

    @property
    def moved(self) -> list[Moved]:
        """The constants that moved, those that moved furthest for their prior first."""
        found = []
        sure = np.sqrt(np.diag(self.fit.covariance)) * SURE
        for index in np.argsort(-np.abs(self.fit.moved)):
            by = float(self.fit.moved[index])
            if by:
                term = self.problem.terms[index]
                shipped = term.of(self.shipped, self.hardware)
                low, value, high = (
                    self.problem.value(int(index), by + each * sure[index]) for each in (-1.0, 0.0, 1.0)
                )
                evidence = shipped.source.evidence if shipped is not None else "guess"
                found.append(Moved(term, self.problem.shipped[term.name], evidence, value, low, high, by))
        return found

    @property
    def residuals(self) -> dict[str, tuple[float, ...]]:
        """ln(measured / predicted) of each setup's worst row, by "metric regime", for intervals.

        They are those of the answer that is written: held back, or as shipped where the fit does not help. One setup
        alone was not held back: its residual counts as NOISE at least.
        """
        values = self.judged if self.helps else self.before
        alone = self.helps and bool(np.isnan(self.held_back).any())
        worst: dict[str, dict[Setup, float]] = {}
        for row, value in zip(self.problem.rows, map(float, values), strict=True):
            least = math.copysign(max(abs(value), NOISE), value) if alone else value
            of = worst.setdefault(f"{row.metric} {_regime(row.setup)}", {})
            of[row.setup] = max(least, of.get(row.setup, 0.0), key=abs)
        return {kind: tuple(round(value, 4) for value in of.values()) for kind, of in worst.items()}


def _median(errors: Floats) -> float:
    return float(np.median(np.abs(np.expm1(-errors))))


def _regime(setup: Setup) -> str:
    """Return the regime of the question about a setup: a batch of one is `single`."""
    return "single" if setup.regime == "fixed_batch" and setup.batch <= 1 else str(setup.regime)


def calibrated(
    rows: Sequence[Measurement],
    hardware: Hardware,
    engine: str = "",
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Calibration:
    """Return the constants of an engine on a device fitted to measurements, with their held-back errors.

    `engine`: the preset to calibrate, as `infercast estimate --engine` takes it; "" for what the device's questions use
    by default, or the newest of the engine that was measured. `progress` is called with (parts done, parts). Each fit
    leaves out one of FOLDS parts of the setups; with fewer than LEAST setups nothing is held back. Raises
    NotModelledError for rows of several engines, and where no row can be predicted, InfercastError where all rows beat
    the device's speed of light; else those that do are left out.
    """
    problem, others = _fit_problem(rows, hardware, engine)
    setups = list(problem.asked)
    parts = min(FOLDS, len(setups)) if len(setups) >= LEAST else 0
    held_back = np.full(len(problem.rows), math.nan)
    for part in range(parts):
        progress(part, parts + 1)
        held = problem.rows_of(setups[part::parts])
        seen = problem.rows_of([each for index, each in enumerate(setups) if index % parts != part])
        held_back[held] = problem.measured[held] - problem.log_predictions(problem.fit(seen).moved, held)
    every = np.arange(len(problem.rows))
    found = problem.fit(every)
    progress(parts + 1, parts + 1)
    before, after = (
        problem.measured - problem.log_predictions(at, every) for at in (np.zeros_like(found.moved), found.moved)
    )
    held_back = np.where(np.isnan(held_back) & (parts > 0), before, held_back)  # a fit without an answer is no gain
    return Calibration(problem, found, before, after, held_back, others)


def rows_by_preset(rows: Sequence[Measurement], hardware: Hardware, engine: str = "") -> dict[str, list[Measurement]]:
    """Return the rows by the preset that they calibrate, the one of most rows first.

    A row calibrates the preset that its version or date leads to, as other rows of it are predicted by that one. The
    preset that questions use by default has all rows where none is its own. `engine`: a preset for all rows instead.
    Rows that cannot be asked are with the first. Raises NotModelledError for rows of several engines.
    """
    target = _target(rows, hardware, engine)
    found: dict[str, list[Measurement]] = {}
    lost: list[Measurement] = []
    versions: dict[Setup, str] = {}
    for row in [] if engine else rows:
        if row.setup not in versions:
            try:
                versions[row.setup] = _asked(row.setup, hardware, target)[1]
            except InfercastError:
                versions[row.setup] = ""
        name = versions[row.setup]
        (found.setdefault(name, []) if name else lost).append(row)
    found = dict(sorted(found.items(), key=lambda each: -len(each[1])))
    if found:
        next(iter(found.values())).extend(lost)
    return {**found, target.id: found.get(target.id, list(rows))}


def _source(rows: Sequence[Measurement], count: int, setups: int) -> Source:
    files = "; ".join(dict.fromkeys(row.setup.source for row in rows if row.setup.source)) or "a table"
    text = f"infercast calibrate --measured on {count} rows of {setups} setups: {files}"
    return Source(text=text, date=today().isoformat(), evidence="measured")


def _fit_problem(rows: Sequence[Measurement], hardware: Hardware, engine: str) -> tuple[Problem, tuple[str, ...]]:
    """Return the rows of the device and the engine that can be predicted, as a problem to fit, and other presets."""
    target = _target(rows, hardware, engine)
    kept: list[Measurement] = []
    asked: dict[Setup, Asked] = {}
    others: set[str] = set()
    answers: dict[Setup, Answered] = {}
    refused: dict[Setup, InfercastError] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            if row.setup in refused:
                raise refused[row.setup]
            if row.setup not in answers:
                asked[row.setup], version = _asked(row.setup, hardware, target)
                answers[row.setup] = asked[row.setup].answer()
                others |= {version} - {target.id}
            if not math.isfinite(answers[row.setup].value(row.metric, row.stat)):
                raise NotModelledError(row.metric, "it is not defined for this load", "Leave the row out")
        except InfercastError as error:
            if row.setup not in answers:
                refused[row.setup] = error
            left_out[str(error)] += 1
            continue
        kept.append(row)
    if not kept:
        because = next(iter(left_out), "the file has no row")
        raise NotModelledError(
            f"no row of {target.id} on {hardware.id}", because, "Give rows of that model, device and engine"
        )
    kept, faster = _possible(kept)
    used = {setup: asked[setup] for setup in setups_of(kept)}
    return Problem(kept, used, uncalibrated(target, hardware), hardware, {**faster, **left_out}), tuple(sorted(others))


def _possible(rows: Sequence[Measurement]) -> tuple[list[Measurement], dict[str, int]]:
    """Return the rows that do not beat the device's speed of light, and how many do, by the reason.

    Raises InfercastError where all do: constants that are fitted to such rows are of no machine.
    """
    found = predict(rows, light=True)
    beating = beating_light(found)
    if not beating:
        return list(rows), {}
    row, light = beating[0].measurement, beating[0].light
    faster = f"{row.metric} {row.value:g} beats the device's speed of light, {light:.3g}"
    if len(beating) == len(rows):
        raise InfercastError(counted(len(rows), "measurement"), faster, f"{SECONDS} {CHECK}")
    kept = [each.measurement for each in found if each not in beating]
    return kept, {f"{faster}. {SECONDS} {CHECK}": len(beating)}


def _target(rows: Sequence[Measurement], hardware: Hardware, engine: str) -> Engine:
    """Return the preset to calibrate: the one given, or the one that questions about the device lead to."""
    if engine:
        return load_engine(engine)
    names = sorted({row.setup.engine for row in rows if not row.setup.flaw} - {""})
    measured = sorted({_engine_named(each) for each in names})
    if len(measured) > 1:
        because = "one preset is calibrated at a time"
        raise NotModelledError(f"rows of {', '.join(measured)}", because, "Give --engine NAME")
    usual = load_engine(usual_engine(hardware))
    return usual if not measured or measured == [usual.engine] else load_engine(measured[0])


def _engine_named(name: str) -> str:
    return engine_of(name, "").engine


def _asked(setup: Setup, hardware: Hardware, target: Engine) -> tuple[Asked, str]:
    """Return the question about a setup to the preset that is calibrated, and the preset of the setup's own version."""
    own = ask(setup if setup.engine else replace(setup, engine=target.engine, engine_version=target.version))
    found = own.deployment.engine
    if own.deployment.hardware.id != hardware.id:
        raise NotModelledError(setup.hardware, f"it is not {hardware.id}", "Calibrate it on its own")
    if found.engine != target.engine:
        raise NotModelledError(found.id, f"it is not {target.engine}", "Calibrate it on its own")
    at = own
    if found.id != target.id:
        at = ask(replace(setup, engine=target.engine, engine_version=target.version))
    if at.deployment.engine.id != target.id:
        raise NotModelledError(target.id, f"rows of {found.id} cannot be asked of it", "Give another --engine")
    plain = uncalibrated(at.deployment.engine, hardware)
    return at.on(replace(at.deployment, engine=plain)), found.id
