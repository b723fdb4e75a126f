"""MAP fit (maximum a posteriori) of an engine's constants on a device to a user's own measurements.

The prior of each constant is normal in its logarithm around the shipped value, as wide as it is uncertain for a new
machine (calibrated_constants.py); the logarithm of a measurement has noise NOISE. So each moves as far as rows say.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.calibration.calibrated_constants import CONSTANTS, Constant, adjusted
from simulator.deployment.deployment import Deployment
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import Engine
from simulator.engines.fitted_multipliers import UNITY
from simulator.errors import InfercastError
from simulator.hardware.hardware import Hardware
from simulator.reports.interval_widths import TAILS, shipped_basis
from simulator.roofline.roofline import Rates
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Answered, Asked

NOISE = 0.1  # guess: of ln(measured / predicted); two people who measure the same differ by 4 to 10 %
OUTLIER = 2.0  # in units of NOISE; rows that are off by more weigh less (Huber)
WORTH = 2.0  # rows that all rows of one setup count as, say a prefill and a decode
PROBE = 0.3  # step of the numerical derivatives, in prior standard deviations
ROUNDS = 8  # of Gauss-Newton at most
SETTLED = 0.02  # a shorter step ends it
STALE = 0.5  # derivatives are taken anew beyond this distance from where they were taken
HALVINGS = 4  # of a step that does not help
FELT = 1e-4  # change of a row's logarithm by a standard deviation of a constant that it depends on


def _peaks(deployment: Deployment) -> dict[str, float]:
    """Return the shares at which a device reaches its own peaks: 1 / the achievable fractions of its profile."""
    hardware = deployment.hardware
    gemm = hardware.achievable.gemm[Rates(DeviceKernels(hardware)).peak(deployment.layout.weight_dtype)[0]]
    decode, prefill = hardware.achievable.decode_attention, hardware.achievable.prefill_attention
    return {
        "compute": 1 / gemm.compute_fraction,
        "memory": 1 / gemm.memory_fraction,
        "cache": 1 / decode.memory_fraction if decode else 1.0,
        "attention": 1 / prefill.compute_fraction if prefill else 1.0,
    }


@dataclass(frozen=True)
class Fit:
    """The most probable vector, and its covariance (constants, constants), both in prior standard deviations."""

    moved: Floats
    covariance: Floats


@dataclass(frozen=True)
class Problem:
    """The measurements of a fit, and the predictions for them at any vector of constants.

    Vectors have shape (constants,), in the order of `constants`, in prior standard deviations; 0: the shipped value.
    """

    rows: list[Measurement]
    asked: dict[Setup, Asked]
    engine: Engine
    hardware: Hardware
    left_out: dict[str, int]
    _known: dict[tuple[Setup, bytes], Answered | None] = field(default_factory=dict, repr=False)
    _slopes: dict[bytes, Floats] = field(default_factory=dict, repr=False)

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """The constants that the engine has on the device."""
        return tuple(constant for constant in CONSTANTS if constant.of(self.engine, self.hardware) is not None)

    @cached_property
    def peaks(self) -> dict[str, float]:
        """The shares above which a device would be faster than its data sheet, by name; none of the others."""
        reached = [_peaks(at.deployment) for at in self.asked.values()]
        return {name: min(each[name] for each in reached) for name in reached[0]}

    @cached_property
    def shipped(self) -> dict[str, float]:
        """The shipped constants by name; shares are cut at `peaks`, above which they change nothing."""
        known = {constant.name: float(constant.of(self.engine, self.hardware) or 0.0) for constant in self.constants}
        return {name: min(value, self.peaks.get(name, math.inf)) for name, value in known.items()}

    @cached_property
    def spreads(self) -> Floats:
        """Prior standard deviations of ln(value + floor), shape (constants,)."""
        basis = shipped_basis(next(iter(self.asked.values())).deployment)
        return np.array([constant.spread(basis) for constant in self.constants])

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """The lowest and the highest vector: times of 0, shares at the device's peaks."""
        low = [constant.least(self.shipped[constant.name]) for constant in self.constants]
        named = [constant.name for constant in self.constants]
        high = [math.log(self.peaks[each] / self.shipped[each]) if each in self.peaks else math.inf for each in named]
        return np.array(low) / self.spreads, np.array(high) / self.spreads

    def value(self, index: int, moved: float) -> float:
        """Return the constant with an index at `moved` prior standard deviations."""
        constant = self.constants[index]
        return (
            self.shipped[constant.name]
            if not moved
            else constant.moved(self.shipped[constant.name], moved * self.spreads[index])
        )

    def values(self, moved: Floats) -> dict[str, float]:
        """Return the constants at a vector, by name; those that do not move are left out."""
        return {constant.name: self.value(i, moved[i]) for i, constant in enumerate(self.constants) if moved[i]}

    @cached_property
    def measured(self) -> Floats:
        """Logarithms of the measured values, shape (rows,)."""
        return np.log([row.value for row in self.rows])

    def rows_of(self, setups: Iterable[Setup]) -> Ints:
        """Return the indices of the rows of some setups, int64."""
        chosen = set(setups)
        return np.array([index for index, row in enumerate(self.rows) if row.setup in chosen], dtype=np.int64)

    def log_predictions(self, moved: Floats, chosen: Ints) -> Floats:
        """Return the logarithms of the predictions for the rows with indices `chosen`, NaN where there is none."""
        found = np.full(len(chosen), math.nan)
        for at, row in enumerate(self.rows[index] for index in chosen):
            answer = self._answer(row.setup, moved)
            try:
                found[at] = math.log(answer.value(row.metric, row.stat)) if answer else math.nan
            except InfercastError:  # a queue without end, say
                continue
        return found

    def _answer(self, setup: Setup, moved: Floats) -> Answered | None:
        key = setup, moved.tobytes()
        if key not in self._known:
            at = self.asked[setup]
            engine = adjusted(at.deployment.engine, self.hardware, self.values(moved), UNITY.source)
            try:
                self._known[key] = at.on(replace(at.deployment, engine=engine)).answer()
            except InfercastError:
                self._known[key] = None
        return self._known[key]

    def slopes(self, at: Floats, chosen: Ints) -> Floats:
        """Return the derivatives of log predictions at a vector by each constant, shape (chosen, constants)."""
        key = at.tobytes() + chosen.tobytes()
        if key not in self._slopes:
            base, (low, high) = self.log_predictions(at, chosen), self.limits
            columns = []
            for index, constant in enumerate(self.constants):
                probe = at.copy()
                up = at[index] + PROBE <= high[index] and (constant.host or at[index] - PROBE < low[index])
                probe[index] += PROBE if up else -PROBE
                change = (self.log_predictions(probe, chosen) - base) / (probe[index] - at[index])
                columns.append(np.where(np.isfinite(change), change, 0.0))
            self._slopes[key] = np.stack(columns, axis=1)
        return self._slopes[key]

    def fit(self, seen: Ints) -> Fit:
        """Return the vector of highest posterior probability given the rows `seen`.

        Minimises sum(w rho(off / NOISE)) + |moved|^2 by Gauss-Newton with steps that are halved where they do not help;
        rho is Huber's (OUTLIER), and w limits what the rows of one setup count.
        """
        seen = self._fitted(seen)
        weights = self._weights(seen)
        moved = taken = np.zeros(len(self.constants))
        slope, least = self.slopes(moved, seen), self._loss(moved, seen, weights)
        for _ in range(ROUNDS):
            if np.abs(moved - taken).max() > STALE:
                taken, slope = moved, self.slopes(moved, seen)
            step = self._step(moved, slope, seen, weights) - moved
            better, lost = self._along(step, moved, seen, weights)
            if lost >= least:
                if taken is moved:
                    break
                taken, slope = moved, self.slopes(moved, seen)
                continue
            gained, least, moved = least - lost, lost, better
            if np.abs(step).max() < SETTLED or gained < SETTLED**2:
                break
        felt = np.abs(slope).max(axis=0) > FELT if len(seen) else np.zeros(len(moved), bool)
        curvature = (slope.T * weights) @ slope / NOISE**2 + np.eye(len(moved))
        covariance = np.asarray(np.linalg.inv(curvature), np.float64)
        return Fit(np.where(felt & (np.abs(moved) > SETTLED), moved, 0.0), covariance)

    def _fitted(self, seen: Ints) -> Ints:
        """Return the rows without tails, which tell little about rates; where only tails were measured, all of them."""
        plain = [index for index in seen if not any(tail in self.rows[index].stat for tail in TAILS)]
        return np.array(plain, dtype=np.int64) if plain else seen

    def _weights(self, seen: Ints) -> Floats:
        many = Counter(self.rows[index].setup for index in seen)
        return np.array([min(1.0, WORTH / many[self.rows[index].setup]) for index in seen])

    def _off(self, moved: Floats, seen: Ints) -> Floats:
        return (self.measured[seen] - self.log_predictions(moved, seen)) / NOISE

    def _loss(self, moved: Floats, seen: Ints, weights: Floats) -> float:
        size = np.abs(self._off(moved, seen))
        rho = np.where(size < OUTLIER, size**2, OUTLIER * (2 * size - OUTLIER))
        found = float(weights @ rho + moved @ moved)
        return found if math.isfinite(found) else math.inf

    def _along(self, step: Floats, moved: Floats, seen: Ints, weights: Floats) -> tuple[Floats, float]:
        """Return the best of a step and its halves, with its loss."""
        least = self._loss(moved, seen, weights)
        for halving in range(HALVINGS):
            tried = moved + step / 2**halving
            lost = self._loss(tried, seen, weights)
            if lost < least:
                return tried, lost
        return moved, least

    def _step(self, moved: Floats, slope: Floats, seen: Ints, weights: Floats) -> Floats:
        """Return where the linearised problem has its least within `limits`: what would leave them stays there."""
        off = np.nan_to_num(self._off(moved, seen))
        weighed = weights * np.minimum(1.0, OUTLIER / np.maximum(np.abs(off), 1e-9))
        curvature = (slope.T * weighed) @ slope / NOISE**2 + np.eye(len(moved))
        target = slope.T @ (weighed * (off + slope @ moved / NOISE)) / NOISE
        found, free = np.zeros(len(moved)), np.ones(len(moved), bool)
        low, high = self.limits
        while free.any():
            rest = target[free] - curvature[np.ix_(free, ~free)] @ found[~free]
            found[free] = np.linalg.solve(curvature[np.ix_(free, free)], rest)
            outside = free & ((found < low) | (found > high))
            if not outside.any():
                break
            found = np.where(outside, np.clip(found, low, high), found)
            free &= ~outside
        return found


def setups_of(rows: Sequence[Measurement]) -> list[Setup]:
    """Return the setups of some rows, in their order."""
    return list(dict.fromkeys(row.setup for row in rows))
