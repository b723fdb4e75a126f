"""Routers of a fleet: which replica receives the next request. Rules: docs/serving-rules.md, T."""

from dataclasses import dataclass

import numpy as np

from simulator.arrays import Ints
from simulator.errors import InfercastError, Setting, nearest
from simulator.limits import MOST_WHOLE, refuse_beyond_memory
from simulator.scheduler.draft_acceptance import uniform
from simulator.scheduler.jit import compiled
from simulator.scheduler.prefix_cache import cached_prefix_blocks
from simulator.scheduler.state import NOBODY, blocks, view
from simulator.simulation.fleet_state import (
    UP,
    FleetState,
    end_replica,
    first_engine,
    first_replica,
    inbox,
    outstanding,
)

ROUND_ROBIN, LEAST_OUTSTANDING, LEAST_CACHE, POWER_OF_TWO, PREFIX_AFFINITY, LEAST_CONNECTIONS = range(6)
ROUTERS = {
    "round-robin": ROUND_ROBIN,
    "least-outstanding": LEAST_OUTSTANDING,
    "least-cache": LEAST_CACHE,
    "power-of-two": POWER_OF_TWO,
    "prefix-affinity": PREFIX_AFFINITY,
    "least-connections": LEAST_CONNECTIONS,
}
MAX_LOAD = 2**62  # more than any load of a replica


@dataclass(frozen=True, slots=True)
class Router:
    """Routing policy among the replicas that are up.

    `affinity_slack`: prefix-affinity only considers replicas with at most so many more outstanding requests than the
    least loaded one. `max_ongoing_requests`: a replica with so many outstanding requests gets no more, and further ones
    wait at the router in FIFO order (Ray Serve's name; 0: no limit). With 1, and engines of one sequence, a fleet is an
    M/G/c queue. `workers`: processes of least-connections, each of which counts only the requests that it sent itself
    (nginx's `least_conn` without a `zone`); with 1 it counts all.

    Raises InfercastError for an unknown name, for negative numbers, and for workers of another router.

    >>> Router("round").name
    Traceback (most recent call last):
    ...
    simulator.errors.InfercastError: router 'round': it is not known. Nearest: round-robin.
    """

    name: str = "round-robin"
    affinity_slack: int = 8
    max_ongoing_requests: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        if self.name not in ROUTERS:
            raise InfercastError(Setting("router", self.name), "it is not known", nearest(self.name, ROUTERS))
        for name in ("affinity_slack", "max_ongoing_requests"):
            if getattr(self, name) < 0:
                raise InfercastError(Setting(name, getattr(self, name)), "it must be 0 or more", "Give, say, 8")
        if self.workers < 1:
            raise InfercastError(Setting("router_workers", self.workers), "somebody must route", "Give 1 or more")
        if self.workers > 1 and self.name != "least-connections":
            given = Setting("router_workers", self.workers), f"of {self.name}"
            because = "only least-connections has workers"
            raise InfercastError(given, because, "Give --router least-connections, or leave the workers out")

    def describe(self) -> str:
        """Return the name, with the workers where there are several.

        >>> Router("least-connections", workers=64).describe()
        'least-connections of 64 workers'
        """
        return f"{self.name} of {self.workers:,} workers" if self.workers > 1 else self.name

    def counters(self, replicas: int) -> Ints:
        """Return zeros, shape (workers, replicas), int64. Raises InfercastError where they would exceed the memory."""
        given = f"{self.workers:,} router workers that count requests at {replicas:,} replicas"
        refuse_beyond_memory(given, 16.0 * self.workers * replicas, "Give fewer of either")
        return np.zeros((self.workers, replicas), np.int64)

    def workers_of(self, connections: int, seed: int) -> Ints:
        """Return the worker that each of so many connections reaches, shape (connections,), int64: drawn. Rule T.

        Which process accepts a connection is a race: Linux wakes idle ones for it, in an order that nginx changes with
        every 16th (its src/event/ngx_event_accept.c).

        >>> Router("least-connections", workers=4).workers_of(8, seed=0).tolist()
        [1, 2, 3, 3, 2, 3, 3, 0]
        """
        found = np.zeros(connections, np.int64)
        if self.workers > 1:
            _draw(found, self.workers, seed % MOST_WHOLE)
        return found


@compiled
def _draw(workers_of: Ints, workers: int, seed: int) -> None:
    """Fill in the worker that each connection reaches, in the order in which they are opened. Rule T."""
    for connection in range(len(workers_of)):
        workers_of[connection] = int(workers * uniform(connection, seed, 2))


@compiled
def open_to(f: FleetState, replica: int) -> bool:
    """Return whether a replica is up and below `max_ongoing_requests`."""
    most = f.rules.max_ongoing_requests
    takes: bool = f.replicas[replica].state == UP and (most == 0 or outstanding(f, replica) < most)
    return takes


