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
from simulator.calibration.calibrated_constants import Constant, adjusted, uncalibrated
from simulator.calibration.map_fit import NOISE, Fit, Problem, setups_of
from simulator.calibration.rows_by_preset import asked_of, target_of
from simulator.day import today
from simulator.engines.engine import Engine
from simulator.engines.kernels import Kernels
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import Hardware
from simulator.profile import Source
from simulator.reports.intervals import Interval, interval
from simulator.units import counted
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Answered, Asked, predict
from simulator.validation.scores import beating_light

SECONDS = "Is it in seconds? Give what the metric's name says."
CHECK = "Else check the device, the parallelism and the number formats that were stated."
FOLDS, LEAST = 5, 2  # parts of the setups that are held back in turn; fewest setups for that
GAIN = 0.005  # of the measured value: a smaller gain is rounding
SHARED = 0.3  # correlation of errors of two models on one device: of left-out rows 0.3 to 0.4 (rates), 0.2 (prompts)
SURE = 1.28  # standard deviations on each side that hold 80 %


class CalibrationScore(NamedTuple):
    """Medians of |relative error|: as shipped, as calibrated, held back (by a fit to other setups; NaN without)."""

    rows: int
    setups: int
    before: float
    after: float
    held_back: float


class MovedConstant(NamedTuple):
    """A constant's shipped value, the calibrated one, and the ends of the 80 % interval that the rows leave it."""

    constant: Constant
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
        """The calibrated engine; constants are the shipped ones where the fit does not help."""
        return self.shipped.model_copy(update={"kernels": (*self.own, *self.shipped.kernels)})

    @property
    def models(self) -> tuple[str, ...]:
        """Ids of the models that were measured."""
        return tuple(dict.fromkeys(each.deployment.model.id for each in self.problem.asked.values()))

    @property
    def own(self) -> tuple[Kernels, ...]:
        """Kernels of the device: of the measured models, with residuals, and, where the fit helps, of all others.

        Other models have `shared` of what moved, in logarithms.
        """
        measured = self._kernels(self.fit.moved if self.helps else np.zeros_like(self.fit.moved))
        measured = measured.model_copy(update={"residuals": self.residuals, "models": self.models})
        if not self.helps:
            return (measured,)
        rest = self._kernels(self.fit.moved * shared(len(self.models)))
        return measured, rest.model_copy(update={"except_models": self.models})

    def _kernels(self, moved: Floats) -> Kernels:
        source = _source(self.problem.rows, len(self.problem.asked))
        return adjusted(self.shipped, self.hardware, self.problem.values(moved), source).kernels[0]

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
    def moved(self) -> list[MovedConstant]:
        """The constants that moved, those that moved furthest for their prior first."""
        found = []
        sure = np.sqrt(np.diag(self.fit.covariance)) * SURE
        for index in np.argsort(-np.abs(self.fit.moved)):
            by = float(self.fit.moved[index])
            if by:
                constant = self.problem.constants[index]
                shipped = constant.of(self.shipped, self.hardware)
                low, value, high = (
                    self.problem.value(int(index), by + each * sure[index]) for each in (-1.0, 0.0, 1.0)
                )
                evidence = shipped.source.evidence if shipped is not None else "guess"
                found.append(
                    MovedConstant(constant, self.problem.shipped[constant.name], evidence, value, low, high, by)
                )
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


def shared(models: int) -> float:
    """Return the share of what measurements of some models moved that another model of the device is expected to show.

    Errors of two models are correlated by SHARED; the best guess of another from the mean of `models` of them is
    n SHARED / (1 + (n - 1) SHARED) of it.

    >>> [round(shared(models), 2) for models in (1, 2, 8)]
    [0.3, 0.46, 0.77]
    """
    return models * SHARED / (1 + (models - 1) * SHARED)


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


def _source(rows: Sequence[Measurement], setups: int) -> Source:
    files = "; ".join(dict.fromkeys(row.setup.source for row in rows if row.setup.source)) or "a table"
    text = f"infercast calibrate --measured on {len(rows)} rows of {setups} setups: {files}"
    return Source(text=text, date=today().isoformat(), evidence="measured")


def _fit_problem(rows: Sequence[Measurement], hardware: Hardware, engine: str) -> tuple[Problem, tuple[str, ...]]:
    """Return the rows of the device and the engine that can be predicted, as a problem to fit, and other presets."""
    target = target_of(rows, hardware, engine)
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
                asked[row.setup], version = asked_of(row.setup, hardware, target)
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
