"""A plan: fleets that keep an SLO in every hour while the load grows by the month, what each costs, and a check.

Three fleets serve the same load. `static`: as many replicas as the highest rate of the month needs, all the time.
`scheduled`: as many as each window of the day needs, started a cold start earlier. `autoscaled`: the same after the
fact, so that replicas stay for the autoscaler's delay; whether it keeps up with a rising rate is found by simulation.
How much a fleet serves is searched for the whole fleet (`fleet_rates`).
"""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simulator.arrays import Ints
from simulator.cost.bill import HOURS_PER_MONTH
from simulator.cost.capacity import capacity
from simulator.cost.energy import idle_watts
from simulator.cost.fleet_rates import FleetRates
from simulator.cost.fleet_sizing import KINDS, FleetKind, GrowingLoad, Scaling, Sizing
from simulator.cost.packing import Packing
from simulator.cost.scenario import Scenario
from simulator.errors import Given, InfercastError, Setting, WorkloadError
from simulator.frames import Framed, frame
from simulator.reports.intervals import step_factors
from simulator.simulation.autoscaler import Autoscaler
from simulator.simulation.sessions import Sessions
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.rate_curves import RateCurve

if TYPE_CHECKING:
    import pandas as pd

RISE_S = 3 * 3600.0  # of the day before its busiest window, which a check of an autoscaled fleet begins with
CHECKED_REQUESTS = 100_000  # most requests of a check
JUST_ABOVE = 1 + 1e-6  # the highest rate of a fleet, so that another is needed
RAISES = 8  # fleets that are tried, each a replica larger, after one that does not keep the SLO
LEAST_CHECK_S = 3600.0  # a shorter one would flatter a fleet, which is empty when it begins
PAID_AROUND_THE_CLOCK = ("reserved", "owned")


