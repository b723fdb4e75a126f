"""What changes the replicas of a fleet: an autoscaler, failures and repairs. Rules: docs/serving-rules.md, A and X."""

import math
from dataclasses import dataclass

from simulator.errors import InfercastError, nearest
from simulator.profile import Figure, Source
from simulator.scheduler.jit import compiled
from simulator.scheduler.state import reset, view
from simulator.scheduler.waiting_queue import dequeue
from simulator.simulation.clients import cancel, forget
from simulator.simulation.fleet_state import (
    DRAINING,
    FAILED,
    OFF,
    STARTING,
    UP,
    World,
    append,
    first_place,
    inbox,
    log,
    outstanding,
    retire,
    take_out,
)

CONCURRENCY_METRIC, QUEUE_METRIC = 1, 2
METRICS = {"concurrency": CONCURRENCY_METRIC, "queue": QUEUE_METRIC}
LOAD_BYTES_PER_S = Figure(
    1e9,
    Source(text="an NVMe drive or a network share to a device, as vLLM reads safetensors", date="", evidence="guess"),
)
START_S = Figure(30.0, Source(text="process, kernels and graphs", date="", evidence="guess"))


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """Every `interval_s`, as many replicas as the metric over all replicas is times the target, rounded up.

    The metric is outstanding requests ("concurrency", Knative's and Ray Serve's) or those that wait ("queue"). A start
    takes `cold_start_s`; fewer replicas only after `down_delay_s` of wanting fewer, and then as many as were wanted at
    most in that time (as Kubernetes' autoscaler does).

    >>> Autoscaler(target=8, max_replicas=4, metric="load")
    Traceback (most recent call last):
    ...
    simulator.errors.InfercastError: metric 'load': it is not counted. Known: concurrency, queue.
    """

    target: float
    max_replicas: int
    min_replicas: int = 1
    metric: str = "concurrency"
    interval_s: float = 15.0
    down_delay_s: float = 300.0
    cold_start_s: float = 60.0

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InfercastError(f"metric {self.metric!r}", "it is not counted", nearest(self.metric, METRICS))
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            given = f"{self.min_replicas} to {self.max_replicas} replicas"
            raise InfercastError(given, "they are no range of whole numbers", "Give, say, 1 to 4; 0 scales to zero")
        for name in ("target", "interval_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InfercastError(f"{name} {getattr(self, name)}", "it is a finite number above 0", "Give, say, 8")
        for name in ("down_delay_s", "cold_start_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InfercastError(f"{name} {getattr(self, name)}", "it is a finite time from 0 on", "Give seconds")


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """A replica that dies at a moment and is up again, with empty caches, `repair_s` later (infinity: never)."""

    at_s: float
    replica: int
    repair_s: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.at_s < math.inf and self.repair_s > 0 and self.replica >= 0):
            given = f"a failure of replica {self.replica} at {self.at_s:g} s for {self.repair_s:g} s"
            raise InfercastError(given, "it is not a moment from 0 on and a time above 0", "Give, say, 1@600:300")


def cold_start_s(weight_bytes: float, load_bytes_per_s: float = LOAD_BYTES_PER_S, start_s: float = START_S) -> float:
    """Return how long a replica takes to start: weights / load rate + a fixed time.

    The defaults are guesses: 1 GB/s (one NVMe drive or a good network share per device), 30 s for the process, its
    kernels and graphs.

    >>> cold_start_s(16e9)
    46.0
    """
    return weight_bytes / load_bytes_per_s + start_s


@compiled
def control(w: World, now_s: float) -> None:
    """Failures, repairs, cold starts that are over, the autoscaler, in this order."""
    hall = w.hall
    while hall.failure < len(w.failures) and w.failures[hall.failure].at_s <= now_s:
        failure = w.failures[hall.failure]
        hall.failure += 1
        _fail(w, failure.replica, failure.at_s + failure.repair_s)
    if hall.ready_s <= now_s:
        for replica in range(w.rules.replicas):
            row = w.replicas[replica]
            if row.state in (STARTING, FAILED) and row.ready_s <= now_s:
                log(w, replica, UP)
        _note_ready(w)
    if w.rules.metric > 0 and hall.check * w.rules.interval_s <= now_s:
        _check(w)
        hall.check += 1


@compiled
def _note_ready(w: World) -> None:
    """Find the next moment at which a replica comes up."""
    hall = w.hall
    hall.ready_s = math.inf
    for replica in range(w.rules.replicas):
        row = w.replicas[replica]
        if row.state in (STARTING, FAILED):
            hall.ready_s = min(hall.ready_s, row.ready_s)


@compiled
def _fail(w: World, replica: int, ready_s: float) -> None:
    """Let a replica die: what it computed is lost, its requests go back to the router."""
    state = w.replicas[replica].state
    if state in (OFF, FAILED):
        return
    first = first_place(w, replica)
    for place in range(first, first + w.rules.places):
        _empty(w, place)
        w.stages_free_s[replica, place - first] = 0.0
    w.replicas[replica].ready_s = ready_s
    log(w, replica, OFF if state == DRAINING else FAILED)
    _note_ready(w)


@compiled
def _empty(w: World, place: int) -> None:
    """Take everything out of a place, in the order of admission, then of waiting."""
    hall = w.hall
    if w.places[place].busy == 1:
        w.lost[hall.lost] = w.places[place].step
        hall.lost += 1
        hall.busy -= 1
    w.places[place].busy = w.places[place].overdue = 0
    w.ends_s[place] = math.inf
    s = view(w.engines, place)
    for j in range(s.book[0].running):
        request = s.slots[j].request
        if math.isnan(s.requests[request].finished_s):
            _return(w, request)
    while s.book[0].waiting > 0:
        request = s.book[0].head
        dequeue(s, request)
        _return(w, request)
    reset(s)
    while w.queues[inbox(place)].waiting > 0:
        request = w.queues[inbox(place)].head
        take_out(w, request)
        _return(w, request)


@compiled
def _return(w: World, request: int) -> None:
    """Send a request of a dead replica back to the router; what its client has given up is cancelled instead."""
    call = w.calls[request]
    if call.overdue == 1:
        cancel(w, request, w.hall.clock_s)
        return
    forget(w, request)
    call.retries += 1
    append(w, 0, request)


@compiled
def start_lowest(w: World) -> bool:
    """Start the lowest-numbered replica that is off; return whether there is one."""
    hall = w.hall
    for replica in range(w.rules.replicas):
        if w.replicas[replica].state == OFF:
            w.replicas[replica].ready_s = hall.clock_s + w.rules.cold_start_s
            hall.ready_s = min(hall.ready_s, w.replicas[replica].ready_s)
            log(w, replica, STARTING)
            return True
    return False


@compiled
def ready_or_starting(w: World) -> int:
    """Count the replicas that are up or will be."""
    count = 0
    for replica in range(w.rules.replicas):
        state = w.replicas[replica].state
        count += 1 if state in (UP, STARTING) else 0
    return count


@compiled
def _metric(w: World) -> int:
    """Count the requests that the autoscaler looks at."""
    count: int = w.queues[0].waiting
    for replica in range(w.rules.replicas):
        count += outstanding(w, replica)
    if w.rules.metric == QUEUE_METRIC:
        for place in range(len(w.places)):
            count -= w.engines.books[place].running
    return count


@compiled
def _check(w: World) -> None:
    """Start replicas that are missing; drain those that have been too many for long enough."""
    hall, rules, number = w.hall, w.rules, w.hall.check
    wanted = min(max(math.ceil(_metric(w) / rules.target), rules.min_replicas), rules.replicas)
    count = ready_or_starting(w)
    hall.settled = 1
    if wanted >= count:
        hall.below_since = 0
        for _ in range(wanted - count):
            if start_lowest(w):
                hall.settled = 0
        return
    hall.most_wanted = max(wanted, hall.most_wanted if hall.below_since > 0 else 0)
    if hall.below_since == 0:
        hall.below_since = number
    if (number - hall.below_since) * rules.interval_s >= rules.down_delay_s:
        _drain(w, count - hall.most_wanted)
        hall.below_since = 0


@compiled
def _drain(w: World, count: int) -> None:
    """Let so many of the highest-numbered replicas that are up finish what they have."""
    for back in range(w.rules.replicas):
        replica = w.rules.replicas - 1 - back
        if count > 0 and w.replicas[replica].state == UP:
            log(w, replica, DRAINING)
            retire(w, replica)
            count -= 1