@compiled
def _cache_load(f: FleetState, replica: int) -> int:
    """Count the KV-cache blocks that a replica holds and that the prompts of its waiting requests will need."""
    first, count = first_engine(f, replica), 0
    for engine in range(first, first + f.rules.engines_per_replica):
        book, limits = f.engines.books[engine], f.engines.limits[engine]
        count += limits.num_blocks - book.free_blocks + book.waiting_blocks
        request = f.queues[inbox(engine)].head
        for _ in range(f.queues[inbox(engine)].waiting):
            count += blocks(limits, f.engines.requests[request].prompt_tokens)
            request = f.calls[request].next
    return count


@compiled
def _longest_hit(f: FleetState, replica: int, request: int) -> int:
    """Return how many leading prefix blocks of a request's prompt a replica has cached, on its best engine."""
    first, longest = first_engine(f, replica), 0
    for engine in range(first, first + f.rules.engines_per_replica):
        s = view(f.engines, engine)
        if s.limits.prefix_block_tokens > 0:
            longest = max(longest, cached_prefix_blocks(s, request, s.requests[request].prompt_tokens))
    return longest


@compiled
def _round_robin(f: FleetState, first: int, last: int, previous: int) -> int:
    """Return the next replica after the last chosen one that takes requests."""
    count = last - first
    for step in range(1, count + 1):
        replica = first + (previous - first + step) % count
        if open_to(f, replica):
            return replica
    return NOBODY


@compiled
def _nth_open(f: FleetState, first: int, number: int) -> int:
    """Return the replica with this number (from 0) among those that take requests."""
    replica = first
    while True:
        if open_to(f, replica):
            if number == 0:
                return replica
            number -= 1
        replica += 1


@compiled
def _power_of_two(f: FleetState, first: int, last: int, request: int) -> int:
    """Return the less loaded of two replicas that are drawn by the request's index and number of routings."""
    count, sendings = 0, f.calls[request].sendings
    for replica in range(first, last):
        count += 1 if open_to(f, replica) else 0
    if count == 0:
        return NOBODY
    one = int(count * uniform(request, sendings, 0))
    if count == 1:
        return _nth_open(f, first, one)
    other = int((count - 1) * uniform(request, sendings, 1))
    other += 1 if other >= one else 0
    low, high = _nth_open(f, first, min(one, other)), _nth_open(f, first, max(one, other))
    return low if outstanding(f, low) <= outstanding(f, high) else high


@compiled
def _least(f: FleetState, first: int, last: int, request: int) -> int:
    """Return the replica with the least load by the router's measure; ties: fewer outstanding, then lower number."""
    router, floor = f.rules.router, MAX_LOAD
    for replica in range(first, last):
        if open_to(f, replica):
            floor = min(floor, outstanding(f, replica))
    best, best_key, best_count = NOBODY, MAX_LOAD, MAX_LOAD
    for replica in range(first, last):
        if not open_to(f, replica):
            continue
        count = outstanding(f, replica)
        key = count
        if router == LEAST_CACHE:
            key = _cache_load(f, replica)
        elif router == PREFIX_AFFINITY:
            if count > floor + f.rules.affinity_slack:
                continue
            key = -_longest_hit(f, replica, request)
        if key < best_key or (key == best_key and count < best_count):
            best, best_key, best_count = replica, key, count
    return best


@compiled
def _least_connections(f: FleetState, first: int, last: int, worker: int) -> int:
    """Return the replica with the fewest requests of a worker; its tied ones take turns. Rule T.

    Source: nginx, ngx_http_upstream_least_conn_module.c: ties by the smooth weighted round robin, of equal weights.
    """
    least, best, tied = MAX_LOAD, NOBODY, 0
    for replica in range(first, last):
        if open_to(f, replica):
            least = min(least, f.connections[worker, replica])
    for replica in range(first, last):
        if f.connections[worker, replica] == least and open_to(f, replica):
            tied += 1
            f.turns[worker, replica] += 1
            if best == NOBODY or f.turns[worker, replica] > f.turns[worker, best]:
                best = replica
    if best != NOBODY:
        f.turns[worker, best] -= tied
    return best


@compiled
def choose(f: FleetState, pool: int, request: int) -> int:
    """Return the replica of a pool (0 or 1) that a request is sent to, NOBODY (-1) if none takes it. Rule T."""
    first, last = first_replica(f, pool), end_replica(f, pool)
    if f.rules.router == ROUND_ROBIN:
        return _round_robin(f, first, last, f.queues[pool].last)
    if f.rules.router == POWER_OF_TWO:
        return _power_of_two(f, first, last, request)
    if f.rules.router == LEAST_CONNECTIONS:
        return _least_connections(f, first, last, f.calls[request].worker)
    return _least(f, first, last, request)
