"""Arrivals whose rate rises and falls over the day: a curve from a file, or a plain sine."""

import csv
import gzip
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator

from simulator.errors import WorkloadError, nearest, reason
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import FloatArray

DAY_S = 86_400.0
COLUMNS = ("window_start_s", "relative_request_rate")


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """A process of some burstiness on a clock that runs with the rate: rate(t) = mean rate x shape(t) / mean shape.

    With unit-rate arrivals S_k the k-th request arrives where the integral of the rate reaches S_k (time rescaling;
    burstiness 1 is the non-homogeneous Poisson process). `shape` is constant within windows of `window_s`, and begins
    again after its end. The first request arrives as soon as the rate is above 0.

    >>> curve = RateCurve(1.0, np.array([1.0, 3.0]), window_s=10.0, burstiness=math.inf)
    >>> curve.times_s(7, np.random.default_rng(0))  # 0.5 and then 1.5 per second
    array([ 0.        ,  2.        ,  4.        ,  6.        ,  8.        ,
           10.        , 10.66666667])
    """

    rate_per_s: float
    shape: FloatArray
    window_s: float
    burstiness: float = 1.0
    name: str = "a rate curve"
    concurrency: ClassVar[int] = 0

    def __post_init__(self) -> None:
        OpenLoop(self.rate_per_s, self.burstiness)  # refuses what no open loop can be
        shape = np.asarray(self.shape, np.float64)
        if not (len(shape) and np.isfinite(shape).all() and shape.min() >= 0 and shape.max() > 0 and self.window_s > 0):
            because = "its rates are not finite numbers from 0 on, or all are 0"
            raise WorkloadError(self.name, because, "Give one relative rate per window")
        object.__setattr__(self, "shape", shape)

    @property
    def span_s(self) -> float:
        """The length of the curve."""
        return len(self.shape) * self.window_s

    def times_s(self, count: int, rng: Generator) -> FloatArray:
        """Return `count` arrival times."""
        ticks = OpenLoop(1.0, self.burstiness).times_s(count, rng)
        edges = np.arange(len(self.shape) + 1) * self.window_s
        reached = np.concatenate([[0.0], np.cumsum(self.shape)]) * (self.rate_per_s * self.window_s / self.shape.mean())
        rounds = np.floor(ticks / reached[-1])
        within = np.interp(ticks - rounds * reached[-1], reached, edges)
        return np.maximum.accumulate(rounds * self.span_s + within)  # rounding at the seams

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same shape at another mean rate."""
        return replace(self, rate_per_s=rate_per_s)

    def expected(self, span_s: float) -> float:
        """Return how many requests arrive on average in the first so many seconds: the integral of the rate."""
        whole, rest_s = divmod(span_s, self.span_s)
        edges = np.arange(len(self.shape) + 1) * self.window_s
        reached = np.concatenate([[0.0], np.cumsum(self.shape)]) * (self.window_s / self.shape.mean())
        return self.rate_per_s * float(whole * self.span_s + np.interp(rest_s, edges, reached))

    def describe(self) -> str:
        """Name the curve, its mean and its peak."""
        peak = float(self.shape.max() / self.shape.mean() * self.rate_per_s)
        return f"{self.name} of mean {self.rate_per_s:g}/s, peak {peak:.3g}/s"


def daily(rate_per_s: float, swing: float = 0.8, window_s: float = 600.0) -> RateCurve:
    """Return a made-up day: rate x (1 - swing cos(2 pi t / day)), lowest at midnight.

    >>> daily(10.0).describe()
    'a sine of a day, swing 0.8, of mean 10/s, peak 18/s'
    """
    if not 0 <= swing <= 1:
        raise WorkloadError(f"swing {swing}", "it is a share from 0 to 1", "Give, say, 0.8")
    middles = (np.arange(round(DAY_S / window_s)) + 0.5) * window_s
    shape = 1 - swing * np.cos(2 * math.pi * middles / DAY_S)
    return RateCurve(rate_per_s, shape, window_s, name=f"a sine of a day, swing {swing:g},")


def read_rate_curve(path: str | Path, workload: str = "", rate_per_s: float = 1.0) -> RateCurve:
    """Read a curve from CSV, plain or .gz, with ServeGen's columns: window_start_s, relative_request_rate, workload.

    `workload` names one where the file holds several. Raises WorkloadError for anything that is no such curve.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            curves.setdefault(row.get("workload", ""), []).append((float(row[COLUMNS[0]]), float(row[COLUMNS[1]])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = f"Give a CSV with the columns {', '.join(COLUMNS)}"
        raise WorkloadError(str(path), f"no rate curve can be read from it ({reason(error)})", remedy) from error
    if not workload and len(curves) != 1:
        given = f"{path.name} without the name of a curve"
        raise WorkloadError(given, f"it holds {', '.join(sorted(curves)) or 'none'}", f"Give, say, {path.name}:NAME")
    if workload and workload not in curves:
        raise WorkloadError(f"rate curve {workload!r} of {path.name}", "it is not in it", nearest(workload, curves))
    starts, rates = np.array(sorted(curves[workload] if workload else next(iter(curves.values())))).T
    steps = np.diff(starts)
    if len(steps) == 0 or starts[0] != 0 or not np.all(steps == steps[0]):
        because = "its windows do not follow each other evenly from 0 on"
        raise WorkloadError(f"{path.name} {workload}".strip(), because, "Fill the gaps with rates of 0")
    return RateCurve(rate_per_s, rates, float(steps[0]), name=workload or path.stem)
