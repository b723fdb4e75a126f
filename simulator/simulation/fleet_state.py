"""What the loop of a fleet knows: engines, replicas, routers, calls of users and a heap of what is to come, as arrays.

A *place* is one engine. A replica is as many places as it has pipeline stages; one pool of replicas prefills and one
decodes where these are told apart. Rules: docs/serving-rules.md, "Several engines".
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.state import NOBODY, Engines, Floats, Ints, Table, reset, view

OFF, STARTING, UP, DRAINING, FAILED = range(5)
STATES = ("off", "starting", "up", "draining", "failed")

HALL = np.dtype(
    [
        ("clock_s", np.float64),
        ("ready_s", np.float64),  # the next start or repair is over
        ("wake_s", np.float64),  # an idle engine that waits for more wants to be asked again
        ("left", np.int64),  # requests that are neither finished nor abandoned
        ("opened", np.int64),  # of the requests whose arrival was known, so many have arrived
        ("released", np.int64),  # closed loop: requests 0 .. released-1 have been sent
        ("heaped", np.int64),
        ("timer", np.int64),  # the ring of timers: its first, and how many
        ("timers", np.int64),
        ("failure", np.int64),  # the next one
        ("check", np.int64),  # number of the autoscaler's next look
        ("below_since", np.int64),  # number of the first check at which fewer were wanted, 0 for none
        ("most_wanted", np.int64),  # since then
        ("busy", np.int64),  # places with a step under way
        ("settled", np.int64),  # the last check started nothing
        ("events", np.int64),
        ("lost", np.int64),  # steps that failures took
        ("stuck", np.int64),  # nothing more will happen, and requests are left
        ("steps", np.int64),  # steps begun in bursts before this one
    ]
)
PLACE = np.dtype(
    [
        ("busy", np.int64),
        ("step", np.int64),  # number of the step under way
        ("start_s", np.float64),  # of the step under way, or of the last one
        ("overdue", np.int64),  # running requests whose client has given up
    ]
)
REPLICA = np.dtype([("state", np.int64), ("ready_s", np.float64), ("link_free_s", np.float64)])
QUEUE = np.dtype([(name, np.int64) for name in ("head", "tail", "waiting", "last")])  # last: the router's last choice
CALL = np.dtype(
    [
        ("sent_s", np.float64),  # its latest sending
        ("routed_s", np.float64),  # to the place where it is
        ("think_s", np.float64),  # of its user, before its follower is sent
        ("transfer_s", np.float64),  # from prefill to decode, alone on the link
        ("follower", np.int64),  # the next turn of its session
        ("output_tokens", np.int64),  # all of them, while the prefill pool is asked for one
        ("next", np.int64),  # behind it in `queue`
        ("queue", np.int64),  # where it waits, NOBODY once an engine knows it
        ("place", np.int64),  # that it was routed to
        ("pool", np.int64),  # that it goes to next, or is in
        ("sendings", np.int64),  # by routers
        ("retries", np.int64),  # after failures
        ("timeouts", np.int64),
        ("overdue", np.int64),
        ("abandoned", np.int64),
    ]
)
FAILURE = np.dtype([("at_s", np.float64), ("replica", np.int64), ("repair_s", np.float64)])
EVENT = np.dtype([("time_s", np.float64), ("replica", np.int64), ("state", np.int64)])


class Rules(NamedTuple):
    """What was asked for, as numbers; each belongs to the value of the same name."""

    places: int  # per replica
    prefill_replicas: int  # 0: all do everything
    replicas: int
    concurrency: int
    router: int
    affinity_slack: int
    max_ongoing_requests: int
    metric: int
    target: float
    min_replicas: int
    interval_s: float
    down_delay_s: float
    cold_start_s: float
    answered_s: float  # from the end of a request until its user, who then sends the next one, has the answer
    timeout_s: float
    max_retries: int
    retry_delay_s: float


RULES = np.dtype([(name, np.dtype(kind)) for name, kind in Rules.__annotations__.items()])


class World(NamedTuple):
    """Everything; index 1 of `queues` is the pool that decodes for another.

    Each function is handed all of this anew, number by number: what is one pointer here is compiled sooner.
    """

    rules: Any  # a record of `Rules`
    hall: Any  # a record
    engines: Engines  # by place
    places: Table
    ends_s: Floats  # of the step under way at each place, infinite for none
    stages_free_s: Floats  # by replica and stage
    replicas: Table
    queues: Table  # of the router of each pool; then what is routed to each place and not yet seen there
    calls: Table
    order: Ints  # requests whose arrival is known, in their order
    heap: Ints  # requests to come, a binary heap by (heap_s, request)
    heap_s: Floats
    timers: Ints  # a ring of requests in the order of sending
    failures: Table
    lost: Ints
    events: Table


def table(kind: npt.DTypeLike, rows: int) -> Table:
    """Return rows of zeros whose fields are attributes, in plain Python too."""
    return np.zeros(rows, kind).view(np.recarray)


@inlined
def inbox(place: int) -> int:
    """Return the queue of what is routed to a place and not yet seen there."""
    return 2 + place


@inlined
def first_place(w: World, replica: int) -> int:
    """Return the first place of a replica."""
    place: int = replica * w.rules.places
    return place


@inlined
def pool_of(w: World, replica: int) -> int:
    """Return the pool of a replica: 1 for those that decode for others."""
    return 1 if w.rules.prefill_replicas > 0 and replica >= w.rules.prefill_replicas else 0


@compiled
def append(w: World, queue: int, request: int) -> None:
    """Put a request at the end of a queue."""
    line, call = w.queues[queue], w.calls[request]
    call.queue, call.next = queue, NOBODY
    if line.waiting == 0:
        line.head = request
    else:
        w.calls[line.tail].next = request
    line.tail = request
    line.waiting += 1


@compiled
def take_out(w: World, request: int) -> None:
    """Take a request out of its queue; nearly always it is the head."""
    line, call, before = w.queues[w.calls[request].queue], w.calls[request], NOBODY
    each = line.head
    while each != request:
        before, each = each, w.calls[each].next
    if before == NOBODY:
        line.head = call.next
    else:
        w.calls[before].next = call.next
    if line.tail == request:
        line.tail = before
    line.waiting -= 1
    call.queue = NOBODY


@compiled
def log(w: World, replica: int, state: int) -> None:
    """Put a replica into a state, and write it down."""
    hall = w.hall
    w.replicas[replica].state = state
    event = w.events[hall.events]
    event.time_s, event.replica, event.state = hall.clock_s, replica, state
    hall.events += 1


@inlined
def outstanding(w: World, replica: int) -> int:
    """Count the requests that wait or run at a replica."""
    count, first = 0, first_place(w, replica)
    for place in range(first, first + w.rules.places):
        book = w.engines.books[place]
        count += book.waiting + book.running + w.queues[inbox(place)].waiting
    return count


@compiled
def retire(w: World, replica: int) -> None:
    """Switch a draining replica off if it is empty; it forgets its cache."""
    if w.replicas[replica].state != DRAINING or outstanding(w, replica) > 0:
        return
    for place in range(first_place(w, replica), first_place(w, replica) + w.rules.places):
        reset(view(w.engines, place))
    log(w, replica, OFF)


@compiled
def push(w: World, at_s: float, request: int) -> None:
    """Let a request come at a time."""
    hall = w.hall
    child = hall.heaped
    hall.heaped += 1
    while child > 0:
        parent = (child - 1) // 2
        if (w.heap_s[parent], w.heap[parent]) <= (at_s, request):
            break
        w.heap_s[child], w.heap[child] = w.heap_s[parent], w.heap[parent]
        child = parent
    w.heap_s[child], w.heap[child] = at_s, request


@compiled
def pop(w: World) -> int:
    """Take out the request that comes next."""
    hall = w.hall
    first: int = w.heap[0]
    hall.heaped -= 1
    at_s, request, parent = w.heap_s[hall.heaped], w.heap[hall.heaped], 0
    while 2 * parent + 1 < hall.heaped:
        child = 2 * parent + 1
        if child + 1 < hall.heaped and (w.heap_s[child + 1], w.heap[child + 1]) < (w.heap_s[child], w.heap[child]):
            child += 1
        if (at_s, request) <= (w.heap_s[child], w.heap[child]):
            break
        w.heap_s[parent], w.heap[parent] = w.heap_s[child], w.heap[child]
        parent = child
    w.heap_s[parent], w.heap[parent] = at_s, request
    return first
