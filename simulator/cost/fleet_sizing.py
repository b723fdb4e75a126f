"""How large a fleet is in each hour: a growing load, replicas for each rate, and what changing their number takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.cost.bisection import bisect_first
from simulator.errors import InfercastError, Setting, WorkloadError
from simulator.units import DAY_S
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.rate_curves import RateCurve

FleetKind = Literal["static", "scheduled", "autoscaled"]
KINDS: tuple[FleetKind, ...] = get_args(FleetKind)
MOST_REPLICAS = 1_000  # of a fleet
ROUNDING_PER_S = 1e-9  # of rates that are equal


@dataclass(frozen=True)
class GrowingLoad:
    """Requests per second over a day (or the span of a curve), growing by a share of itself each month after the first.

    `arrivals`: the first month's, a constant rate or a curve. Raises InfercastError for no month and for a growth of
    -100 % or less.

    >>> GrowingLoad(OpenLoop(2.0), growth_per_month=0.1, months=3).rates_per_s(3)
    array([2.42])
    """

    arrivals: OpenLoop | RateCurve
    growth_per_month: float = 0.0
    months: int = 1

    def __post_init__(self) -> None:
        if not (self.months >= 1 and -1 < self.growth_per_month < math.inf):
            given = Setting("months", self.months), "with", Setting("growth_per_month", self.growth_per_month)
            raise InfercastError(given, "a plan has a month at least, and some load is left", "Give, say, 12 and 10%")

    @property
    def every_month(self) -> range:
        """Months, counted from 1."""
        return range(1, self.months + 1)

    def part(self, share: float) -> "GrowingLoad":
        """Return the load of a share of the requests."""
        return replace(self, arrivals=self.arrivals.at_rate(self.arrivals.rate_per_s * share))

    def in_month(self, month: int) -> OpenLoop | RateCurve:
        """Return the arrivals of a month, counted from 1."""
        return self.arrivals.at_rate(self.arrivals.rate_per_s * (1 + self.growth_per_month) ** (month - 1))

    def rates_per_s(self, month: int) -> Floats:
        """Return the mean rate of each window of the day in requests/s, shape (windows,), float64."""
        arrivals = self.in_month(month)
        if isinstance(arrivals, OpenLoop):
            return np.array([arrivals.rate_per_s])
        return np.asarray(arrivals.shape / arrivals.shape.mean() * arrivals.rate_per_s)

    @property
    def window_s(self) -> float:
        """Seconds of a window: one rate holds for so long."""
        return self.arrivals.window_s if isinstance(self.arrivals, RateCurve) else DAY_S


@dataclass(frozen=True)
class Sizing:
    """How many replicas serve a rate: the fewest whose highest rate is rate (1 + headroom), and the spare ones.

    `highest_per_s`: requests/s within the SLO of a fleet of so many replicas, of `least` or more. `headroom`: share of
    the rate that comes on top. `spare` replicas may fail without a breach (1 is N+1).

    >>> Sizing(lambda replicas: 2.0 * replicas, headroom=0.2, spare=1).replicas(np.array([0.0, 5.0, 6.0])).tolist()
    [2, 4, 5]
    """

    highest_per_s: Callable[[int], float]
    headroom: float = 0.0
    spare: int = 0
    least: int = 1

    def replicas(self, rates_per_s: Floats) -> Ints:
        """Return the replicas for each rate in requests/s, int64, of the shape of the rates.

        Raises WorkloadError for a rate that takes more than MOST_REPLICAS.
        """
        different, places = np.unique(rates_per_s, return_inverse=True)
        highest_per_s = cache(self.highest_per_s)
        needed = (different * (1 + self.headroom) - ROUNDING_PER_S).tolist()
        return np.array([self._fewest(each, highest_per_s) for each in needed], np.int64)[places] + self.spare

    def _fewest(self, rate_per_s: float, highest_per_s: Callable[[int], float]) -> int:
        low, high = self.least - 1, self.least
        while highest_per_s(high) < rate_per_s:
            if high == MOST_REPLICAS:
                room = f" with {self.headroom:.0%} of headroom" if self.headroom else ""
                given = f"{rate_per_s / (1 + self.headroom):,.0f} requests/s{room}"
                because = f"{MOST_REPLICAS:,} replicas serve {highest_per_s(high):,.0f}/s"
                raise WorkloadError(given, because, "Plan a part of the load, or larger replicas")
            low, high = high, min(2 * high, MOST_REPLICAS)
        return bisect_first(lambda replicas: highest_per_s(replicas) >= rate_per_s, low, high)

    def by_load(self, rates_per_s: Floats) -> Ints:
        """Return the replicas that an autoscaler wants, which has one target for every size of the fleet.

        It is what a replica of the smallest fleet serves, so that this one keeps the SLO; never more than `replicas`.
        """
        wanted = self.replicas(rates_per_s) - self.spare
        alone = rates_per_s * (1 + self.headroom) / self.target_per_s(wanted)
        return np.asarray(np.clip(np.ceil(alone - ROUNDING_PER_S), wanted.min(), wanted.max()), np.int64) + self.spare

    def target_per_s(self, wanted: Ints) -> float:
        """Return the requests/s of a replica in the smallest of some fleets, within the SLO."""
        least = int(wanted.min())
        return self.highest_per_s(least) / least


@dataclass(frozen=True)
class Scaling:
    """What changing the number of replicas takes, in seconds.

    `cold_start_s`: from a replica's start to its first request. `interval_s`, `down_delay_s`: the autoscaler looks so
    often, and stops replicas that were not wanted for so long (`Autoscaler`).
    """

    cold_start_s: float
    interval_s: float = 15.0
    down_delay_s: float = 300.0

    def held(self, kind: FleetKind, wanted: Ints, window_s: float) -> Ints:
        """Return the replicas that are up in each window of a day that repeats, int64, of the shape of `wanted`.

        A scheduled fleet has those that are wanted; an autoscaled one keeps them for `down_delay_s` longer, rounded up
        to windows; a static one has the most at any time.

        >>> Scaling(60.0).held("autoscaled", np.array([1, 3, 2, 1]), window_s=300.0).tolist()
        [1, 3, 3, 2]
        """
        if kind == "static":
            return np.full_like(wanted, wanted.max())
        later = math.ceil(self.down_delay_s / window_s) if kind == "autoscaled" else 0
        rolled = [np.roll(wanted, shift) for shift in range(min(later, len(wanted) - 1) + 1)]
        return np.asarray(np.max(rolled, axis=0))
