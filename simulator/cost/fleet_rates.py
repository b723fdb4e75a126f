"""Highest rates of whole fleets within an SLO, with mixed replicas or a pool for prompts alone, by simulation."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from simulator.cost.bisection import bisect_first, bisect_rate
from simulator.cost.capacity import PROBE_REQUESTS, Capacity
from simulator.cost.energy import idle_watts, power_w
from simulator.cost.scenario import Scenario
from simulator.cost.service import Service, ServiceReport
from simulator.errors import WorkloadError
from simulator.simulation.autoscaler import Autoscaler
from simulator.simulation.engine_workload import engine_workload
from simulator.simulation.routers import Router
from simulator.simulation.sessions import Sessions
from simulator.workloads.workload import Workload

STRIDE = 1.25  # from a rate that keeps the SLO to the next that is tried
HALVINGS = 6  # of a stride: the rate found is within 0.4 %
MOST_STRIDES = 16
# Of the rate of as many replicas alone, where a search begins: a fleet that keeps the SLO at none of them is no rival
STARTS = (1.0, 0.8, 0.6, 0.25)
LONGER_STARTS = 0.1, 0.04  # of sessions, whose prompts grow
FEW = 4  # replicas: if such a fleet keeps the SLO at no rate tried, larger ones are not tried
EXACT = 8  # up to so many replicas each fleet is simulated
SIZES = (*range(1, EXACT + 1), 12, 16, 24, 32, 48, 64)


class FleetRate(NamedTuple):
    """Highest rate of a fleet within the SLO in requests/s, and how many of its replicas prefill alone."""

    rate_per_s: float
    prefill: int = 0


@dataclass(frozen=True)
class FleetRates:
    """Highest rates within the SLO of fleets of one deployment, by their number of replicas; each searched once.

    The router sends a request to the replica with the fewest in flight, so many replicas serve more than as many alone;
    of sessions, to where its history is cached. Fleets of SIZES replicas are simulated, all with the same requests.
    Between two of them the rate of a replica is interpolated in 1 / sqrt(replicas), by which what a fleet holds in
    reserve against chance falls (square-root staffing; Halfin and Whitt, Operations Research, 1981); beyond the largest
    it is that of the largest.

    `known`: the capacity of one replica. `link_bytes_per_s` above 0: two pools, of which the best split is searched.
    Methods raise WorkloadError where no fleet of up to FEW replicas keeps the SLO at the lowest share of its replicas'
    rates that is tried (STARTS, LONGER_STARTS), and as `simulate_fleet` does.
    """

    scenario: Scenario
    known: Capacity
    link_bytes_per_s: float = 0.0
    sessions: Sessions = field(default_factory=Sessions)
    _found: dict[int, FleetRate] = field(default_factory=dict, compare=False, repr=False)
    _watts: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def router(self) -> str:
        """The router, which sends a session to where its history is cached, unless that replica is far busier."""
        return "least-outstanding" if self.sessions.turns == 1 else "prefix-affinity"

    def report(self, service: Service, load: Workload) -> ServiceReport:
        """Return what clients see of a load on a fleet."""
        requests, clients = self.sessions.requests(engine_workload(load, self.scenario.deployment))
        return service.report(requests, clients, self.scenario.slo)

    @property
    def least(self) -> int:
        """Replicas of the smallest fleet: each of two pools needs one."""
        return 2 if self.link_bytes_per_s else 1

    def rate_per_s(self, replicas: int) -> float:
        """Return the highest rate of a fleet in requests/s."""
        below, above = _around(replicas)
        rates = [self._searched(size).rate_per_s / size for size in (below, above)]
        share = 0.0 if below == above else (below**-0.5 - replicas**-0.5) / (below**-0.5 - above**-0.5)
        return replicas * (rates[0] + share * (rates[1] - rates[0]))

    def prefill(self, replicas: int) -> int:
        """Return how many of a fleet's replicas prefill alone in the best split; 0 without pools."""
        below, _ = _around(replicas)
        found = self._searched(below).prefill
        return min(max(round(found * replicas / below), 1), replicas - 1) if found else 0

    def service(self, replicas: int, autoscaler: Autoscaler | None = None) -> Service:
        """Return a fleet of so many replicas, in its best split."""
        return self._service(replicas, self.prefill(replicas), autoscaler)

    def watts(self, rate_per_s: float) -> float:
        """Return the mean power of a replica at its share of a load in requests/s, an estimate (`energy.power_w`).

        Simulated at a replica's highest rate times powers of 2, and linear between two of them. 0 without a TDP.
        """
        if rate_per_s <= 0:
            return (idle_watts(self.scenario.deployment.hardware) or 0.0) * self.scenario.deployment.devices
        below = math.floor(math.log2(rate_per_s / self.known.rate_per_s))
        low_per_s = self.known.rate_per_s * 2.0**below
        return float(np.interp(rate_per_s, (low_per_s, 2 * low_per_s), list(map(self._watts_at, (below, below + 1)))))

    def _watts_at(self, octave: int) -> float:
        """Return the power at a replica's highest rate times 2 to a power."""
        if octave not in self._watts:
            rate_per_s = self.known.rate_per_s * 2.0**octave * self.least
            load = replace(self.scenario.workload, request_count=PROBE_REQUESTS).at_rate(rate_per_s)
            seen = self.report(self.service(self.least), load).report
            self._watts[octave] = power_w(self.scenario.deployment, seen) or 0.0
        return self._watts[octave]

    def fewest(self, rate_per_s: float, enough: int) -> int:
        """Return the replicas of the smallest mixed fleet that keeps the SLO at a rate in requests/s, by bisection.

        `enough`: replicas that keep it alone, each with its share of the requests: no more are tried.
        """
        return bisect_first(lambda replicas: self._keeps(replicas)(rate_per_s), 0, enough)

    def _service(self, replicas: int, prefill: int, autoscaler: Autoscaler | None = None) -> Service:
        fleet = Service(self.scenario.deployment, replicas, Router(self.router), autoscaler)
        return replace(fleet, prefill_replicas=prefill, link_bytes_per_s=self.link_bytes_per_s) if prefill else fleet

    @property
    def _starts(self) -> tuple[float, ...]:
        """Shares of the rate of as many replicas alone, at which a search begins."""
        return (*STARTS, *LONGER_STARTS) if self.sessions.turns > 1 and not self.link_bytes_per_s else STARTS

    def _searched(self, replicas: int) -> FleetRate:
        if replicas not in self._found:
            if replicas > FEW and not self._searched(FEW).rate_per_s:
                given = f"{'prefill and decode pools' if self.link_bytes_per_s else 'a fleet'} within the SLO"
                because = f"none of up to {FEW} replicas keeps it at {self._starts[-1]:.0%} of its replicas' rates"
                raise WorkloadError(given, because, "Give longer bounds, or one pool of mixed replicas")
            search = self._split if self.link_bytes_per_s else self._mixed
            self._found[replicas] = search(replicas)
        return self._found[replicas]

    def _mixed(self, replicas: int) -> FleetRate:
        if replicas == 1 and self.sessions.turns == 1:
            return FleetRate(self.known.rate_per_s)
        starts = (share * replicas * self.known.rate_per_s for share in self._starts)
        return FleetRate(next((rate for start in starts if (rate := highest(self._keeps(replicas), start))), 0.0))

    def _split(self, replicas: int) -> FleetRate:
        """Return the best split, found from that of half as many replicas by moving one replica as long as it helps."""
        half = replicas // 2
        share = self._searched(half).prefill / half if half >= self.least else 0.5
        best = FleetRate(0.0, min(max(round(share * replicas), 1), replicas - 1))
        floor_per_s = STARTS[-1] * replicas * self.known.rate_per_s
        best = best._replace(rate_per_s=highest(self._keeps(replicas, best.prefill), floor_per_s))
        for step in (-1, 1):
            while 0 < (prefill := best.prefill + step) < replicas:
                start = best.rate_per_s * (1 + (STRIDE - 1) / 2**HALVINGS) or floor_per_s
                if not (rate_per_s := highest(self._keeps(replicas, prefill), start)):
                    break
                best = FleetRate(rate_per_s, prefill)
        return best

    def _keeps(self, replicas: int, prefill: int = 0) -> Callable[[float], bool]:
        """Return whether a fleet keeps the SLO at a rate in requests/s."""
        scenario, service = self.scenario, self._service(replicas, prefill)
        lasting_s = self.known.report.metrics["e2el"].values["mean"] + (self.sessions.turns - 1) * self.sessions.think_s
        in_flight = self.known.rate_per_s * lasting_s  # of one replica, those who think included, by Little's law
        load: Workload = replace(scenario.workload, request_count=max(PROBE_REQUESTS, round(10 * in_flight * replicas)))

        def at(rate_per_s: float) -> bool:
            return self.report(service, load.at_rate(rate_per_s)).meets_slo

        return at


def _around(replicas: int) -> tuple[int, int]:
    """Return the sizes of SIZES next to some replicas, equal where these are one of them or more than all.

    >>> _around(6), _around(20), _around(1000)
    ((6, 6), (16, 24), (64, 64))
    """
    below = max(size for size in SIZES if size <= replicas)
    return below, min((size for size in SIZES if size >= replicas), default=below)


def highest(keeps: Callable[[float], bool], start_per_s: float) -> float:
    """Return the highest rate that `keeps` an SLO, from `start_per_s` requests/s on; 0 if that breaks it.

    Within 0.4 %, and `STRIDE` ** `MOST_STRIDES` times the start at most.

    >>> round(highest(lambda rate_per_s: rate_per_s <= 7.0, 2.0), 2)
    6.99
    """
    if not keeps(start_per_s):
        return 0.0
    low = start_per_s
    for _ in range(MOST_STRIDES):
        high = low * STRIDE
        if not keeps(high):
            break
        low = high
    else:
        return low
    return bisect_rate(keeps, bool, ((low, True), (high, False)), HALVINGS)[0][0]
