"""Autoscaling, failures and repairs of a fleet's replicas. Rules: docs/serving-rules.md, A and X.

Throughout, `f` is the state of the fleet, `replica` and `engine` are row numbers, and `request` is a row of `f.calls`.
"""

import math
from dataclasses import dataclass

from simulator.errors import InfercastError, Setting, nearest
from simulator.profile import Figure, Source
from simulator.scheduler.jit import compiled
from simulator.scheduler.state import NEVER, NOBODY, reset, view
from simulator.scheduler.waiting_queue import dequeue
from simulator.simulation.clients import cancel, start_over
from simulator.simulation.fleet_state import (
    DRAINING,
    FAILED,
    OFF,
    STARTING,
    UP,
    FleetState,
    append,
    end_replica,
    first_engine,
    first_replica,
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
LEAST_INTERVAL_S = 1e-3  # between two looks: no step is shorter, and each look takes time here


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """Settings of a pool's autoscaler: every `interval_s` it wants ceil(metric / target) replicas, within its range.

    `metric`: outstanding requests of the whole pool ("concurrency", as in Knative and Ray Serve) or waiting requests
    only ("queue"); `target` is the desired value per replica, in requests. A new replica serves `cold_start_s` after it
    was started. Replicas are stopped once fewer were wanted for `down_delay_s`; as many stay as were wanted at most
    during that time (the stabilization window of the Kubernetes Horizontal Pod Autoscaler). All times are in seconds.

    Raises InfercastError for an unknown metric, an impossible range of replicas, or a negative or infinite time.
    Source: the documentation of Kubernetes, Knative and Ray Serve. Rule A.

    >>> Autoscaler(target=8, max_replicas=4, metric="load")
    Traceback (most recent call last):
    ...
    simulator.errors.InfercastError: metric 'load': it is not a known metric. Known: concurrency, queue.
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
            hint = nearest(self.metric, METRICS)
            raise InfercastError(Setting("metric", self.metric), "it is not a known metric", hint)
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            given = f"{self.min_replicas} to {self.max_replicas} replicas"
            raise InfercastError(
                given, "this is not a range of 0 or more to 1 or more", "Give, say, 1 to 4; 0 scales to zero"
            )
        if not 0 < self.target < math.inf:
            raise InfercastError(Setting("target", self.target), "it must be finite and above 0", "Give, say, 8")
        if not LEAST_INTERVAL_S <= self.interval_s < math.inf:
            because = f"an autoscaler looks every {LEAST_INTERVAL_S * 1e3:g} ms at most"
            raise InfercastError(Setting("interval_s", self.interval_s), because, "Give, say, 15 s as Kubernetes does")
        for name in ("down_delay_s", "cold_start_s"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise InfercastError(Setting(name, value), "it must be finite and 0 or more", "Give seconds")


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """Failure of one replica at `at_s`; it serves again, with empty caches, `repair_s` later (infinity: never).

    Times are in seconds, `replica` counts from 0. Raises InfercastError for a negative time or replica.
    """

    at_s: float
    replica: int
    repair_s: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.at_s < math.inf and self.repair_s > 0 and self.replica >= 0):
            given = f"a failure of replica {self.replica} at {self.at_s:g} s for {self.repair_s:g} s"
            raise InfercastError(given, "its start must be 0 s or more, its repair above 0 s", "Give, say, 1@600:300")


def cold_start_s(weight_bytes: float, load_bytes_per_s: float = LOAD_BYTES_PER_S, start_s: float = START_S) -> float:
    """Return the seconds that a new replica needs before it can serve: weight_bytes / load_bytes_per_s + start_s.

    The defaults are guesses: 1 GB/s (one NVMe drive or a good network share per device), and 30 s to start the process,
    load the kernels and capture the CUDA graphs.

    Raises InfercastError for a rate that is not above 0.

    >>> cold_start_s(16e9)
    46.0
    """
    if not load_bytes_per_s > 0:
        given = f"weights that are loaded at {load_bytes_per_s:g} bytes/s"
        raise InfercastError(given, "the rate must be above 0", "Give, say, 1 GB/s")
    return weight_bytes / load_bytes_per_s + start_s


@compiled
def control(f: FleetState, now_s: float) -> None:
    """Apply what changes the replicas at `now_s`: failures, then finished repairs and starts, then autoscaling.

    Rule R.
    """
    loop = f.loop
    while loop.failure < len(f.failures) and f.failures[loop.failure].at_s <= now_s:
        failure = f.failures[loop.failure]
        loop.failure += 1
        _fail(f, failure.replica, failure.at_s + failure.repair_s)
    if loop.ready_s <= now_s:
        for replica in range(f.rules.replicas):
            row = f.replicas[replica]
            if row.state in (STARTING, FAILED) and row.ready_s <= now_s:
                log(f, replica, UP)
        _note_ready(f)
    for pool in range(2):
        scaler = f.scalers[pool]
        if scaler.metric > 0 and scaler.check * scaler.interval_s <= now_s:
            _check(f, pool)
            scaler.check += 1


@compiled
def next_check_s(f: FleetState, other_s: float) -> float:
    """Return when the next check of an autoscaler that may change something is; the next other event is at `other_s`.

    Infinity where nothing else lies ahead and no autoscaler starts anything. Checks before it are left out: an idle
    fleet would run more of them than requests.
    """
    t, settled = other_s, 1
    for pool in range(2):
        scaler = f.scalers[pool]
        if scaler.metric > 0:
            scaler.settled = scaler.settled if other_s == math.inf else 0
            settled = min(settled, scaler.settled)
            if scaler.check * scaler.interval_s < t:
                number = scaler.check if other_s == math.inf else _changing_check(f, pool)
                t = min(t, number * scaler.interval_s)
    if settled == 1:
        return math.inf
    for pool in range(2):
        scaler = f.scalers[pool]
        if scaler.metric > 0 and t < math.inf:
            scaler.check = max(scaler.check, int(t / scaler.interval_s) - 1)
            while scaler.check * scaler.interval_s < t:
                scaler.check += 1
    return t


@compiled
def _changing_check(f: FleetState, pool: int) -> int:
    """Return the number of a pool's next check that may change something while nothing but checks happens."""
    scaler = f.scalers[pool]
    wanted, count = _wanted(f, pool), ready_or_starting(f, pool)
    if wanted >= count:
        changes = scaler.below_since > 0 or (wanted > count and _lowest_off(f, pool) != NOBODY)
        return int(scaler.check if changes else NEVER)
    if scaler.below_since == 0 or wanted > scaler.most_wanted:
        return int(scaler.check)
    return int(max(scaler.check, scaler.below_since + int(scaler.down_delay_s / scaler.interval_s)))


@compiled
def _note_ready(f: FleetState) -> None:
    """Update the time at which the next start or repair is finished."""
    loop = f.loop
    loop.ready_s = math.inf
    for replica in range(f.rules.replicas):
        row = f.replicas[replica]
        if row.state in (STARTING, FAILED):
            loop.ready_s = min(loop.ready_s, row.ready_s)


@compiled
def _fail(f: FleetState, replica: int, ready_s: float) -> None:
    """Let a replica fail until `ready_s`: its running steps are lost, its requests return to the router."""
    state = f.replicas[replica].state
    if state in (OFF, FAILED):
        return
    first = first_engine(f, replica)
    for engine in range(first, first + f.rules.engines_per_replica):
        _empty(f, engine)
        f.stages_free_s[replica, engine - first] = 0.0
    f.replicas[replica].ready_s = ready_s
    log(f, replica, OFF if state == DRAINING else FAILED)
    _note_ready(f)


@compiled
def _empty(f: FleetState, engine: int) -> None:
    """Remove all requests from an engine: running ones in order of admission, then waiting ones in order."""
    loop = f.loop
    if f.engine_steps[engine].busy == 1:
        f.lost[loop.lost] = f.engine_steps[engine].step
        loop.lost += 1
        loop.busy -= 1
    f.engine_steps[engine].busy = f.engine_steps[engine].overdue = 0
    f.ends_s[engine] = math.inf
    s = view(f.engines, engine)
    for j in range(s.book[0].running):
        request = s.slots[j].request
        if math.isnan(s.requests[request].finished_s):
            _return(f, request)
    while s.book[0].waiting > 0:
        request = s.book[0].head
        dequeue(s, request)
        _return(f, request)
    reset(s)
    while f.queues[inbox(engine)].waiting > 0:
        request = f.queues[inbox(engine)].head
        take_out(f, request)
        _return(f, request)


@compiled
def _return(f: FleetState, request: int) -> None:
    """Send a request of a failed replica back to the router, or cancel it if its client has given up meanwhile."""
    call = f.calls[request]
    if call.overdue == 1:
        cancel(f, request, f.loop.clock_s)
        return
    start_over(f, request)
    call.retries += 1
    append(f, 0, request)


@compiled
def start_lowest(f: FleetState, pool: int) -> bool:
    """Start the lowest-numbered replica of a pool that is off; return False if there is none. Rule A."""
    loop, replica = f.loop, _lowest_off(f, pool)
    if replica == NOBODY:
        return False
    f.replicas[replica].ready_s = loop.clock_s + f.scalers[pool].cold_start_s
    loop.ready_s = min(loop.ready_s, f.replicas[replica].ready_s)
    log(f, replica, STARTING)
    return True


@compiled
def _lowest_off(f: FleetState, pool: int) -> int:
    """Return the lowest-numbered replica of a pool that is off, NOBODY if there is none."""
    for replica in range(first_replica(f, pool), end_replica(f, pool)):
        if f.replicas[replica].state == OFF:
            return replica
    return NOBODY


@compiled
def ready_or_starting(f: FleetState, pool: int) -> int:
    """Count the replicas of a pool that are up or starting."""
    count = 0
    for replica in range(first_replica(f, pool), end_replica(f, pool)):
        state = f.replicas[replica].state
        count += 1 if state in (UP, STARTING) else 0
    return count


@compiled
def _metric(f: FleetState, pool: int) -> int:
    """Count the requests of a pool that its autoscaler's metric counts."""
    count: int = f.queues[pool].waiting
    for replica in range(first_replica(f, pool), end_replica(f, pool)):
        count += outstanding(f, replica)
        if f.scalers[pool].metric == QUEUE_METRIC:
            first = first_engine(f, replica)
            for engine in range(first, first + f.rules.engines_per_replica):
                count -= f.engines.books[engine].running
    return count


@compiled
def _wanted(f: FleetState, pool: int) -> int:
    """Return how many replicas a pool's autoscaler wants now."""
    scaler = f.scalers[pool]
    most = end_replica(f, pool) - first_replica(f, pool)
    return int(min(max(math.ceil(_metric(f, pool) / scaler.target), scaler.min_replicas), most))


@compiled
def _check(f: FleetState, pool: int) -> None:
    """Run one check of a pool: start missing replicas, or drain superfluous ones after `down_delay_s`."""
    scaler = f.scalers[pool]
    wanted = _wanted(f, pool)
    count = ready_or_starting(f, pool)
    scaler.settled = 1
    if wanted >= count:
        scaler.below_since = 0
        for _ in range(wanted - count):
            if start_lowest(f, pool):
                scaler.settled = 0
        return
    scaler.most_wanted = max(wanted, scaler.most_wanted if scaler.below_since > 0 else 0)
    if scaler.below_since == 0:
        scaler.below_since = scaler.check
    if (scaler.check - scaler.below_since) * scaler.interval_s >= scaler.down_delay_s:
        _drain(f, pool, count - scaler.most_wanted)
        scaler.below_since = 0


@compiled
def _drain(f: FleetState, pool: int, count: int) -> None:
    """Drain `count` of a pool's replicas that are up, the highest-numbered first."""
    for replica in range(end_replica(f, pool) - 1, first_replica(f, pool) - 1, -1):
        if count > 0 and f.replicas[replica].state == UP:
            log(f, replica, DRAINING)
            retire(f, replica)
            count -= 1
