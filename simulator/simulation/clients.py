"""Clients of a fleet: network delay, sessions, timeouts and retries. Rules: docs/serving-rules.md, C.

In the compiled functions `f` is the state of the fleet, `request` a row of `f.calls`, and times are in seconds.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.errors import Setting, WorkloadError
from simulator.scheduler.jit import compiled
from simulator.scheduler.state import NOBODY, view
from simulator.scheduler.transitions import withdraw
from simulator.simulation.fleet_state import FleetState, append, leave, push, retire, take_out
from simulator.workloads.workload import Requests


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """How clients behave, apart from when they send requests and how long these are. Times are in seconds.

    `network_s`: round-trip time, added to every latency that the client sees. `streaming`: without it the client sees
    all tokens at once, when the last one is done. `timeout_s`: a request that has no first token so long after it was
    sent is cancelled and sent again `retry_delay_s` later, up to `max_retries` times; then it is abandoned.

    Optional columns, one entry per request, of shape (requests,): `follows` (int64) is the row of the session's
    previous turn, -1 for a first turn; `think_s` (float64) is the time between the previous answer and this turn;
    `thinking_tokens` (int64) are leading output tokens that the client does not see.

    Raises WorkloadError for a negative or infinite time, a timeout that is not positive, or negative retries.
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
                because = "it must be finite and 0 seconds or more"
                raise WorkloadError(Setting(name, getattr(self, name)), because, "Give seconds, say 0.05")
        if not self.timeout_s > 0:
            raise WorkloadError(Setting("timeout_s", self.timeout_s), "it must be above 0 seconds", "Give, say, 30")
        if self.max_retries < 0:
            raise WorkloadError(Setting("max_retries", self.max_retries), "it must be 0 or more", "Give, say, 2")

    def check(self, requests: Requests) -> None:
        """Raise WorkloadError if the optional columns do not fit the requests.

        That is: another length, as many thinking tokens as output tokens, a turn that follows no earlier row or shares
        it with another turn, or sessions in a closed loop.
        """
        for name in ("follows", "think_s", "thinking_tokens"):
            column = getattr(self, name)
            if column is not None and len(column) != len(requests):
                given = f"{name} of {len(column)} rows for {len(requests)} requests"
                raise WorkloadError(given, "each request needs one value", "Give one value per request")
        if self.thinking_tokens is not None and (self.thinking_tokens >= requests.output_tokens).any():
            because = "they are output tokens, at least one of which the client must see"
            raise WorkloadError("thinking_tokens", because, "Raise the output tokens, or lower the thinking budget")
        if self.follows is None:
            return
        later, earlier = np.flatnonzero(self.follows >= 0), self.follows[self.follows >= 0]
        if (earlier >= later).any() or len(np.unique(earlier)) < len(earlier):
            because = "each turn must follow an earlier row, and no two turns the same one"
            raise WorkloadError("follows", because, "Write a session's turns one after the other")
        if requests.concurrency:
            because = "a closed loop and sessions both say when a request is sent"
            raise WorkloadError("sessions in a closed loop", because, "Give one of the two")

    def of(self, rows: Ints) -> Self:
        """Return the clients of some rows of the workload, shape (kept,), int64, with the turns before each of them."""
        columns = {
            name: column[rows] for name in ("follows", "think_s", "thinking_tokens")
            if (column := getattr(self, name)) is not None
        }  # fmt: skip
        if self.follows is not None:
            columns["follows"] = np.where(columns["follows"] >= 0, np.searchsorted(rows, columns["follows"]), NOBODY)
        return replace(self, **columns)

    def followers(self, count: int) -> Ints:
        """Return the row of each request's next turn, shape (count,), int64; NOBODY (-1) where the session ends."""
        found = np.full(count, NOBODY, np.int64)
        if self.follows is not None:
            found[self.follows[self.follows >= 0]] = np.flatnonzero(self.follows >= 0)
        return found

    def thinks_s(self, count: int) -> Floats:
        """Return the seconds between each request's answer and its next turn, shape (count,); 0 where there is none."""
        found, followers = np.zeros(count), self.followers(count)
        if self.think_s is not None:
            found[followers >= 0] = self.think_s[followers[followers >= 0]]
        return found


