"""A plan: fleets that keep an SLO in every hour while the load grows by the month, what each costs, and a check.

Three fleets serve the same load. `static`: as many replicas as the highest rate of the month needs, all the time.
`scheduled`: as many as each window of the day needs, started a cold start earlier. `autoscaled`: the same after the
fact, so that replicas stay for the autoscaler's delay; whether it keeps up with a rising rate is found by simulation.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from simulator.cost.bill import HOURS_PER_MONTH
from simulator.cost.capacity import Capacity, capacity
from simulator.cost.scenario import Scenario
from simulator.cost.service import Service, start_seconds
from simulator.errors import InfercastError, WorkloadError
from simulator.frames import Framed
from simulator.scheduler.state import Floats, Ints
from simulator.simulation.autoscaler import LOAD_BYTES_PER_S, Autoscaler
from simulator.simulation.routers import Router
from simulator.simulation.sent import sent
from simulator.units import DAY_S
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.rate_curves import RateCurve

if TYPE_CHECKING:
    import pandas as pd

FleetKind = Literal["static", "scheduled", "autoscaled"]
KINDS: tuple[FleetKind, ...] = get_args(FleetKind)
RISE_S = 3 * 3600.0  # of the day before its busiest window, which a check of an autoscaled fleet begins with
CHECKED_REQUESTS = 100_000  # most requests of a check
LEAST_CHECK_S = 3600.0  # a shorter one would flatter a fleet, which is empty when it begins
PAID_AROUND_THE_CLOCK = ("reserved", "owned")


@dataclass(frozen=True)
class GrowingLoad:
    """Requests per second over a day (or the span of a curve), growing by a share of itself each month.

    `arrivals`: the first month's, a constant rate or a curve. Raises InfercastError for no month and for a growth of
    -100 % or less.

    >>> GrowingLoad(OpenLoop(2.0), growth_per_month=0.1, months=3).rates_per_s(2)
    array([2.42])
    """

    arrivals: OpenLoop | RateCurve
    growth_per_month: float = 0.0
    months: int = 1

    def __post_init__(self) -> None:
        if not (self.months >= 1 and -1 < self.growth_per_month < math.inf):
            given = f"{self.months} months of growth by {self.growth_per_month:.0%}"
            raise InfercastError(given, "a plan has a month at least, and some load is left", "Give, say, 12 and 10%")

    def in_month(self, month: int) -> OpenLoop | RateCurve:
        """Return the arrivals of a month, counted from 0."""
        return self.arrivals.at_rate(self.arrivals.rate_per_s * (1 + self.growth_per_month) ** month)

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
    """How many replicas serve a rate: ceil(rate (1 + headroom) / capacity) + spare, and one at least.

    `capacity_per_s`: requests/s of one replica within the SLO. `headroom`: share of the rate that comes on top. `spare`
    replicas may fail without a breach (1 is N+1).

    >>> Sizing(2.0, headroom=0.2, spare=1).replicas(np.array([0.0, 5.0, 6.0])).tolist()
    [2, 4, 5]
    """

    capacity_per_s: float
    headroom: float = 0.0
    spare: int = 0

    def replicas(self, rates_per_s: Floats) -> Ints:
        """Return the replicas for each rate in requests/s, int64, of the shape of the rates."""
        wanted = np.ceil(rates_per_s * (1 + self.headroom) / self.capacity_per_s - 1e-9).astype(np.int64)
        return np.maximum(wanted, 1) + self.spare


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


class FleetMonth(NamedTuple):
    """One kind of fleet in one month: its fewest and most replicas, their paid hours and dollars (None: no price)."""

    kind: FleetKind
    month: int
    mean_per_s: float
    peak_per_s: float
    least: int
    most: int
    replica_hours: float
    usd: float | None


class FleetCheck(NamedTuple):
    """A fleet simulated around the busiest window of a month, on other random numbers than the search for it.

    `within` is the share of requests that keep the SLO, `within_one_less` the same with one replica less.
    """

    kind: FleetKind
    month: int
    replicas: int
    within: float
    within_one_less: float | None
    share: float

    @property
    def holds(self) -> bool:
        """Whether the demanded share of requests keeps the SLO."""
        return self.within >= self.share


@dataclass(frozen=True, repr=False)
class FleetPlan(Framed):
    """A deployment's fleets for a demand: what each costs by the month.

    `scenario`: one replica, with the SLO and the offers that count.
    """

    scenario: Scenario
    demand: GrowingLoad
    sizing: Sizing
    scaling: Scaling
    capacity: Capacity

    @cached_property
    def months(self) -> tuple[FleetMonth, ...]:
        """Every kind of fleet in every month, by month."""
        return tuple(self._month(kind, month) for month in range(self.demand.months) for kind in self.kinds)

    @property
    def kinds(self) -> tuple[FleetKind, ...]:
        """Kinds of fleet that make sense: what is paid around the clock stays up around the clock."""
        commitments = {offer.commitment for offer in self.scenario.offers}
        return KINDS[:1] if commitments & set(PAID_AROUND_THE_CLOCK) else KINDS

    def usd(self, kind: FleetKind) -> float:
        """Return the dollars of a kind of fleet over all months; infinity without a price."""
        return sum(math.inf if each.usd is None else each.usd for each in self.months if each.kind == kind)

    def held(self, kind: FleetKind, month: int) -> Ints:
        """Return the replicas of a kind of fleet in each window of a day of a month, int64, of shape (windows,)."""
        wanted = self.sizing.replicas(self.demand.rates_per_s(month))
        return self.scaling.held(kind, wanted, self.demand.window_s)

    def _month(self, kind: FleetKind, month: int) -> FleetMonth:
        rates_per_s, held = self.demand.rates_per_s(month), self.held(kind, month)
        starts_s = np.maximum(np.diff(held, prepend=held[-1]), 0) * self.scaling.cold_start_s
        share_of_month = HOURS_PER_MONTH / (len(held) * self.demand.window_s)
        hours = (held * self.demand.window_s + starts_s) * share_of_month
        usd = None
        if self.scenario.offers:
            per_hour = {n: self.scenario.packing(n).usd_per_hour / n for n in np.unique(held).tolist()}
            usd = float(sum(spent * per_hour[n] for spent, n in zip(hours.tolist(), held.tolist(), strict=True)))
        mean, peak = float(rates_per_s.mean()), float(rates_per_s.max())
        return FleetMonth(kind, month, mean, peak, int(held.min()), int(held.max()), float(hours.sum()), usd)

    def check(self, kind: FleetKind, month: int, seed: int = 1) -> FleetCheck:
        """Simulate a kind of fleet in a month, without its spare replicas: they are there for failures.

        A static or scheduled fleet is simulated in the busiest window, an autoscaled one from `RISE_S` before it on.
        """
        most = int(self.sizing.replicas(self.demand.rates_per_s(month)).max()) - self.sizing.spare
        within = self._within(kind, month, most, seed)
        less = self._within(kind, month, most - 1, seed) if most > 1 else None
        return FleetCheck(kind, month, most, within, less, self.scenario.slo.share)

    def _within(self, kind: FleetKind, month: int, replicas: int, seed: int) -> float:
        arrivals, span_s = self._busiest(kind, month)
        count = max(1, min(CHECKED_REQUESTS, round(arrivals.expected(span_s))))
        load = replace(self.scenario.workload, arrivals=arrivals, request_count=count, seed=seed)
        scaler = self._autoscaler(replicas) if kind == "autoscaled" else None
        service = Service(self.scenario.deployment, replicas, Router("least-outstanding"), scaler)
        return service.report(sent(load, self.scenario.deployment).requests(), slo=self.scenario.slo).within_share

    def _busiest(self, kind: FleetKind, month: int) -> tuple[OpenLoop | RateCurve, float]:
        """Return the arrivals of a check and its length in seconds."""
        rates_per_s, window_s = self.demand.rates_per_s(month), self.demand.window_s
        peak, arrivals = int(rates_per_s.argmax()), self.demand.in_month(month)
        if isinstance(arrivals, OpenLoop) or kind != "autoscaled":
            return OpenLoop(float(rates_per_s[peak]), arrivals.burstiness), max(window_s, LEAST_CHECK_S)
        before = min(math.ceil(RISE_S / window_s), len(rates_per_s) - 1)
        shape = np.roll(rates_per_s, before - peak)[: before + 1]
        part = replace(arrivals, rate_per_s=float(shape.mean()), shape=shape)
        return part, part.span_s

    def _autoscaler(self, most: int) -> Autoscaler:
        """Return the autoscaler whose target is the requests in flight of a replica at the rate that it is sized for.

        By Little's law: rate x mean E2EL, both at capacity, without the headroom.
        """
        in_flight = self.capacity.rate_per_s * self.capacity.report.metrics["e2el"].values["mean"]
        scaling = self.scaling
        return Autoscaler(
            target=max(1.0, in_flight / (1 + self.sizing.headroom)),
            max_replicas=most,
            interval_s=scaling.interval_s,
            down_delay_s=scaling.down_delay_s,
            cold_start_s=scaling.cold_start_s,
        )

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each month and kind of fleet; columns are those of `FleetMonth`."""
        import pandas as pd  # noqa: PLC0415  takes half a second

        return pd.DataFrame(self.months)


