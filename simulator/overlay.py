"""A user's own few measurements -> a preset of the engine for the user's own folder, and how far it still is off.

Six physical parameters: what the engine's kernels reach of the device (`compute`, `memory`, `cache`, `attention`) and
host times (`step_s`, `request_s`). They move from the shipped values to where the posterior is highest: the prior is as
wide as their spread over the shipped presets, a measurement counts with NOISE, so few rows move little. What is
reported was held back: the error of setups that a fit has not seen.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.deployment import Deployment
from simulator.engine import KIND, Engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware import Hardware
from simulator.kernels import UNITY, Kernels
from simulator.measurements import Measurement, Setup
from simulator.prediction import Outcome, outcome
from simulator.profile import Figure, Source, find, names, read_yaml
from simulator.roofline import Rates
from simulator.setups import Placed, place

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
SHARES = ("compute", "memory", "cache", "attention")
TIMES = ("step_s", "request_s")
PARAMETERS = (*SHARES, *TIMES)
NOISE = 0.15  # guess: of ln(measured / predicted); two people who measure the same differ by 4 to 10 %
OUTLIER = 2.0  # in units of NOISE; what lies further weighs less (Huber)
KNOWN = 0.3  # guess: of a share's spread, where the shipped one was fitted to the device's family
TAILS = ("p90", "p95", "p99")  # scored and not fitted: they tell little about rates
WORTH = 2.0  # measurements that the rows of one setup are worth together, say a prefill and a decode
FOLDS, LEAST = 5, 3  # parts that are held back in turn; setups below which nothing could be
GAIN = 0.005  # of the measured value
PROBE = 0.3  # of a spread: the step of a numerical derivative
ROUNDS = 2  # of Gauss and Newton: shares act almost linearly on logarithms


@cache
def spreads() -> Mapping[str, float]:
    """Return how far each parameter varies over the shipped presets: of a share's logarithm; of a time, in seconds.

    >>> {name: spreads()[name] > 0 for name in ("compute", "request_s")}
    {'compute': True, 'request_s': True}
    """
    presets = [Engine.from_yaml(find(KIND, name)) for name in names(KIND)]
    rules = [rule for preset in presets for rule in preset.kernels]
    found = {
        name: [math.log(getattr(rule, name)) for rule in rules if getattr(rule, name) is not UNITY] for name in SHARES
    }
    found |= {name: [float(getattr(preset.overheads, name)) for preset in presets] for name in TIMES}
    return {name: float(np.std(values)) for name, values in found.items()}


def adjusted(engine: Engine, hardware: Hardware, values: Mapping[str, float], source: Source) -> Engine:
    """Return a preset with a rule of its own for a device, and host times, by parameter."""
    shares, host = ({name: Figure(values[name], source) for name in part} for part in (SHARES, TIMES))
    rule = engine.kernels_on(hardware).model_copy(update={**shares, "families": (), "devices": (hardware.id,)})
    others = tuple(each for each in engine.kernels if each.devices != (hardware.id,))
    overheads = engine.overheads.model_copy(update=host)
    return engine.model_copy(update={"kernels": (rule, *others), "overheads": overheads})


class Score(NamedTuple):
    """Median |error| of rows held back, as a share of the measured value: as shipped, and calibrated without them."""

    rows: int
    setups: int
    before: float
    after: float


@dataclass(frozen=True)
class Overlay:
    """A calibrated preset of one engine on one device, with what was held back to judge it."""

    engine: Engine
    shipped: Engine
    hardware: Hardware
    measurements: tuple[Measurement, ...]
    before: Floats  # ln(measured / predicted) as shipped
    after: Floats  # the same by a fit that has not seen the row's setup
    left_out: Mapping[str, int]  # rows that are not in it, by reason

    def score(self, metric: str = "") -> Score:
        """Score a metric, or all."""
        chosen = np.array([metric in ("", row.metric) for row in self.measurements])
        errors = [float(np.median(np.abs(np.expm1(-each[chosen])))) for each in (self.before, self.after)]
        setups = {row.setup for row, is_chosen in zip(self.measurements, chosen, strict=True) if is_chosen}
        return Score(int(chosen.sum()), len(setups), *errors)

    @property
    def metrics(self) -> list[str]:
        """The metrics that were measured, in order of appearance."""
        return list(dict.fromkeys(row.metric for row in self.measurements))

    @property
    def helps(self) -> bool:
        """Whether rows held back are predicted better than before, by more than rounding."""
        return self.score().after < self.score().before - GAIN

    @property
    def residuals(self) -> dict[str, tuple[float, ...]]:
        """ln(measured / predicted) of each setup held back, by its worst row, for each metric and regime."""
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
    """Fit the preset of an engine ("" where the rows have one alone) on a device to measurements.

    Raises InfercastError where the rows are of several engines, or of too few setups to hold some back.
    """
    problem = _chosen(rows, hardware, engine)
    setups = list(problem.placed)
    parts = min(FOLDS, len(setups))
    slopes, after = problem.slopes(), np.empty(len(problem.rows))
    for part in range(parts):
        progress(part, parts + 1)
        held = problem.of(setups[part::parts])
        seen = problem.of([each for index, each in enumerate(setups) if index % parts != part])
        after[held] = problem.measured[held] - problem.logs(problem.fit(seen, slopes), held)
    every = np.arange(len(problem.rows))
    moved = problem.fit(every, slopes)
    progress(parts + 1, parts + 1)
    return Overlay(
        engine=adjusted(problem.engine, hardware, problem.values(moved), _source(problem.rows, len(setups))),
        shipped=problem.engine,
        hardware=hardware,
        measurements=tuple(problem.rows),
        before=problem.measured - problem.logs(np.zeros(len(PARAMETERS)), every),
        after=after,
        left_out=problem.left_out,
    )


def _source(rows: Sequence[Measurement], setups: int) -> Source:
    files = "; ".join(dict.fromkeys(row.setup.source for row in rows))
    text = f"infercast calibrate --measured on {len(rows)} rows of {setups} setups: {files}"
    return Source(text=text, date=datetime.now(tz=UTC).date().isoformat(), evidence="measured")


def _chosen(rows: Sequence[Measurement], hardware: Hardware, engine: str) -> "_Problem":
    """Keep the rows that are of the device and the engine and can be predicted."""
    kept: list[Measurement] = []
    placed: dict[Setup, Placed] = {}
    known: dict[Setup, Outcome] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            if row.setup not in known:
                at = _placed(row.setup, hardware, engine)
                known[row.setup], placed[row.setup] = outcome(at), at
            if not math.isfinite(known[row.setup].value(row.metric, row.stat)):
                raise NotModelledError(row.metric, "it is not defined for this load", "Leave the row out")
        except InfercastError as error:
            left_out[str(error)] += 1
            continue
        kept.append(row)
    placed = {setup: placed[setup] for setup in dict.fromkeys(row.setup for row in kept)}
    presets = {at.deployment.engine.id: at.deployment.engine for at in placed.values()}
    if len(presets) > 1:
        raise NotModelledError(
            f"rows of {', '.join(presets)}", "one preset is calibrated at a time", "Give --engine NAME"
        )
    if len(placed) < LEAST:
        why = f"; left out: {next(iter(left_out))}" if left_out else ""
        because = f"{LEAST} are needed, so that each can be held back from a fit to others{why}"
        raise NotModelledError(f"{len(placed)} setups on {hardware.id}", because, "Measure other lengths or loads too")
    return _Problem(kept, placed, next(iter(presets.values())), hardware, dict(left_out))


def _placed(setup: Setup, hardware: Hardware, engine: str) -> Placed:
    at = place(setup)
    deployment = at.deployment
    if deployment.hardware.id != hardware.id:
        raise NotModelledError(setup.hardware, f"it is not {hardware.id}", "Calibrate it on its own")
    if engine not in ("", deployment.engine.id, deployment.engine.engine):
        raise NotModelledError(deployment.engine.id, f"it is not {engine}", "Calibrate it on its own")
    return at


def _reached(deployment: Deployment) -> dict[str, float]:
    """Return what the device's own tables reach of its peaks, by the share that multiplies it."""
    hardware = deployment.hardware
    gemm = hardware.achievable.gemm[Rates(hardware).peak(deployment.layout.weight_dtype)[0]]
    decode, prefill = hardware.achievable.decode_attention, hardware.achievable.prefill_attention
    return {
        "compute": gemm.compute_fraction,
        "memory": gemm.memory_fraction,
        "cache": decode.memory_fraction if decode else 1.0,
        "attention": prefill.compute_fraction if prefill else 1.0,
    }