class FleetMonth(NamedTuple):
    """One kind of fleet in one month, from 1: its fewest and most replicas, paid hours and dollars (None: no price)."""

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

    `within` is the share of requests that keep the SLO, which is demanded of a share `share`, and `keeps` whether the
    fleet does: one whose queue grows without end keeps none. `within_one_less`, `keeps_one_less`: with a replica less.
    """

    kind: FleetKind
    month: int
    replicas: int
    within: float
    within_one_less: float | None
    share: float
    keeps: bool
    keeps_one_less: bool | None


@dataclass(frozen=True, repr=False)
class FleetPlan(Framed):
    """A deployment's fleets for a demand: what each costs by the month.

    `rates`: what fleets serve within the SLO; their scenario is one replica, with the SLO and the offers that count.
    """

    rates: FleetRates
    demand: GrowingLoad
    sizing: Sizing
    scaling: Scaling

    @property
    def scenario(self) -> Scenario:
        """One replica."""
        return self.rates.scenario

    @property
    def is_pooled(self) -> bool:
        """Whether some replicas prefill alone, and the others decode."""
        return bool(self.rates.link_bytes_per_s)

    def in_pools(self, link_bytes_per_s: float) -> "FleetPlan":
        """Return the plan whose fleets are split in a prefill and a decode pool, with a link for each replica's caches.

        Raises WorkloadError where no split keeps the SLO, as `FleetRates` and `Sizing` do.
        """
        rates = FleetRates(self.scenario, self.rates.known, link_bytes_per_s, self.rates.sessions)
        sizing = replace(self.sizing, highest_per_s=rates.rate_per_s, least=rates.least)
        found = replace(self, rates=rates, sizing=sizing)
        found.most_at(found.busiest)
        return found

    @cached_property
    def months(self) -> tuple[FleetMonth, ...]:
        """Every kind of fleet in every month, by month."""
        return tuple(self._month(kind, month) for month in self.demand.every_month for kind in self.kinds)

    @property
    def kinds(self) -> tuple[FleetKind, ...]:
        """Kinds of fleet that make sense.

        Where the rate is the same all day, and what is paid around the clock, stays up around the clock. Two pools are
        not autoscaled: one would follow the other's delay.
        """
        commitments = {offer.commitment for offer in self.scenario.offers}
        if isinstance(self.demand.arrivals, OpenLoop) or commitments & set(PAID_AROUND_THE_CLOCK):
            return KINDS[:1]
        return KINDS[:2] if self.is_pooled else KINDS

    def usd(self, kind: FleetKind) -> float:
        """Return the dollars of a kind of fleet over all months; infinity without a price."""
        return sum(math.inf if each.usd is None else each.usd for each in self.months if each.kind == kind)

    def held(self, kind: FleetKind, month: int) -> Ints:
        """Return the replicas of a kind of fleet in each window of a day of a month, int64, of shape (windows,)."""
        size = self.sizing.by_load if kind == "autoscaled" else self.sizing.replicas
        return self.scaling.held(kind, size(self.demand.rates_per_s(month)), self.demand.window_s)

    def _month(self, kind: FleetKind, month: int) -> FleetMonth:
        rates_per_s, held = self.demand.rates_per_s(month), self.held(kind, month)
        starts_s = np.maximum(np.diff(held, prepend=held[-1]), 0) * self.scaling.cold_start_s
        share_of_month = HOURS_PER_MONTH / (len(held) * self.demand.window_s)
        hours = (held * self.demand.window_s + starts_s) * share_of_month
        usd = None
        if self.scenario.offers:
            windows = zip(held.tolist(), rates_per_s.tolist(), hours.tolist(), strict=True)
            usd = float(sum(spent * self._usd_per_hour(n, rate) / n for n, rate, spent in windows))
        mean, peak = float(rates_per_s.mean()), float(rates_per_s.max())
        return FleetMonth(kind, month, mean, peak, int(held.min()), int(held.max()), float(hours.sum()), usd)

    def _usd_per_hour(self, replicas: int, rate_per_s: float) -> float:
        """Return the dollars an hour of a fleet that shares a rate evenly, spare replicas included."""
        packing = self._packing(replicas)
        if not self.pays_electricity:
            return packing.usd_per_hour
        empty_w = packing.empty_devices * (idle_watts(self.scenario.deployment.hardware) or 0.0)
        return packing.usd_per_hour_at(replicas * self.rates.watts(rate_per_s / replicas) + empty_w)

    @cached_property
    def _packing(self) -> Callable[[int], Packing]:
        return cache(self.scenario.packing)

    @property
    def pays_electricity(self) -> bool:
        """Whether electricity comes on top of the price of a machine: of owned ones."""
        return any(offer.usd_per_kwh for offer in self.scenario.offers)

    def check(self, kind: FleetKind, month: int, more_seed: int = 1) -> FleetCheck:
        """Simulate a kind of fleet in a month, without its spare replicas: they are there for failures.

        A static or scheduled fleet is simulated in the busiest window, an autoscaled one from `RISE_S` before it on.
        `more_seed`: beyond the seed of the search, for random numbers other than its own.
        """
        most, seed = self.most_at(month), self.scenario.workload.seed + more_seed
        within, keeps = self._within(kind, month, most, seed)
        less = self._within(kind, month, most - 1, seed) if most > self.sizing.least else (None, None)
        return FleetCheck(kind, month, most, within, less[0], self.scenario.slo.share, keeps, less[1])

    @property
    def busiest(self) -> int:
        """Month with the highest rate, counted from 1."""
        return max(self.demand.every_month, key=lambda month: self.demand.rates_per_s(month).max())

    def most_at(self, month: int) -> int:
        """Return the most replicas of a month, without the spare ones."""
        return int(self.sizing.replicas(self.demand.rates_per_s(month)).max()) - self.sizing.spare

    def raised(self, month: int) -> "FleetPlan":
        """Return the plan with so much more headroom that the busiest window of a month has one more replica."""
        beyond_per_s = self.sizing.highest_per_s(self.most_at(month)) * JUST_ABOVE
        headroom = beyond_per_s / float(self.demand.rates_per_s(month).max()) - 1
        return replace(self, sizing=replace(self.sizing, headroom=headroom))

    def with_steps(self, factor: float) -> "FleetPlan | None":
        """Return the plan with every step time multiplied by `factor`; None where no fleet keeps the SLO then."""
        scenario = self.scenario.with_steps(factor)
        known = self.rates.known if self.is_pooled else capacity(scenario)  # of pools only where a search begins
        rates = replace(self.rates, scenario=scenario, known=known, _found={}, _watts={})
        found = replace(self, rates=rates, sizing=replace(self.sizing, highest_per_s=rates.rate_per_s))
        try:
            return found if known.rate_per_s and found.most_at(found.busiest) else None
        except WorkloadError:
            return None

    def _within(self, kind: FleetKind, month: int, replicas: int, seed: int) -> tuple[float, bool]:
        """Return the share of requests that keep the SLO, and whether the fleet does."""
        arrivals, span_s = self._busiest(kind, month)
        count = max(1, min(CHECKED_REQUESTS, round(arrivals.expected(span_s))))
        load = replace(self.scenario.workload, arrivals=arrivals, request_count=count, seed=seed)
        scaler = self._autoscaler(month, replicas) if kind == "autoscaled" else None
        seen = self.rates.report(self.rates.service(replicas, scaler), load)
        return seen.within_share, seen.meets_slo

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

    def _autoscaler(self, month: int, most: int) -> Autoscaler:
        """Return the autoscaler whose target is the requests in flight of a replica at the rate that it is sized for.

        By Little's law: rate x mean E2EL, that of one replica at its capacity, without the headroom.
        """
        wanted = self.sizing.replicas(self.demand.rates_per_s(month)) - self.sizing.spare
        in_flight = self.sizing.target_per_s(wanted) * self.rates.known.report.metrics["e2el"].values["mean"]
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
        return frame(self.months)


def plan(
    scenario: Scenario,
    demand: GrowingLoad,
    headroom: float = 0.0,
    spare: int = 0,
    scaling: Scaling | None = None,
    sessions: Sessions | None = None,
) -> FleetPlan:
    """Return a deployment's fleets for a demand; the highest rates within the SLO are searched (`FleetRates`).

    Raises WorkloadError where no load keeps the SLO, for a load that takes too many replicas, and as `capacity` does;
    InfercastError for a negative headroom or number of spares, and where no offer has the devices of a replica.
    """
    if not (headroom >= 0 and spare >= 0):
        given: Given = Setting("headroom", headroom), "with", Setting("spare", spare)
        raise InfercastError(given, "both are 0 or more", "Give, say, 20% and 1")
    if scenario.offers:
        scenario.packing(1)  # refuses, before anything is simulated
    found = capacity(scenario)
    if not found.rate_per_s:
        prompts = scenario.workload.prompts
        given = f"{scenario.deployment} within {scenario.slo}{f', {prompts}' if prompts else ''}"
        raise WorkloadError(given, found.breaks, "Loosen the SLO, or give shorter requests or larger replicas")
    rates = FleetRates(scenario, found, sessions=sessions or Sessions())
    sizing = Sizing(rates.rate_per_s, headroom, spare)
    made = FleetPlan(rates, demand, sizing, scaling or Scaling(scenario.start_s))
    made.most_at(made.busiest)
    return made


class StepRange(NamedTuple):
    """A plan with the shortest and with the longest steps between which a share `level` of measurements lies.

    None where no fleet keeps the SLO.
    """

    level: float
    shortest: FleetPlan | None
    longest: FleetPlan | None


class Picked(NamedTuple):
    """The cheapest fleet that keeps the SLO where it is busiest, and those that were cheaper and do not.

    `steps`: its interval, where one was asked for (`with_interval`).
    """

    plan: FleetPlan
    check: FleetCheck
    failed: tuple[FleetCheck, ...]
    steps: StepRange | None = None

    def with_interval(self, level: float) -> "Picked":
        """Return it with its interval at `level` (0 to 1), of the same kind of fleet."""
        ends = step_factors(self.plan.scenario.deployment, level)
        return self._replace(steps=StepRange(level, *map(self.plan.with_steps, ends)))

    @property
    def cost(self) -> tuple[float, int]:
        """Dollars over all months, infinity without a price; then devices of the largest fleet."""
        most = self.plan.most_at(self.plan.busiest) + self.plan.sizing.spare
        return self.plan.usd(self.check.kind), most * self.plan.scenario.deployment.devices


class PromptSplit(NamedTuple):
    """Two fleets instead of one, for prompts of up to `tokens` and for longer ones."""

    tokens: int
    fleets: tuple[Picked, Picked]

    @property
    def cost(self) -> tuple[float, int]:
        """Dollars over all months of both, infinity without a price; then devices of both."""
        (short_usd, short_devices), (long_usd, long_devices) = (each.cost for each in self.fleets)
        return short_usd + long_usd, short_devices + long_devices


def cheapest(plans: Iterable[FleetPlan]) -> Picked | None:
    """Return the cheapest fleet of all plans that keeps the SLO in its busiest month by simulation; None if none does.

    A fleet that does not is tried with one replica more, up to RAISES times, unless it is autoscaled: what starts too
    late is not helped by more of it. At equal price the simpler kind comes first; plans without a price come last.
    """
    failed: list[FleetCheck] = []
    waiting: list[tuple[float, int, int, int, FleetPlan]] = []
    for place, each in enumerate(plans):
        for kind in each.kinds:
            heapq.heappush(waiting, (each.usd(kind), KINDS.index(kind), place, 0, each))
    while waiting:
        _, kind_place, place, raises, each = heapq.heappop(waiting)
        kind = KINDS[kind_place]
        check = each.check(kind, each.busiest)
        if check.keeps:
            return Picked(each, check, tuple(failed))
        failed.append(check)
        if kind != "autoscaled" and raises < RAISES:
            larger = each.raised(each.busiest)
            heapq.heappush(waiting, (larger.usd(kind), kind_place, place, raises + 1, larger))
    return None
