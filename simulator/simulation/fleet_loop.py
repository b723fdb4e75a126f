"""Event loop of a fleet: several engines, each with its own clock, behind a router. Rules: docs/serving-rules.md."""

import math

import numpy as np
import numpy.typing as npt

from simulator.roofline.step_model import StepTable
from simulator.scheduler.completion import complete, show
from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.policies import received_s, schedule, wake_s
from simulator.scheduler.state import NOBODY, State, view
from simulator.scheduler.waiting_queue import enqueue
from simulator.simulation.autoscaler import control, next_check_s, ready_or_starting, start_lowest
from simulator.simulation.clients import cancel_overdue, conclude, send, time_out
from simulator.simulation.engine_loop import STEP, note
from simulator.simulation.fleet_state import (
    FleetState,
    append,
    first_engine,
    inbox,
    leave,
    pool_number,
    pop,
    push,
    retire,
    take_out,
)
from simulator.simulation.routers import choose
from simulator.simulation.step_seconds import step_seconds

Tables = tuple[StepTable, StepTable]  # of the pool that requests come to, and of the one that decodes for it
FLEET_STEP = np.dtype([*STEP.descr, ("work_s", np.float64), ("replica", np.int32)])


@compiled
def _next_moment(f: FleetState) -> float:
    """Return the time in seconds of the next event, infinity if there will be none."""
    loop = f.loop
    t: float = min(loop.ready_s, loop.wake_s)
    for engine in range(len(f.ends_s)):
        t = min(t, f.ends_s[engine])
    if loop.opened < len(f.order):
        t = min(t, f.engines.requests[f.order[loop.opened]].arrival_s)
    if loop.heaped > 0:
        t = min(t, f.heap_s[0])
    if loop.timers > 0:
        t = min(t, f.calls[f.timers[loop.timer]].sent_s + f.rules.timeout_s)
    if loop.failure < len(f.failures):
        t = min(t, f.failures[loop.failure].at_s)
    return min(t, next_check_s(f, t)) if f.rules.autoscaled == 1 else t


@inlined
def _end_steps(f: FleetState, now_s: float) -> None:
    """Complete all steps that end at `now_s`, and everything that the finished requests cause."""
    for engine in range(len(f.ends_s)):
        if f.ends_s[engine] > now_s:
            continue
        replica = engine // f.rules.engines_per_replica
        s = view(f.engines, engine)
        shown_s = show(s, now_s)
        complete(s, shown_s)
        f.ends_s[engine] = math.inf
        f.engine_steps[engine].busy = 0
        f.loop.busy -= 1
        request = s.book[0].first_done
        while request != NOBODY:
            following = s.requests[request].next
            _finish(f, request, engine, now_s, shown_s)
            request = following
        if f.engine_steps[engine].overdue > 0:
            cancel_overdue(f, engine, now_s)
        if f.rules.autoscaled == 1:
            retire(f, replica)