@dataclass(frozen=True)
class _Problem:
    """The rows of a fit, and what a vector of parameters predicts for them."""

    rows: list[Measurement]
    placed: dict[Setup, Placed]
    engine: Engine
    hardware: Hardware
    left_out: dict[str, int]

    @cached_property
    def peaks(self) -> Mapping[str, float]:
        """The shares at which the device's own peaks are reached."""
        reached = [_reached(at.deployment) for at in self.placed.values()]
        return {name: 1 / min(each[name] for each in reached) for name in SHARES}

    @cached_property
    def shipped(self) -> Mapping[str, float]:
        """The shipped parameters; a share no higher than the device's own peak, from where on it changes nothing."""
        rule = self.engine.kernels_on(self.hardware)
        shares = {name: min(getattr(rule, name), self.peaks[name]) for name in SHARES}
        return shares | {name: float(getattr(self.engine.overheads, name)) for name in TIMES}

    @cached_property
    def spreads(self) -> Mapping[str, float]:
        """How far each parameter may move: shares less where they were fitted to such devices; every host differs."""
        rule = self.engine.kernels_on(self.hardware)
        known = bool(rule.devices) or self.hardware.family in rule.fitted_on
        return {name: spread * (KNOWN if known and name in SHARES else 1.0) for name, spread in spreads().items()}

    def values(self, moved: Floats) -> dict[str, float]:
        """Return the parameters at a vector in units of their spreads: shares by their logarithm."""
        steps = {name: self.spreads[name] * float(each) for name, each in zip(PARAMETERS, moved, strict=True)}
        shares = {name: self.shipped[name] * math.exp(steps[name]) for name in SHARES}
        return shares | {name: max(0.0, self.shipped[name] + steps[name]) for name in TIMES}

    @cached_property
    def measured(self) -> Floats:
        """Logarithms of what was measured."""
        return np.log([row.value for row in self.rows])

    def of(self, setups: Iterable[Setup]) -> Indices:
        """Return which rows are of some setups."""
        chosen = set(setups)
        return np.array([index for index, row in enumerate(self.rows) if row.setup in chosen])

    def logs(self, moved: Floats, chosen: Indices) -> Floats:
        """Return the logarithms of what is predicted for some rows."""
        engine = adjusted(self.engine, self.hardware, self.values(moved), UNITY.source)
        known: dict[Setup, Outcome] = {}
        found = []
        for row in (self.rows[index] for index in chosen):
            if row.setup not in known:
                at = self.placed[row.setup]
                known[row.setup] = outcome(at._replace(deployment=replace(at.deployment, engine=engine)))
            found.append(math.log(known[row.setup].value(row.metric, row.stat)))
        return np.array(found)

    def slopes(self) -> Floats:
        """Return the derivatives of all predictions by each parameter, where it is shipped."""
        every, still = np.arange(len(self.rows)), np.zeros(len(PARAMETERS))
        base = self.logs(still, every)
        probes = np.diag([-PROBE] * len(SHARES) + [PROBE] * len(TIMES))  # away from a peak and from no time at all
        changes = [(self.logs(probe, every) - base) / probe.sum() for probe in probes]
        return np.stack(changes, axis=1)

    def fit(self, seen: Indices, slopes: Floats) -> Floats:
        """Return the parameters of highest posterior probability, in units of their spreads, given some rows.

        Minimises sum(w (off / NOISE)^2) + |moved|^2 by Gauss and Newton, with the derivatives at the shipped values.
        """
        seen = seen[[not any(tail in self.rows[index].stat for tail in TAILS) for index in seen]]
        many = Counter(self.rows[index].setup for index in seen)
        weights = np.array([min(1.0, WORTH / many[self.rows[index].setup]) for index in seen])
        least = [-self.shipped[name] / self.spreads[name] for name in TIMES]  # a time of 0
        most = [math.log(self.peaks[name] / self.shipped[name]) / self.spreads[name] for name in SHARES]
        lowest, highest = np.array([-math.inf] * len(SHARES) + least), np.array(most + [math.inf] * len(TIMES))
        moved, slope = np.zeros(len(PARAMETERS)), slopes[seen]
        for _ in range(ROUNDS):
            off = (self.measured[seen] - self.logs(moved, seen)) / NOISE
            weighed = weights * np.minimum(1.0, OUTLIER / np.maximum(np.abs(off), 1e-9))
            curvature = (slope.T * weighed) @ slope / NOISE**2 + np.eye(len(PARAMETERS))
            step = np.linalg.solve(curvature, slope.T @ (weighed * off) / NOISE - moved)
            moved = np.clip(moved + step, lowest, highest)
        return moved