def plan(
    scenario: Scenario, demand: GrowingLoad, headroom: float = 0.0, spare: int = 0, scaling: Scaling | None = None
) -> FleetPlan:
    """Return a deployment's fleets for a demand; the rate of one replica within the SLO is searched (`capacity`).

    Raises WorkloadError where no load keeps the SLO, and as `capacity` does; InfercastError for a negative headroom or
    number of spares, and where no offer has the devices of a replica.
    """
    if not (headroom >= 0 and spare >= 0):
        given = f"headroom {headroom:.0%} and {spare} spare replicas"
        raise InfercastError(given, "both are 0 or more", "Give, say, 20% and 1")
    if scenario.offers:
        scenario.packing(1)  # refuses, before anything is simulated
    found = capacity(scenario)
    if not found.rate_per_s:
        raise WorkloadError(f"{scenario.deployment} within {scenario.slo}", found.breaks, "Loosen the SLO")
    sizing = Sizing(found.rate_per_s, headroom, spare)
    scaling = scaling or Scaling(start_seconds(scenario.deployment, LOAD_BYTES_PER_S))
    return FleetPlan(scenario, demand, sizing, scaling, found)


class Picked(NamedTuple):
    """The cheapest fleet that keeps the SLO where it is busiest, and those that were cheaper and do not."""

    plan: FleetPlan
    check: FleetCheck
    failed: tuple[FleetCheck, ...]


def cheapest(plans: Iterable[FleetPlan]) -> Picked | None:
    """Return the cheapest fleet of all plans that keeps the SLO in its busiest month by simulation; None if none does.

    At equal price the simpler kind comes first; plans without a price come last.
    """
    failed: list[FleetCheck] = []
    every = [(each, kind) for each in plans for kind in each.kinds]
    for each, kind in sorted(every, key=lambda one: (one[0].usd(one[1]), KINDS.index(one[1]))):
        busiest = max(range(each.demand.months), key=lambda month: each.demand.rates_per_s(month).max())
        check = each.check(kind, busiest)
        if check.holds:
            return Picked(each, check, tuple(failed))
        failed.append(check)
    return None