@compiled
def _finish(f: FleetState, request: int, engine: int, now_s: float, shown_s: float) -> None:
    """Handle the end of a request; after a prefill, its KV cache is sent over the link of its replica."""
    call, row = f.calls[request], f.engines.requests[request]
    call.overdue = 0
    leave(f, request)
    if call.pool == 1 or f.rules.prefill_replicas == 0 or call.output_tokens == 1:
        conclude(f, request, shown_s)
        return
    link = f.replicas[engine // f.rules.engines_per_replica]
    link.link_free_s = max(now_s, link.link_free_s) + call.transfer_s
    call.pool = 1
    row.finished_s = math.nan
    row.output_tokens, row.prefilled, row.emitted = call.output_tokens, 1, 1
    push(f, link.link_free_s, request)


@inlined
def _arrive(f: FleetState, now_s: float) -> None:
    """Let requests arrive that are due at `now_s`, then send requests from the routers to replicas."""
    loop, requests = f.loop, f.engines.requests
    while True:
        coming_s, request = math.inf, NOBODY
        if loop.opened < len(f.order):
            request = f.order[loop.opened]
            coming_s = requests[request].arrival_s
        if loop.heaped > 0 and (f.heap_s[0], f.heap[0]) < (coming_s, request):
            if f.heap_s[0] > now_s:
                break
            coming_s = f.heap_s[0]
            send(f, pop(f), coming_s)
        elif coming_s <= now_s:
            loop.opened += 1
            send(f, request, coming_s)
        else:
            break
    for pool in range(2):
        while f.queues[pool].waiting > 0 and _route(f, pool, now_s):
            pass


@compiled
def _route(f: FleetState, pool: int, now_s: float) -> bool:
    """Send the head of a router's queue to a replica's least loaded engine; return False if no replica takes it."""
    queue = f.queues[pool]
    request = queue.head
    replica = choose(f, pool, request)
    if replica == NOBODY:
        scaler = f.scalers[pool]
        if scaler.metric > 0 and scaler.min_replicas == 0 and ready_or_starting(f, pool) == 0:
            start_lowest(f, pool)
        return False
    queue.last = replica
    take_out(f, request)
    engine, first = first_engine(f, replica), first_engine(f, replica)
    for each in range(first + 1, first + f.rules.engines_per_replica):
        if _load(f, each) < _load(f, engine):
            engine = each
    append(f, inbox(engine), request)
    call = f.calls[request]
    call.engine, call.routed_s = engine, now_s
    call.sendings += 1
    f.connections[call.worker, replica] += 1
    return True


@compiled
def _load(f: FleetState, engine: int) -> int:
    """Count the requests that wait or run at an engine."""
    count: int = f.engines.books[engine].waiting + f.engines.books[engine].running + f.queues[inbox(engine)].waiting
    return count


@inlined
def _see(f: FleetState, s: State, engine: int, until_s: float) -> None:
    """Move requests that were routed to an engine until `until_s` into its scheduler's queue."""
    queue = f.queues[inbox(engine)]
    while queue.waiting > 0 and f.calls[queue.head].routed_s <= until_s:
        request = queue.head
        take_out(f, request)
        enqueue(s, request)


@inlined
def _begin_steps(f: FleetState, tables: Tables, now_s: float, steps: npt.NDArray[np.void], rows: int) -> int:
    """Begin a step on every idle engine that has work; return how many rows of `steps` are filled."""
    loop = f.loop
    loop.wake_s = math.inf
    last_call = 1 if loop.opened == len(f.order) and loop.heaped == 0 else 0
    for engine in range(len(f.ends_s)):
        row = f.engine_steps[engine]
        if row.busy == 1 or _load(f, engine) == 0:
            continue
        replica = engine // f.rules.engines_per_replica
        s, table = view(f.engines, engine), tables[pool_number(f, replica)]
        _see(f, s, engine, received_s(s, row.start_s if s.limits.async_scheduling else now_s))
        if s.book[0].running + s.book[0].waiting == 0:
            _see(f, s, engine, now_s)
            s.book[0].ahead_s = 0.0
        s.book[0].last_call = last_call
        if schedule(s, now_s) == 0:
            loop.wake_s = min(loop.wake_s, wake_s(s, now_s))
            continue
        work_s, prompt_s = step_seconds(s, table)
        end_s = _pass_stages(f, replica, now_s, work_s)
        note(s, steps, rows, now_s, work_s if f.rules.engines_per_replica == 1 else end_s - now_s, prompt_s)
        steps[rows].work_s, steps[rows].replica = work_s, replica
        f.ends_s[engine] = end_s
        row.busy, row.start_s, row.step = 1, now_s, loop.steps + rows
        loop.busy += 1
        rows += 1
    return rows


@inlined
def _pass_stages(f: FleetState, replica: int, now_s: float, work_s: float) -> float:
    """Return when a step leaves the last pipeline stage; each stage serves one batch at a time, as fast as the slowest.

    A step takes the mean share in each: those with more layers and those with fewer make up for each other.
    """
    free_s, t = f.stages_free_s[replica], now_s
    share_s = work_s / f.rules.engines_per_replica
    for stage in range(f.rules.engines_per_replica):
        t = max(t, free_s[stage])
        free_s[stage] = t + f.rules.slowest_stage * share_s
        t += share_s
    return t


@compiled
def burst(f: FleetState, tables: Tables, steps: npt.NDArray[np.void]) -> int:
    """Simulate until `steps` (FLEET_STEP rows) or the table of events is nearly full, or all is done.

    `steps` has shape (rows,). `tables` are the step times of the first pool and of the decode pool. Return the number
    of rows filled. Rule R.
    """
    loop, rows = f.loop, 0
    most_events = 4 * f.rules.replicas + 2 * len(f.failures)
    while loop.left > 0 and rows + len(f.ends_s) <= len(steps) and loop.events + most_events <= len(f.events):
        now_s = _next_moment(f)
        if now_s == math.inf:
            loop.stuck = 1
            break
        loop.clock_s = now_s
        _end_steps(f, now_s)
        if f.rules.timeout_s < math.inf:
            time_out(f, now_s)
        control(f, now_s)
        _arrive(f, now_s)
        rows = _begin_steps(f, tables, now_s, steps, rows)
    loop.steps += rows
    return rows
