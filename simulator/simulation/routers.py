"""Routers of a fleet: which replica gets the next request. Rules: docs/serving-rules.md, T."""

from dataclasses import dataclass

from simulator.errors import InfercastError, nearest
from simulator.scheduler.draft_acceptance import uniform
from simulator.scheduler.jit import compiled
from simulator.scheduler.prefix_cache import leading_run
from simulator.scheduler.state import NOBODY, blocks, view
from simulator.simulation.fleet_state import UP, World, first_place, inbox, outstanding

ROUND_ROBIN, LEAST_OUTSTANDING, LEAST_CACHE, POWER_OF_TWO, PREFIX_AFFINITY = range(5)
ROUTERS = {
    "round-robin": ROUND_ROBIN,
    "least-outstanding": LEAST_OUTSTANDING,
    "least-cache": LEAST_CACHE,
    "power-of-two": POWER_OF_TWO,
    "prefix-affinity": PREFIX_AFFINITY,
}
NOTHING_LESS = 2**62


@dataclass(frozen=True, slots=True)
class Router:
    """How requests are shared out among replicas that are up.

    `affinity_slack`: prefix-affinity looks at replicas with at most so many more outstanding requests than the least.
    `max_ongoing_requests`: a replica with so many outstanding gets no more, and requests wait at the router, first in
    first out (Ray Serve's name; 0: no limit). With 1, and one request at a time, a fleet is the M/G/c queue.

    >>> Router("round").name
    Traceback (most recent call last):
    ...
    simulator.errors.InfercastError: router 'round': it is not known. Nearest: round-robin.
    """

    name: str = "round-robin"
    affinity_slack: int = 8
    max_ongoing_requests: int = 0

    def __post_init__(self) -> None:
        if self.name not in ROUTERS:
            raise InfercastError(f"router {self.name!r}", "it is not known", nearest(self.name, ROUTERS))
        for name in ("affinity_slack", "max_ongoing_requests"):
            if getattr(self, name) < 0:
                raise InfercastError(f"{name} {getattr(self, name)}", "it is 0 or more", "Give, say, 8")


@compiled
def open_to(w: World, replica: int) -> bool:
    """Return whether a replica takes requests."""
    most = w.rules.max_ongoing_requests
    takes: bool = w.replicas[replica].state == UP and (most == 0 or outstanding(w, replica) < most)
    return takes


@compiled
def _cache_load(w: World, replica: int) -> int:
    """Count the cache blocks that a replica holds, and those that the prompts of its waiting requests will."""
    first, count = first_place(w, replica), 0
    for place in range(first, first + w.rules.places):
        book, limits = w.engines.books[place], w.engines.limits[place]
        count += limits.num_blocks - book.free_blocks + book.waiting_blocks
        request = w.queues[inbox(place)].head
        for _ in range(w.queues[inbox(place)].waiting):
            count += blocks(limits, w.engines.requests[request].prompt_tokens)
            request = w.calls[request].next
    return count


@compiled
def _longest_hit(w: World, replica: int, request: int) -> int:
    """Return how many leading units of a request's prompt a replica has in its cache."""
    first, longest = first_place(w, replica), 0
    for place in range(first, first + w.rules.places):
        s = view(w.engines, place)
        if s.limits.prefix_unit_tokens > 0:
            longest = max(longest, leading_run(s, request, s.requests[request].prompt_tokens))
    return longest


@compiled
def _round_robin(w: World, first: int, last: int, previous: int) -> int:
    """Return the next replica after the last chosen."""
    count = last - first
    for step in range(1, count + 1):
        replica = first + (previous - first + step) % count
        if open_to(w, replica):
            return replica
    return NOBODY


@compiled
def _nth_open(w: World, first: int, place: int) -> int:
    """Return the replica at a place among those that take requests."""
    replica = first
    while True:
        if open_to(w, replica):
            if place == 0:
                return replica
            place -= 1
        replica += 1


@compiled
def _power_of_two(w: World, first: int, last: int, request: int) -> int:
    """Return the less loaded of two replicas drawn by the request's index and how often it has been routed."""
    count, sendings = 0, w.calls[request].sendings
    for replica in range(first, last):
        count += 1 if open_to(w, replica) else 0
    if count == 0:
        return NOBODY
    one = int(count * uniform(request, sendings, 0))
    if count == 1:
        return _nth_open(w, first, one)
    other = int((count - 1) * uniform(request, sendings, 1))
    other += 1 if other >= one else 0
    low, high = _nth_open(w, first, min(one, other)), _nth_open(w, first, max(one, other))
    return low if outstanding(w, low) <= outstanding(w, high) else high


@compiled
def _least(w: World, first: int, last: int, request: int) -> int:
    """Return the replica with the least load, whichever load the router looks at; ties by outstanding, number."""
    router, floor = w.rules.router, NOTHING_LESS
    for replica in range(first, last):
        if open_to(w, replica):
            floor = min(floor, outstanding(w, replica))
    best, best_key, best_count = NOBODY, NOTHING_LESS, NOTHING_LESS
    for replica in range(first, last):
        if not open_to(w, replica):
            continue
        count = outstanding(w, replica)
        key = count
        if router == LEAST_CACHE:
            key = _cache_load(w, replica)
        elif router == PREFIX_AFFINITY:
            if count > floor + w.rules.affinity_slack:
                continue
            key = -_longest_hit(w, replica, request)
        if key < best_key or (key == best_key and count < best_count):
            best, best_key, best_count = replica, key, count
    return best


@compiled
def choose(w: World, pool: int, request: int) -> int:
    """Return the replica of a pool that a request goes to, NOBODY where none takes it."""
    prefill = w.rules.prefill_replicas
    first = prefill if pool == 1 else 0
    last = prefill if pool == 0 and prefill > 0 else w.rules.replicas
    if w.rules.router == ROUND_ROBIN:
        return _round_robin(w, first, last, w.queues[pool].last)
    if w.rules.router == POWER_OF_TWO:
        return _power_of_two(w, first, last, request)
    return _least(w, first, last, request)
