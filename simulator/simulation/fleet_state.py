"""State of the fleet's event loop: engines, replicas, queues, clients' requests and coming arrivals, as arrays.

An engine is one scheduler with its own clock; a replica has one engine per pipeline stage. Pool 0 serves requests whole
or, in a disaggregated fleet, prefills them; pool 1 decodes. `f` is the state, `request` a row of `f.calls` and of the
schedulers' table of requests. Rules: docs/serving-rules.md, "Several engines".
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.arrays import Floats, Ints
from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.state import NOBODY, Engines, Table, reset, view

OFF, STARTING, UP, DRAINING, FAILED = range(5)
STATES = ("off", "starting", "up", "draining", "failed")

LOOP = np.dtype(
    [
        ("clock_s", np.float64),  # time of the present event
        ("ready_s", np.float64),  # when the next start or repair is finished
        ("wake_s", np.float64),  # when an idle engine that waits for a fuller batch has to be asked again
        ("left", np.int64),  # requests that are neither finished nor abandoned
        ("opened", np.int64),  # arrived requests among those whose arrival was known from the start
        ("released", np.int64),  # closed loop: requests 0 .. released-1 have been sent
        ("heaped", np.int64),  # requests in the heap of coming arrivals
        ("timer", np.int64),  # first entry of the ring of timeouts
        ("timers", np.int64),  # entries of this ring
        ("failure", np.int64),  # next row of the table of failures
        ("busy", np.int64),  # engines with a step under way
        ("events", np.int64),  # rows filled in the table of events
        ("lost", np.int64),  # steps lost to failures
        ("stuck", np.int64),  # 1: no event lies ahead, yet requests are left
        ("steps", np.int64),  # steps begun in earlier bursts
    ]
)
SCALER = np.dtype(
    [
        ("metric", np.int64),  # 0: the number of replicas is fixed
        ("target", np.float64),
        ("min_replicas", np.int64),
        ("interval_s", np.float64),
        ("down_delay_s", np.float64),
        ("cold_start_s", np.float64),
        ("check", np.int64),  # number of its next check
        ("below_since", np.int64),  # number of the first check in a row that wanted fewer replicas, 0 for none
        ("most_wanted", np.int64),  # most replicas wanted since that check
        ("settled", np.int64),  # 1: its last check started nothing, and nothing but checks has happened since
    ]
)
ENGINE_STEP = np.dtype(
    [
        ("busy", np.int64),  # 1: a step is under way
        ("step", np.int64),  # number of the step under way
        ("start_s", np.float64),  # its start, or that of the last step
        ("overdue", np.int64),  # running requests whose client has given up
    ]
)
REPLICA = np.dtype([("state", np.int64), ("ready_s", np.float64), ("link_free_s", np.float64)])
QUEUE = np.dtype([(name, np.int64) for name in ("head", "tail", "waiting", "last")])  # last: replica chosen last
CALL = np.dtype(
    [
        ("sent_s", np.float64),  # when it was sent last
        ("routed_s", np.float64),  # when it was routed to its engine
        ("think_s", np.float64),  # time of its user between its end and the next turn
        ("transfer_s", np.float64),  # time of its KV cache alone on the link from prefill to decode
        ("follower", np.int64),  # next turn of its session
        ("output_tokens", np.int64),  # all of them, also while the prefill pool computes the first
        ("next", np.int64),  # request behind it in `queue`
        ("queue", np.int64),  # where it waits, NOBODY once an engine's scheduler has it
        ("engine", np.int64),  # to which it was routed
        ("worker", np.int64),  # of the router, that has its connection
        ("pool", np.int64),  # where it is, or goes next: 0 or 1
        ("sendings", np.int64),  # times that it was routed
        ("retries", np.int64),  # restarts after failures
        ("timeouts", np.int64),  # cancellations by its client
        ("overdue", np.int64),  # 1: to be cancelled at the end of the step under way
        ("abandoned", np.int64),  # 1: its client has given up for good
    ]
)
FAILURE = np.dtype([("at_s", np.float64), ("replica", np.int64), ("repair_s", np.float64)])
EVENT = np.dtype([("time_s", np.float64), ("replica", np.int64), ("state", np.int64)])


class FleetRules(NamedTuple):
    """Settings of fleet, router and clients as plain numbers, under the names of their classes."""

    engines_per_replica: int  # one per pipeline stage
    slowest_stage: float  # seconds of that with most layers, over the mean of all
    prefill_replicas: int  # 0: every replica prefills and decodes
    autoscaled: int  # 1: the number of replicas changes, in a pool at least
    replicas: int
    concurrency: int
    router: int
    affinity_slack: int
    max_ongoing_requests: int
    answered_s: float  # end of a request until its client has the answer and sends the next one
    timeout_s: float
    max_retries: int
    retry_delay_s: float


RULES = np.dtype([(name, np.dtype(kind)) for name, kind in FleetRules.__annotations__.items()])


class FleetState(NamedTuple):
    """Everything that the fleet's event loop knows and changes; one row per engine, replica or request as noted.

    Numba hands over a tuple field by field on every call, so a record (one pointer) compiles faster than many fields.
    """

    rules: Any  # a record of `FleetRules`
    loop: Any  # a record of LOOP
    scalers: Table  # by pool, of SCALER
    engines: Engines  # schedulers, by engine
    engine_steps: Table  # by engine
    ends_s: Floats  # (engines,): end of the step under way, infinite for none
    stages_free_s: Floats  # (replicas, stages): when each pipeline stage is free
    replicas: Table  # by replica
    connections: Ints  # (workers, replicas): requests that each worker of the router has at each replica
    turns: Ints  # (workers, replicas): of replicas with equally many, see rule T
    queues: Table  # of the routers of both pools, then of each engine: routed to it, not yet seen by its scheduler
    calls: Table  # by request
    order: Ints  # requests whose arrival is known, in order of arrival
    heap: Ints  # coming requests, a binary heap by (heap_s, request)
    heap_s: Floats  # their arrival times
    timers: Ints  # a ring of requests in order of sending
    failures: Table  # in order of time
    lost: Ints  # numbers of the lost steps
    events: Table  # changes of a replica's state


def table(kind: npt.DTypeLike, rows: int) -> Table:
    """Return zeros of shape (rows,) and record type `kind`, whose fields are attributes in plain Python too."""
    return np.zeros(rows, kind).view(np.recarray)


@inlined
def inbox(engine: int) -> int:
    """Return the row in `f.queues` of an engine's requests that are routed to it and not yet seen by its scheduler."""
    return 2 + engine


