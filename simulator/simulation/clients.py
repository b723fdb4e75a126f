"""The users' side of a fleet: network, sessions, patience and retries. Rules: docs/serving-rules.md, C."""

import math
from dataclasses import dataclass

import numpy as np

from simulator.errors import WorkloadError
from simulator.scheduler.jit import compiled
from simulator.scheduler.state import NOBODY, Floats, Ints, view
from simulator.scheduler.transitions import withdraw
from simulator.simulation.fleet_state import World, append, push, retire, take_out
from simulator.workloads.workload import Requests


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """How users behave, beyond when they ask and for how many tokens.

    `network_s`: a round trip, added to every latency that the user sees. `streaming`: without it the user sees all
    tokens at once, with the last. `timeout_s`: a request without its first token so long after it was sent is
    cancelled, and sent again `retry_delay_s` later, up to `max_retries` times; then it is abandoned.

    A request with `follows` >= 0 is the next turn of the session of that request (an earlier row): it is sent `think_s`
    after the user has its answer. `thinking_tokens` are the first of its output tokens, which the user does not see.
    """

    network_s: float = 0.0
    streaming: bool = True
    timeout_s: float = math.inf
    max_retries: int = 0
    retry_delay_s: float = 0.0
    follows: Ints | None = None
    think_s: Floats | None = None
    thinking_tokens: Ints | None = None

    def __post_init__(self) -> None:
        for name in ("network_s", "retry_delay_s"):
            if not 0 <= getattr(self, name) < math.inf:
                because = "it is not a finite time of 0 seconds or more"
                raise WorkloadError(f"{name} {getattr(self, name)}", because, "Give seconds, say 0.05")
        if not self.timeout_s > 0:
            raise WorkloadError(f"timeout_s {self.timeout_s}", "nobody waits less than no time", "Give, say, 30")
        if self.max_retries < 0:
            raise WorkloadError(f"max_retries {self.max_retries}", "it is 0 or more", "Give, say, 2")

    def check(self, requests: Requests) -> None:
        """Refuse columns that do not belong to a workload."""
        for name in ("follows", "think_s", "thinking_tokens"):
            column = getattr(self, name)
            if column is not None and len(column) != len(requests):
                given = f"{name} of {len(column)} rows for {len(requests)} requests"
                raise WorkloadError(given, "they belong to each other row by row", "Give one value per request")
        if self.thinking_tokens is not None and (self.thinking_tokens >= requests.output_tokens).any():
            because = "thinking tokens are output tokens, and the user sees one at least"
            raise WorkloadError("thinking_tokens", because, "Raise the output tokens, or lower the thinking budget")
        if self.follows is None:
            return
        later, earlier = np.flatnonzero(self.follows >= 0), self.follows[self.follows >= 0]
        if (earlier >= later).any() or len(np.unique(earlier)) < len(earlier):
            because = "a turn follows one earlier row, and no two turns follow the same"
            raise WorkloadError("follows", because, "Write a session's turns one after the other")
        if requests.concurrency:
            because = "a closed loop and sessions both say when a request is sent"
            raise WorkloadError("sessions in a closed loop", because, "Give one of the two")

    def followers(self, count: int) -> Ints:
        """Return the next turn of each request's session, NOBODY where it is the last."""
        found = np.full(count, NOBODY, np.int64)
        if self.follows is not None:
            found[self.follows[self.follows >= 0]] = np.flatnonzero(self.follows >= 0)
        return found

    def thinks_s(self, count: int) -> Floats:
        """Return how long the user thinks about the answer of each request that has a follower."""
        found, followers = np.zeros(count), self.followers(count)
        if self.think_s is not None:
            found[followers >= 0] = self.think_s[followers[followers >= 0]]
        return found


@compiled
def send(w: World, request: int, at_s: float) -> None:
    """Let a request arrive: from its client, or, in the pool that decodes, from the one that prefills."""
    hall, call, row = w.hall, w.calls[request], w.engines.requests[request]
    if call.pool == 0:
        if call.timeouts == 0:
            row.arrival_s = at_s
        call.sent_s = at_s
        if w.rules.timeout_s < math.inf:
            w.timers[(hall.timer + hall.timers) % len(w.timers)] = request
            hall.timers += 1
    append(w, call.pool, request)


@compiled
def forget(w: World, request: int) -> None:
    """Let a request that is in no queue any more start anew."""
    row, call = w.engines.requests[request], w.calls[request]
    row.emitted = 0
    row.scheduled_s = row.first_token_s = row.finished_s = math.nan
    row.stalled_s = 0.0
    call.place, call.pool, call.overdue = NOBODY, 0, 0
    row.given = 0
    if w.rules.prefill_replicas > 0:
        row.output_tokens = 1


@compiled
def conclude(w: World, request: int, at_s: float) -> None:
    """Let what waits for the end of a request happen: the next turn of its session, the next one of a closed loop."""
    hall, call = w.hall, w.calls[request]
    hall.left -= 1
    if w.rules.concurrency > 0 and hall.released < len(w.calls):
        push(w, at_s + w.rules.answered_s, hall.released)
        hall.released += 1
    if call.follower != NOBODY and call.abandoned == 0:
        push(w, at_s + (call.think_s + w.rules.answered_s), call.follower)


@compiled
def cancel(w: World, request: int, at_s: float) -> None:
    """Let the client of a request that is in no queue any more send it again later, or give up its whole session."""
    call = w.calls[request]
    forget(w, request)
    call.timeouts += 1
    if call.timeouts <= w.rules.max_retries:
        push(w, at_s + w.rules.retry_delay_s, request)
        return
    while request != NOBODY:
        w.calls[request].abandoned = 1
        conclude(w, request, at_s)
        request = w.calls[request].follower


@compiled
def time_out(w: World, now_s: float) -> None:
    """Cancel what has waited too long for its first token; what runs goes at the end of the step under way."""
    hall = w.hall
    while hall.timers > 0:
        request = w.timers[hall.timer]
        call = w.calls[request]
        if call.sent_s + w.rules.timeout_s > now_s:
            break
        hall.timer = (hall.timer + 1) % len(w.timers)
        hall.timers -= 1
        if not math.isnan(w.engines.requests[request].first_token_s):
            continue
        if call.queue != NOBODY:
            take_out(w, request)
            cancel(w, request, now_s)
        else:
            _time_out_in_engine(w, request, now_s)


@compiled
def _time_out_in_engine(w: World, request: int, now_s: float) -> None:
    """Cancel a request that waits in an engine, or runs while no step is under way; mark one that is in a step."""
    call, place = w.calls[request], w.calls[request].place
    s = view(w.engines, place)
    for j in range(s.book[0].decoding, s.book[0].running):
        if s.slots[j].request == request and w.ends_s[place] < math.inf:
            call.overdue = 1
            w.places[place].overdue += 1
            return
    withdraw(s, request)
    cancel(w, request, now_s)
    retire(w, place // w.rules.places)


@compiled
def sweep(w: World, place: int, now_s: float) -> None:
    """At the end of a step, cancel what should have had its first token by then and has none."""
    s, j = view(w.engines, place), 0
    while j < s.book[0].running:
        request = s.slots[j].request
        if w.calls[request].overdue == 1 and math.isnan(s.requests[request].first_token_s):
            withdraw(s, request)  # the next one moves up
            cancel(w, request, now_s)
        else:
            w.calls[request].overdue = 0
            j += 1
    w.places[place].overdue = 0
