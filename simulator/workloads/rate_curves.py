"""Arrivals whose rate varies over the day: a curve from a file, or a sine."""

import csv
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator

from simulator.arrays import Floats
from simulator.errors import WorkloadError, nearest, reason
from simulator.files import open_text
from simulator.limits import in_range
from simulator.units import DAY_S
from simulator.workloads.arrivals import OpenLoop

WINDOW_S = 600.0  # of a synthetic day, within which the rate is constant
COLUMNS = ("window_start_s", "relative_request_rate")


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """Arrivals whose mean rate follows a curve: rate(t) = rate_per_s x shape(t) / mean shape, repeated after its end.

    Arrivals S_k of a process with rate 1 and the given burstiness are rescaled in time: request k arrives when the
    integral of the rate reaches S_k (burstiness 1 is the non-homogeneous Poisson process). `shape`, of shape
    (windows,), float64, is constant within windows of `window_s` seconds. Raises WorkloadError for rates that are
    negative, infinite or all 0.

    >>> curve = RateCurve(1.0, np.array([1.0, 3.0]), window_s=10.0, burstiness=math.inf)
    >>> curve.times_s(7, np.random.default_rng(0))  # 0.5 and then 1.5 per second
    array([ 0.        ,  2.        ,  4.        ,  6.        ,  8.        ,
           10.        , 10.66666667])
    """

    rate_per_s: float
    shape: Floats
    window_s: float
    burstiness: float = 1.0
    name: str = "a rate curve"
    concurrency: ClassVar[int] = 0

    def __post_init__(self) -> None:
        OpenLoop(self.rate_per_s, self.burstiness)  # refuses what no open loop can be
        shape = np.asarray(self.shape, np.float64)
        if not (len(shape) and np.isfinite(shape).all() and shape.min() >= 0 and shape.max() > 0 and self.window_s > 0):
            because = "its rates must be finite, 0 or more, and not all 0"
            raise WorkloadError(self.name, because, "Give one relative rate per window")
        object.__setattr__(self, "shape", shape)

    @property
    def span_s(self) -> float:
        """Length of the curve in seconds."""
        return len(self.shape) * self.window_s

    def times_s(self, count: int, rng: Generator) -> Floats:
        """Return `count` arrival times in seconds, shape (count,), float64, in order."""
        ticks = OpenLoop(1.0, self.burstiness).times_s(count, rng)
        edges = np.arange(len(self.shape) + 1) * self.window_s
        reached = np.concatenate([[0.0], np.cumsum(self.shape)]) * (self.rate_per_s * self.window_s / self.shape.mean())
        rounds = np.floor(ticks / reached[-1])
        within = np.interp(ticks - rounds * reached[-1], reached, edges)
        return np.maximum.accumulate(rounds * self.span_s + within)  # rounding at the seams

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same curve with another mean rate in requests/s."""
        return replace(self, rate_per_s=rate_per_s)

    def expected(self, span_s: float) -> float:
        """Return the mean number of arrivals in the first `span_s` seconds: the integral of the rate."""
        whole, rest_s = divmod(span_s, self.span_s)
        edges = np.arange(len(self.shape) + 1) * self.window_s
        reached = np.concatenate([[0.0], np.cumsum(self.shape)]) * (self.window_s / self.shape.mean())
        return self.rate_per_s * float(whole * self.span_s + np.interp(rest_s, edges, reached))

    def peak_per_s(self, span_s: float = math.inf) -> float:
        """Return the highest rate in the first `span_s` seconds, in requests/s; by default of the whole curve.

        >>> day = daily(10.0)
        >>> round(day.peak_per_s(), 2), round(day.peak_per_s(3600.0), 2)
        (18.0, 2.23)
        """
        windows = len(self.shape) if span_s >= self.span_s else max(1, math.ceil(span_s / self.window_s))
        return float(self.shape[:windows].max() / self.shape.mean() * self.rate_per_s)

    def describe(self) -> str:
        """Return the curve's name, mean rate and peak rate as text."""
        return f"{self.name} of mean {self.rate_per_s:g}/s, peak {self.peak_per_s():.3g}/s"


def daily(rate_per_s: float, swing: float = 0.8) -> RateCurve:
    """Return a synthetic day: rate x (1 - swing cos(2 pi t / day)), lowest at midnight, constant within WINDOW_S.

    Raises WorkloadError for a swing outside of 0 to 1.

    >>> daily(10.0).describe()
    'a sine of a day, swing 0.8, of mean 10/s, peak 18/s'
    """
    if not 0 <= swing <= 1:
        raise WorkloadError(f"swing {swing}", "it must be a share from 0 to 1", "Give, say, 0.8")
    middles = (np.arange(round(DAY_S / WINDOW_S)) + 0.5) * WINDOW_S
    shape = 1 - swing * np.cos(2 * math.pi * middles / DAY_S)
    return RateCurve(rate_per_s, shape, WINDOW_S, name=f"a sine of a day, swing {swing:g},")


def read_rate_curve(path: str | Path, workload: str = "", rate_per_s: float = 1.0) -> RateCurve:
    """Return a curve from a CSV file, plain or .gz: window_start_s, relative_request_rate, workload (as ServeGen).

    `workload` selects one curve where the file has several. Raises WorkloadError for a file that cannot be read,
    several curves without a selection, and windows that are not evenly spaced from 0. Source:
    github.com/alibaba/ServeGen.
    """
    path = Path(path)
    try:
        with open_text(path) as file:
            rows = list(csv.DictReader(file))
        if not rows:
            raise ValueError("it has no rows")
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            start_s, rate = (in_range(float(row[each]), f"{path.name}, {each} {row[each]}") for each in COLUMNS)
            curves.setdefault(row.get("workload", ""), []).append((start_s, rate))
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        remedy = f"Give a CSV with the columns {', '.join(COLUMNS)}, or sine:0.8 for a day that swings by 80%"
        raise WorkloadError(str(path), f"it cannot be read as a rate curve ({reason(error)})", remedy) from error
    if not workload and len(curves) != 1:
        given = f"{path.name} without the name of a curve"
        raise WorkloadError(given, f"it holds {', '.join(sorted(curves)) or 'none'}", f"Give, say, {path.name}:NAME")
    if workload and workload not in curves:
        raise WorkloadError(f"rate curve {workload!r} of {path.name}", "it is missing", nearest(workload, curves))
    starts, rates = np.array(sorted(curves[workload] if workload else next(iter(curves.values())))).T
    steps = np.diff(starts)
    if len(steps) == 0 or starts[0] != 0 or not np.all(steps == steps[0]):
        because = "its windows must be evenly spaced from 0 on"
        raise WorkloadError(f"{path.name} {workload}".strip(), because, "Fill the gaps with rates of 0")
    return RateCurve(rate_per_s, rates, float(steps[0]), name=workload or path.stem)
