"""From a user's own few measurements to an engine preset for the user's folder, and how far off it still is.

Six physical parameters move from the shipped values: what kernels reach of the device, and host times (map_fit.py). The
error that is reported is that of setups that were held back from the fit.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from simulator.calibration.map_fit import PARAMETERS, TIMES, Floats, Problem, adjusted
from simulator.engines.engine import KIND, Engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import Hardware
from simulator.profile import Figure, Source, Strict, find, read_yaml
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Answered, Asked, ask

FOLDS, LEAST = 5, 3  # parts of the setups that are held back in turn; fewest setups for that
GAIN = 0.005  # of the measured value: a smaller gain is rounding


class HeldBackScore(NamedTuple):
    """Median |relative error| of held-back rows: `before`, as shipped; `after`, calibrated on the other setups."""

    rows: int
    setups: int
    before: float
    after: float


@dataclass(frozen=True)
class Overlay:
    """A calibrated preset of one engine on one device, with the rows that were held back to judge it."""

    engine: Engine
    shipped: Engine
    hardware: Hardware
    measurements: tuple[Measurement, ...]
    before: Floats  # ln(measured / predicted) as shipped
    after: Floats  # the same by a fit that has not seen the row's setup
    left_out: Mapping[str, int]  # rows that were not used, by reason

    def score(self, metric: str = "") -> HeldBackScore:
        """Return the score of the rows of one metric; "" is all metrics."""
        chosen = np.array([metric in ("", row.metric) for row in self.measurements])
        errors = [float(np.median(np.abs(np.expm1(-each[chosen])))) for each in (self.before, self.after)]
        setups = {row.setup for row, is_chosen in zip(self.measurements, chosen, strict=True) if is_chosen}
        return HeldBackScore(int(chosen.sum()), len(setups), *errors)

    @property
    def metrics(self) -> list[str]:
        """The metrics that were measured, in the order of the rows."""
        return list(dict.fromkeys(row.metric for row in self.measurements))

    @property
    def helps(self) -> bool:
        """Whether the median error of rows held back falls by more than GAIN."""
        return self.score().after < self.score().before - GAIN

    @property
    def residuals(self) -> dict[str, tuple[float, ...]]:
        """ln(measured / predicted) of each setup's worst row when held back, by "metric regime"."""
        worst: dict[str, dict[Setup, float]] = {}
        for row, value in zip(self.measurements, map(float, self.after), strict=True):
            of = worst.setdefault(f"{row.metric} {row.setup.regime}", {})
            of[row.setup] = max(value, of.get(row.setup, 0.0), key=abs)
        return {kind: tuple(round(value, 4) for value in of.values()) for kind, of in worst.items()}