def preset(overlay: Overlay) -> dict[str, Any]:
    """Return the mapping of the calibrated preset: the shipped file with a rule for the device and new host times."""
    raw = read_yaml(find(KIND, overlay.shipped.id))
    sources: dict[str, Any] = dict(raw["sources"])
    rule: dict[str, Any] = {"devices": (overlay.hardware.id,)}
    for name, value in _stated(overlay.engine.kernels[0]):
        rule[name] = _written(name, value, sources) if isinstance(value, Figure) else value
    rule["residuals"] = overlay.residuals
    host = {name: _written(name, getattr(overlay.engine.overheads, name), sources) for name in TIMES}
    others = [each for each in raw.get("kernels", ()) if tuple(each.get("devices", ())) != (overlay.hardware.id,)]
    return {**raw, "sources": sources, "overheads": {**raw["overheads"], **host}, "kernels": (rule, *others)}


def _stated(rule: Kernels) -> Iterator[tuple[str, Any]]:
    """Yield what a rule says beyond the defaults, but for what it holds of."""
    for name, field in type(rule).model_fields.items():
        value = getattr(rule, name)
        says = value is not field.default if isinstance(value, Figure) else value != field.default
        if says and name not in ("families", "devices", "residuals"):
            yield name, value


def _written(name: str, figure: Figure, sources: dict[str, Any]) -> dict[str, Any]:
    """Return a figure as a profile has it; the names of times end in _s."""
    value = f"{figure * 1e6:.4g} us" if name.endswith("_s") else float(f"{figure:.4g}")
    return {"value": value, "source": _key(sources, figure.source)}


def _key(sources: dict[str, Any], source: Source) -> str:
    """Return the name under which a source stands, adding it where it does not."""
    whole = source.model_dump()
    for name, each in sources.items():
        if dict(each) == whole:
            return name
    name = next(f"own-{index}" for index in range(1, len(sources) + 2) if f"own-{index}" not in sources)
    sources[name] = whole
    return name