@compiled
def send(f: FleetState, request: int, at_s: float) -> None:
    """Let a request arrive at the router of its pool at `at_s`, and start its timeout if it comes from the client.

    Rules C and I.
    """
    loop, call, row = f.loop, f.calls[request], f.engines.requests[request]
    if call.pool == 0:
        if call.timeouts == 0:
            row.arrival_s = at_s
        call.sent_s = at_s
        if f.rules.timeout_s < math.inf:
            f.timers[(loop.timer + loop.timers) % len(f.timers)] = request
            loop.timers += 1
    append(f, call.pool, request)


@compiled
def start_over(f: FleetState, request: int) -> None:
    """Reset a request that is in no queue, so that it can start from the beginning."""
    row, call = f.engines.requests[request], f.calls[request]
    if call.engine != NOBODY:
        leave(f, request)
    row.emitted = 0
    row.scheduled_s = row.first_token_s = row.finished_s = math.nan
    row.stalled_s = 0.0
    call.engine, call.pool, call.overdue = NOBODY, 0, 0
    row.prefilled = 0
    if f.rules.prefill_replicas > 0:
        row.output_tokens = 1


@compiled
def conclude(f: FleetState, request: int, at_s: float) -> None:
    """Send what waited for the end of a request: the next turn of its session, the next request of a closed loop.

    Both come over its connection. Rules C and T.
    """
    loop, call = f.loop, f.calls[request]
    loop.left -= 1
    if f.rules.concurrency > 0 and loop.released < len(f.calls):
        f.calls[loop.released].worker = call.worker
        push(f, at_s + f.rules.answered_s, loop.released)
        loop.released += 1
    if call.follower != NOBODY and call.abandoned == 0:
        f.calls[call.follower].worker = call.worker
        push(f, at_s + (call.think_s + f.rules.answered_s), call.follower)


@compiled
def cancel(f: FleetState, request: int, at_s: float) -> None:
    """Cancel a request that is in no queue: its client retries it later, or abandons it and the rest of its session.

    Rule C.
    """
    call = f.calls[request]
    start_over(f, request)
    call.timeouts += 1
    if call.timeouts <= f.rules.max_retries:
        push(f, at_s + f.rules.retry_delay_s, request)
        return
    while request != NOBODY:
        f.calls[request].abandoned = 1
        conclude(f, request, at_s)
        request = f.calls[request].follower


@compiled
def time_out(f: FleetState, now_s: float) -> None:
    """Cancel what has waited too long for its first token; what runs goes at the end of the step under way."""
    loop = f.loop
    while loop.timers > 0:
        request = f.timers[loop.timer]
        call = f.calls[request]
        if call.sent_s + f.rules.timeout_s > now_s:
            break
        loop.timer = (loop.timer + 1) % len(f.timers)
        loop.timers -= 1
        if not math.isnan(f.engines.requests[request].first_token_s):
            continue
        if call.queue != NOBODY:
            take_out(f, request)
            cancel(f, request, now_s)
        else:
            _time_out_in_engine(f, request, now_s)


@compiled
def _time_out_in_engine(f: FleetState, request: int, now_s: float) -> None:
    """Cancel a request that waits in an engine, or runs between steps; mark it as overdue while a step is under way."""
    call, engine = f.calls[request], f.calls[request].engine
    s = view(f.engines, engine)
    for j in range(s.book[0].decoding, s.book[0].running):
        if s.slots[j].request == request and f.ends_s[engine] < math.inf:
            call.overdue = 1
            f.engine_steps[engine].overdue += 1
            return
    withdraw(s, request)
    cancel(f, request, now_s)
    retire(f, engine // f.rules.engines_per_replica)


@compiled
def cancel_overdue(f: FleetState, engine: int, now_s: float) -> None:
    """At the end of an engine's step, cancel its timed-out requests that still have no first token. Rule C."""
    s, j = view(f.engines, engine), 0
    while j < s.book[0].running:
        request = s.slots[j].request
        if f.calls[request].overdue == 1 and math.isnan(s.requests[request].first_token_s):
            withdraw(s, request)  # the next one moves up
            cancel(f, request, now_s)
        else:
            f.calls[request].overdue = 0
            j += 1
    f.engine_steps[engine].overdue = 0