def calibrated(
    rows: Sequence[Measurement],
    hardware: Hardware,
    engine: str = "",
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Overlay:
    """Return the preset of an engine on a device fitted to measurements, with its held-back errors.

    `engine`: "" where the rows are of one engine. `progress` is called with (parts done, parts). Each fit leaves out
    one of FOLDS parts of the setups. Raises NotModelledError for rows of several engines, and for fewer than LEAST
    setups.
    """
    problem = _fit_problem(rows, hardware, engine)
    setups = list(problem.asked)
    parts = min(FOLDS, len(setups))
    slopes, after = problem.slopes(), np.empty(len(problem.rows))
    for part in range(parts):
        progress(part, parts + 1)
        held = problem.rows_of(setups[part::parts])
        seen = problem.rows_of([each for index, each in enumerate(setups) if index % parts != part])
        after[held] = problem.measured[held] - problem.log_predictions(problem.fit(seen, slopes), held)
    every = np.arange(len(problem.rows))
    moved = problem.fit(every, slopes)
    progress(parts + 1, parts + 1)
    return Overlay(
        engine=adjusted(problem.engine, hardware, problem.values(moved), _source(problem.rows, len(setups))),
        shipped=problem.engine,
        hardware=hardware,
        measurements=tuple(problem.rows),
        before=problem.measured - problem.log_predictions(np.zeros(len(PARAMETERS)), every),
        after=after,
        left_out=problem.left_out,
    )


def _source(rows: Sequence[Measurement], setups: int) -> Source:
    files = "; ".join(dict.fromkeys(row.setup.source for row in rows))
    text = f"infercast calibrate --measured on {len(rows)} rows of {setups} setups: {files}"
    return Source(text=text, date=datetime.now(tz=UTC).date().isoformat(), evidence="measured")


def _fit_problem(rows: Sequence[Measurement], hardware: Hardware, engine: str) -> Problem:
    """Return the rows of the device and the engine that can be predicted, as a problem to fit."""
    kept: list[Measurement] = []
    asked: dict[Setup, Asked] = {}
    known: dict[Setup, Answered] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            if row.setup not in known:
                at = _asked(row.setup, hardware, engine)
                known[row.setup], asked[row.setup] = at.answer(), at
            if not math.isfinite(known[row.setup].value(row.metric, row.stat)):
                raise NotModelledError(row.metric, "it is not defined for this load", "Leave the row out")
        except InfercastError as error:
            left_out[str(error)] += 1
            continue
        kept.append(row)
    asked = {setup: asked[setup] for setup in dict.fromkeys(row.setup for row in kept)}
    presets = {at.deployment.engine.id: at.deployment.engine for at in asked.values()}
    if len(presets) > 1:
        raise NotModelledError(
            f"rows of {', '.join(presets)}", "one preset is calibrated at a time", "Give --engine NAME"
        )
    if len(asked) < LEAST:
        why = f"; left out: {next(iter(left_out))}" if left_out else ""
        because = f"{LEAST} are needed, so that each can be held back from a fit to others{why}"
        given = f"{len(asked)} setup{'' if len(asked) == 1 else 's'} on {hardware.id}"
        raise NotModelledError(given, because, "Measure other lengths or loads too")
    return Problem(kept, asked, next(iter(presets.values())), hardware, dict(left_out))


def _asked(setup: Setup, hardware: Hardware, engine: str) -> Asked:
    at = ask(setup)
    deployment = at.deployment
    if deployment.hardware.id != hardware.id:
        raise NotModelledError(setup.hardware, f"it is not {hardware.id}", "Calibrate it on its own")
    if engine not in ("", deployment.engine.id, deployment.engine.engine):
        raise NotModelledError(deployment.engine.id, f"it is not {engine}", "Calibrate it on its own")
    return at


def preset(overlay: Overlay) -> dict[str, Any]:
    """Return the mapping of the calibrated preset: the shipped file with kernels for the device and new host times."""
    raw = read_yaml(find(KIND, overlay.shipped.id))
    sources: dict[str, Any] = dict(raw["sources"])
    kernels = overlay.engine.kernels[0]
    rule = {**_as_profile(kernels, sources), "devices": (overlay.hardware.id,), "residuals": overlay.residuals}
    host = {name: _figure_as_profile(name, getattr(overlay.engine.overheads, name), sources) for name in TIMES}
    others = [each for each in raw.get("kernels", ()) if tuple(each.get("devices", ())) != (overlay.hardware.id,)]
    return {**raw, "sources": sources, "overheads": {**raw["overheads"], **host}, "kernels": (rule, *others)}


def _as_profile(value: Strict, sources: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping of a value beyond its defaults, as a profile has it; adds its sources to `sources`."""
    found: dict[str, Any] = {}
    for name, field in type(value).model_fields.items():
        each = getattr(value, name)
        if isinstance(each, Figure) and each is not field.default:
            found[name] = _figure_as_profile(name, each, sources)
        elif isinstance(each, Strict) and each != field.default:
            found[name] = _as_profile(each, sources)
        elif not isinstance(each, Figure | Strict) and each != field.default:
            found[name] = each
    return found


def _figure_as_profile(name: str, figure: Figure, sources: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping of a figure; names of rates end in bytes_per_s, those of times in _s."""
    value: str | float = float(f"{figure:.4g}")
    if name.endswith("bytes_per_s"):
        value = f"{figure / 1e9:.6g} GB/s"
    elif name.endswith("_s"):
        value = f"{figure * 1e6:.4g} us"
    return {"value": value, "source": _source_key(sources, figure.source)}


def _source_key(sources: dict[str, Any], source: Source) -> str:
    """Return the key of a source in `sources`, adding it where it is not there."""
    whole = source.model_dump()
    for name, each in sources.items():
        if dict(each) == whole:
            return name
    name = next(f"own-{index}" for index in range(1, len(sources) + 2) if f"own-{index}" not in sources)
    sources[name] = whole
    return name
