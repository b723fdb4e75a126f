"""Whether a fleet serves more with a pool for prompts alone: the best split, and its highest rate."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.cost.capacity import PROBE_REQUESTS, Capacity
from simulator.cost.scenario import Scenario
from simulator.cost.service import Service
from simulator.errors import InfercastError, WorkloadError
from simulator.simulation.disaggregation import LINK_BYTES_PER_S
from simulator.simulation.routers import Router
from simulator.simulation.sent import sent
from simulator.workloads.arrivals import OpenLoop

STRIDE = 1.25  # from a rate that keeps the SLO to the next that is tried
HALVINGS = 6  # of a stride: the rate found is within 0.4 %
FLOOR_SHARE = 0.25  # of the mixed fleet's rate: a split that does not keep the SLO there is no rival
MOST_STRIDES = 16


@dataclass(frozen=True)
class Disaggregation:
    """Highest rates of a fleet within the SLO in requests/s: mixed, and with its replicas split in two pools.

    `prefill` of the `replicas` compute prompts in the best split. `split_per_s` is 0 where no split keeps the SLO at a
    quarter of the mixed fleet's rate.
    """

    replicas: int
    prefill: int
    split_per_s: float
    mixed_per_s: float

    @property
    def gain(self) -> float:
        """Share by which the best split serves more than the mixed fleet; below 0 it serves less.

        >>> Disaggregation(8, 3, split_per_s=11.0, mixed_per_s=10.0).gain
        0.10000000000000009
        """
        return self.split_per_s / self.mixed_per_s - 1


def disaggregation(
    scenario: Scenario, known: Capacity, replicas: int, link_bytes_per_s: float = LINK_BYTES_PER_S
) -> Disaggregation:
    """Return the best split of some replicas into a prefill and a decode pool, and what the same mixed fleet serves.

    `known`: the capacity of one replica. All simulations draw the same requests, so only rate and split differ. A split
    is searched further only if it keeps the SLO above the best rate so far: one simulation for each that does not.

    Raises InfercastError for fewer than two replicas, WorkloadError where the mixed fleet keeps the SLO at no rate
    tried, and as `simulate_fleet` does.
    """
    if replicas < 2:
        raise InfercastError(f"{replicas} replica in two pools", "each pool needs one", "Ask for a higher rate")
    one = known.rate_per_s * known.report.metrics["e2el"].values["mean"]  # requests in flight, by Little's law
    count = max(PROBE_REQUESTS, round(10 * one * replicas))
    load = replace(scenario.workload, request_count=count)
    if not isinstance(load.arrivals, OpenLoop):
        load = replace(load, arrivals=OpenLoop(1.0))

    def keeps(prefill: int) -> Callable[[float], bool]:
        router = Router("least-outstanding")
        service = Service(
            scenario.deployment, replicas, router, prefill_replicas=prefill, link_bytes_per_s=link_bytes_per_s
        )

        def at(rate_per_s: float) -> bool:
            seen = service.report(sent(load.at_rate(rate_per_s), scenario.deployment).requests(), slo=scenario.slo)
            overloaded = seen.report.overloaded or seen.decode_queue_growth_per_s > 0
            return seen.within_share >= scenario.slo.share and not overloaded

        return at

    together = replicas * known.rate_per_s
    starts = (together * share for share in (1.0, 0.8, 0.6, FLOOR_SHARE))
    mixed_per_s = next((rate for start in starts if (rate := highest(keeps(0), start))), 0.0)
    if not mixed_per_s:
        because = "it breaks the SLO at a quarter of its replicas' rates already"
        raise WorkloadError(f"a fleet of {replicas} replicas", because, "Give longer bounds or more requests")
    best, split_per_s = 0, 0.0
    for prefill in range(1, replicas):
        start = split_per_s * (1 + (STRIDE - 1) / 2**HALVINGS) or FLOOR_SHARE * mixed_per_s
        if rate_per_s := highest(keeps(prefill), start):
            best, split_per_s = prefill, rate_per_s
    return Disaggregation(replicas, best, split_per_s, mixed_per_s)


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
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
