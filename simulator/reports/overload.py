"""Whether a run is overloaded, or a longer one would be, and what queues then: the one place that decides it.

A run shows a queue that grows (`Queue`, `decode_queue_growth_per_s`), if it is long enough. A shorter one does not, and
then its loads tell: requests that come faster than full steps serve them (`arrival_load`), or than the links between
two pools carry their KV caches. A load of 1 or more has no steady state, so that a longer run is overloaded.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from simulator.reports.arrival_load import arrival_loads, rate_per_s
from simulator.reports.queue_growth import GROWTH_SHARE, LEAST_GROWTH, Queue
from simulator.simulation.engine_loop import Run
from simulator.simulation.fleet_run import FleetRun

Queueing = Literal["requests", "decoding", "links"]
AFTER_FIRST = ("tpot", "ttfv", "e2el")
GROWING = {"requests": ("ttft", "ttfv", "e2el", "queue"), "decoding": AFTER_FIRST, "links": AFTER_FIRST}
QUEUES = {"requests": "the queue", "decoding": "the queue for decoding", "links": "the queue for the links"}


class Overload(NamedTuple):
    """What queues for ever, and by how many requests/s it grows.

    `queueing`: "requests" before their first token, "decoding" behind a prefill pool, or KV caches for the "links"
    between both pools. `is_seen`: in the run itself; else a longer one would show it.
    """

    queueing: Queueing
    growth_per_s: float
    is_seen: bool = True

    @property
    def queue(self) -> str:
        """The queue, in words."""
        return QUEUES[self.queueing]

    @property
    def because(self) -> str:
        """Why no longer run keeps any bound, in words."""
        if self.is_seen:
            return f"{self.queue} grows without end"
        return "requests come faster than full steps serve them"

    @property
    def growing(self) -> tuple[str, ...]:
        """Names of the latencies that grow with the length of the run; TPOT and ITL of a full engine settle."""
        return GROWING[self.queueing]


def overload(runs: Sequence[Run]) -> Overload | None:
    """Return what queues for ever in the first of some draws of one load; None where the engines keep up.

    Where it does not show in that run, the mean load over all draws tells. None in a closed loop, whose queue cannot
    grow, and where users give up waiting.
    """
    if runs[0].requests.concurrency or _is_left(runs[0]):
        return None
    return _seen(runs[0]) or _to_come(runs)


def _seen(run: Run) -> Overload | None:
    """Return the queue that a run shows to grow, if any."""
    queue = Queue(run)
    if queue.grows:
        return Overload("requests", queue.growth_per_s)
    per_s = decode_queue_growth_per_s(run)
    return Overload("decoding", per_s) if per_s else None


def _to_come(runs: Sequence[Run]) -> Overload | None:
    """Return what would queue in a longer run, if anything; links of 1 or more queue from the first request on."""
    come_per_s = float(np.mean([rate_per_s(each) for each in runs]))
    if not np.isfinite(come_per_s):
        return None
    of_engines = [arrival_loads(each) for each in runs]
    found: dict[Queueing, float] = {"links": float(np.mean([_link_load(each) for each in runs]))}
    found |= {name: float(np.mean([each[name].least for each in of_engines])) for name in of_engines[0]}
    queueing = next((name for name, load in found.items() if load >= 1), None)
    return queueing and Overload(queueing, come_per_s * (1 - 1 / found[queueing]), is_seen=queueing == "links")


def _is_left(run: Run) -> bool:
    return isinstance(run, FleetRun) and bool(len(run.abandoned) or run.timeouts.any())


def _link_load(run: Run) -> float:
    """Return the seconds of transfers that come per second and link; 1 saturates it."""
    if not isinstance(run, FleetRun) or not run.prefill_replicas:
        return 0.0
    return rate_per_s(run) * float(run.transfer_s.mean()) / run.prefill_replicas


def decode_queue_growth_per_s(run: Run) -> float:
    """Return the growth of the decode pool's queue in requests/s, while the second half of the requests arrived.

    The slope of a straight line through the waiting requests at each decode step, times the decode replicas. 0 where
    the queue emptied, where it grew by no more than that of a stable engine may (`GROWTH_SHARE`, `LEAST_GROWTH`), and
    without such a pool.
    """
    if not isinstance(run, FleetRun) or not run.prefill_replicas:
        return 0.0
    arrival_s = run.requests.arrival_s
    half_s, last_s = arrival_s[len(arrival_s) // 2], arrival_s[-1]
    steps = run.steps[(run.steps.start_s >= half_s) & (run.steps.start_s <= last_s)]
    steps = steps[steps.replica >= run.prefill_replicas]
    if len(steps) < 2 or not steps.waiting.all():
        return 0.0
    slope = np.polyfit(steps.start_s - half_s, steps.waiting, 1)[0] * (run.replicas - run.prefill_replicas)
    least = max(GROWTH_SHARE * len(arrival_s) / 2, LEAST_GROWTH)
    return float(slope) if slope * (last_s - half_s) > least else 0.0