@inlined
def first_engine(f: FleetState, replica: int) -> int:
    """Return the first engine of a replica."""
    engine: int = replica * f.rules.engines_per_replica
    return engine


@inlined
def pool_number(f: FleetState, replica: int) -> int:
    """Return the pool of a replica: 1 if it decodes what others have prefilled, else 0."""
    return 1 if f.rules.prefill_replicas > 0 and replica >= f.rules.prefill_replicas else 0


@inlined
def first_replica(f: FleetState, pool: int) -> int:
    """Return the first replica of a pool."""
    first: int = f.rules.prefill_replicas if pool == 1 else 0
    return first


@inlined
def end_replica(f: FleetState, pool: int) -> int:
    """Return the replica behind the last one of a pool."""
    end: int = f.rules.prefill_replicas if pool == 0 and f.rules.prefill_replicas > 0 else f.rules.replicas
    return end


@compiled
def append(f: FleetState, queue: int, request: int) -> None:
    """Put a request at the end of a queue."""
    row, call = f.queues[queue], f.calls[request]
    call.queue, call.next = queue, NOBODY
    if row.waiting == 0:
        row.head = request
    else:
        f.calls[row.tail].next = request
    row.tail = request
    row.waiting += 1


@compiled
def take_out(f: FleetState, request: int) -> None:
    """Remove a request from its queue, of which it is nearly always the head."""
    queue, call, before = f.queues[f.calls[request].queue], f.calls[request], NOBODY
    each = queue.head
    while each != request:
        before, each = each, f.calls[each].next
    if before == NOBODY:
        queue.head = call.next
    else:
        f.calls[before].next = call.next
    if queue.tail == request:
        queue.tail = before
    queue.waiting -= 1
    call.queue = NOBODY


@compiled
def log(f: FleetState, replica: int, state: int) -> None:
    """Set the state of a replica and record the change as an event."""
    loop = f.loop
    f.replicas[replica].state = state
    event = f.events[loop.events]
    event.time_s, event.replica, event.state = loop.clock_s, replica, state
    loop.events += 1


@inlined
def outstanding(f: FleetState, replica: int) -> int:
    """Count the requests that wait or run at a replica."""
    count, first = 0, first_engine(f, replica)
    for engine in range(first, first + f.rules.engines_per_replica):
        book = f.engines.books[engine]
        count += book.waiting + book.running + f.queues[inbox(engine)].waiting
    return count


@inlined
def leave(f: FleetState, request: int) -> None:
    """Note that a request is no longer at the replica to which it was routed."""
    call = f.calls[request]
    f.connections[call.worker, call.engine // f.rules.engines_per_replica] -= 1


@compiled
def retire(f: FleetState, replica: int) -> None:
    """Switch a draining replica off once it is empty; its prefix cache is lost. Rule A."""
    if f.replicas[replica].state != DRAINING or outstanding(f, replica) > 0:
        return
    for engine in range(first_engine(f, replica), first_engine(f, replica) + f.rules.engines_per_replica):
        reset(view(f.engines, engine))
    log(f, replica, OFF)


@compiled
def push(f: FleetState, at_s: float, request: int) -> None:
    """Add a request to the heap of coming arrivals, at `at_s` seconds."""
    loop = f.loop
    child = loop.heaped
    loop.heaped += 1
    while child > 0:
        parent = (child - 1) // 2
        if (f.heap_s[parent], f.heap[parent]) <= (at_s, request):
            break
        f.heap_s[child], f.heap[child] = f.heap_s[parent], f.heap[parent]
        child = parent
    f.heap_s[child], f.heap[child] = at_s, request


@compiled
def pop(f: FleetState) -> int:
    """Remove and return the request that arrives next."""
    loop = f.loop
    first: int = f.heap[0]
    loop.heaped -= 1
    at_s, request, parent = f.heap_s[loop.heaped], f.heap[loop.heaped], 0
    while 2 * parent + 1 < loop.heaped:
        child = 2 * parent + 1
        if child + 1 < loop.heaped and (f.heap_s[child + 1], f.heap[child + 1]) < (f.heap_s[child], f.heap[child]):
            child += 1
        if (at_s, request) <= (f.heap_s[child], f.heap[child]):
            break
        f.heap_s[parent], f.heap[parent] = f.heap_s[child], f.heap[child]
        parent = child
    f.heap_s[parent], f.heap[parent] = at_s, request
    return first
