"""Summary of one metric over many requests: mean, spread and quantiles, with confidence intervals from batch means."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from simulator.arrays import Floats
from simulator.reports.arrival_load import RunLength

BATCHES = 10  # consecutive parts of a run whose spread gives the confidence intervals
T_95 = 2.262  # Student's t, 9 degrees of freedom, two-sided 95 %
QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
MIN_TAIL = 4  # a batch needs this many values beyond its quantile


@dataclass(frozen=True)
class Statistic:
    """Mean, standard deviation and quantiles of one metric, with half-widths of 95 % confidence intervals.

    `values` and `half_widths` are in the metric's unit, keyed by "mean" and the names of QUANTILES; a half-width is NaN
    where there are too few values. `count` is the number of values. Half-widths cost as much as all the rest, so
    `find_half_widths` finds them when they are first asked for; None where there are none.
    """

    values: dict[str, float]
    std: float
    count: int
    find_half_widths: Callable[[], dict[str, float]] | None = None

    @cached_property
    def half_widths(self) -> dict[str, float]:
        """Half-widths of 95 % confidence intervals of `values`."""
        return self.find_half_widths() if self.find_half_widths else dict.fromkeys(self.values, float("nan"))

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def mean_of(draws: Sequence[Statistic]) -> Statistic:
    """Return the mean of a metric over independent runs: half-widths add up in squares and shrink with their number."""
    values = {name: float(np.mean([each.values[name] for each in draws])) for name in draws[0].values}
    spread = float(np.mean([each.std for each in draws]))
    return Statistic(values, spread, sum(each.count for each in draws), partial(_half_widths_of_mean, draws))


def _half_widths_of_mean(draws: Sequence[Statistic]) -> dict[str, float]:
    def over(name: str) -> float:
        return float(np.sqrt(np.sum([each.half_widths[name] ** 2 for each in draws]))) / len(draws)

    return {name: over(name) for name in draws[0].values}


def _any_length() -> None:
    return None


def statistic(values: Floats, find_length: Callable[[], RunLength | None] = _any_length) -> Statistic:
    """Summarise `values`, shape (requests,), float64, in order of arrival.

    There are half-widths only where a run has the length for them, None being any: it does not show in its own values,
    as one that missed the rare long queues looks calm (`arrival_load.py`).

    Neighbouring requests are correlated, so confidence intervals come from batch means: the half-width of the mean is t
    sqrt(s^2 c / k), with s^2 the variance of the means of k consecutive batches (Law, Simulation Modeling and Analysis,
    section 9.5.3) and c = (1 + r) / (1 - r) for batches that are still correlated, r their lag-1 correlation where
    positive (as in Skart; Tafazzoli and others, 2011). A quantile of level p lies between those of p - d and p + d,
    where d is the half-width of the mean of "is above it"; the farther of the two gives its half-width. There is none
    where p + d reaches 1: the run is too short to tell. Latencies are positive and skewed, so a half-width of h is
    taken as a factor: from x / e to x e with e = exp(h / x), of which the longer side counts. docs/trust.md has how
    often such intervals contain the truth.

    >>> statistic(np.arange(1000.0))["median"]
    499.5
    """
    if not len(values):
        return Statistic(dict.fromkeys(("mean", *QUANTILES), float("nan")), float("nan"), 0)
    quantiles = np.quantile(values, list(QUANTILES.values())).tolist()
    found = {"mean": float(values.mean())} | dict(zip(QUANTILES, quantiles, strict=True))
    return Statistic(found, float(values.std()), len(values), partial(_half_widths, values, found, find_length))


def _half_widths(
    values: Floats, found: dict[str, float], find_length: Callable[[], RunLength | None]
) -> dict[str, float]:
    length = find_length()
    if length and not length.is_enough():
        return dict.fromkeys(found, float("nan"))
    if length and values.std() > length.load.full_wait_s:
        length = None  # waits are but a part of what varies
    ordered, mean = np.sort(values), _half_width(values)
    half_widths = {"mean": float("nan") if length and not length.shows_mean(mean) else mean}
    for name, share in QUANTILES.items():
        half_widths[name] = _quantile_half_width(values, ordered, share, found[name], length)
    return {name: _as_factor(half, found[name]) for name, half in half_widths.items()}


def _as_factor(half_width: float, value: float) -> float:
    """Return the longer side of an interval from value / e to value e; NaN where e reaches 2, which tells little."""
    if value <= 0:
        return half_width
    if half_width < 1e-9 * value:
        return 0.0  # rounding errors only
    wide = value * math.expm1(half_width / value) if half_width < value else float("nan")
    return wide if wide < value else float("nan")


def _half_width(values: Floats) -> float:
    if len(values) < 2 * BATCHES * MIN_TAIL:
        return float("nan")
    ends = np.arange(BATCHES + 1) * len(values) // BATCHES
    means = np.add.reduceat(values, ends[:-1]) / np.diff(ends)
    around = means - means.mean()
    square = float(around @ around)
    if square <= BATCHES * (1e-9 * means[0]) ** 2:
        return 0.0  # rounding errors only
    correlation = max(0.0, float(around[1:] @ around[:-1]) / square)
    return T_95 * float((square / (BATCHES - 1) / BATCHES * (1 + correlation) / (1 - correlation)) ** 0.5)


def _quantile_half_width(
    values: Floats, ordered: Floats, share: float, quantile: float, length: RunLength | None
) -> float:
    if len(values) * (1 - share) < BATCHES * MIN_TAIL:
        return float("nan")
    levels = _half_width((values > quantile).astype(np.float64))
    if share + levels >= 1 or (length and not length.shows_level(1 - share, levels)):
        return float("nan")
    low, high = np.quantile(ordered, [share - levels, share + levels])  # no share is below a half, so both are shares
    return float(max(quantile - low, high - quantile))


def warm_up(values: Floats) -> int:
    """Return how many of the first values to drop before a steady state, by MSER-5 (White, Simulation, 1997).

    `values`: shape (requests,), float64. The cut minimises the squared standard error of the rest, over means of 5
    values, within the first half.
    """
    means = values[: len(values) // 5 * 5].reshape(-1, 5).mean(axis=1)
    if len(means) < 4:
        return 0
    left = np.arange(len(means), 0, -1, dtype=np.float64)
    tail_mean = np.cumsum(means[::-1])[::-1] / left
    tail_square = np.cumsum((means**2)[::-1])[::-1] / left
    error = np.maximum(tail_square - tail_mean**2, 0.0) / left
    return 5 * int(np.argmin(error[: len(means) // 2]))
