"""The event loop of a fleet: several engines with their own clocks behind a router. Rules: docs/serving-rules.md."""

import math

import numpy as np
import numpy.typing as npt

from simulator.roofline.step_model import StepTable
from simulator.scheduler.completion import complete, show
from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.policies import schedule, wake_s
from simulator.scheduler.state import NOBODY, State, view
from simulator.scheduler.waiting_queue import enqueue
from simulator.simulation.autoscaler import control, ready_or_starting, start_lowest
from simulator.simulation.clients import conclude, send, sweep, time_out
from simulator.simulation.engine_loop import STEP, note, step_seconds
from simulator.simulation.fleet_state import (
    World,
    append,
    first_place,
    inbox,
    pool_of,
    pop,
    push,
    retire,
    take_out,
)
from simulator.simulation.routers import choose

Tables = tuple[StepTable, StepTable]  # of the pool that requests come to, and of the one that decodes for it
FLEET_STEP = np.dtype([*STEP.descr, ("work_s", np.float64), ("replica", np.int32)])


@compiled
def _next_moment(w: World) -> float:
    """Return the time of what happens next, infinity where nothing more will."""
    hall = w.hall
    t: float = min(hall.ready_s, hall.wake_s)
    for place in range(len(w.ends_s)):
        t = min(t, w.ends_s[place])
    if hall.opened < len(w.order):
        t = min(t, w.engines.requests[w.order[hall.opened]].arrival_s)
    if hall.heaped > 0:
        t = min(t, w.heap_s[0])
    if hall.timers > 0:
        t = min(t, w.calls[w.timers[hall.timer]].sent_s + w.rules.timeout_s)
    if hall.failure < len(w.failures):
        t = min(t, w.failures[hall.failure].at_s)
    if w.rules.metric > 0 and not (t == math.inf and hall.settled == 1):
        t = min(t, hall.check * w.rules.interval_s)
    return t


@inlined
def _end_steps(w: World, now_s: float) -> None:
    """Complete the steps that end now, with what follows from them."""
    for place in range(len(w.ends_s)):
        if w.ends_s[place] > now_s:
            continue
        replica = place // w.rules.places
        s = view(w.engines, place)
        shown_s = show(s, now_s)
        complete(s, shown_s)
        w.ends_s[place] = math.inf
        w.places[place].busy = 0
        w.hall.busy -= 1
        request = s.book[0].first_done
        while request != NOBODY:
            following = s.requests[request].next
            _finish(w, request, place, now_s, shown_s)
            request = following
        if w.places[place].overdue > 0:
            sweep(w, place, now_s)
        if w.rules.metric > 0:
            retire(w, replica)


@compiled
def _finish(w: World, request: int, place: int, now_s: float, shown_s: float) -> None:
    """Let what a request's end means happen; the end of a prefill sends its cache over the link of its replica."""
    call, row = w.calls[request], w.engines.requests[request]
    call.overdue = 0
    if call.pool == 1 or w.rules.prefill_replicas == 0 or call.output_tokens == 1:
        conclude(w, request, shown_s)
        return
    link = w.replicas[place // w.rules.places]
    link.link_free_s = max(now_s, link.link_free_s) + call.transfer_s
    call.pool = 1
    row.finished_s = math.nan
    row.output_tokens, row.given, row.emitted = call.output_tokens, 1, 1
    push(w, link.link_free_s, request)


@inlined
def _arrive(w: World, now_s: float) -> None:
    """Let requests in that arrive now, and send what waits at the routers to replicas."""
    hall, requests = w.hall, w.engines.requests
    while True:
        coming_s, request = math.inf, NOBODY
        if hall.opened < len(w.order):
            request = w.order[hall.opened]
            coming_s = requests[request].arrival_s
        if hall.heaped > 0 and (w.heap_s[0], w.heap[0]) < (coming_s, request):
            if w.heap_s[0] > now_s:
                break
            coming_s = w.heap_s[0]
            send(w, pop(w), coming_s)
        elif coming_s <= now_s:
            hall.opened += 1
            send(w, request, coming_s)
        else:
            break
    for pool in range(2):
        while w.queues[pool].waiting > 0 and _route(w, pool, now_s):
            pass


@compiled
def _route(w: World, pool: int, now_s: float) -> bool:
    """Send the head of a router's queue to a replica; False where there is none for it."""
    door = w.queues[pool]
    request = door.head
    replica = choose(w, pool, request)
    if replica == NOBODY:
        if w.rules.metric > 0 and w.rules.min_replicas == 0 and ready_or_starting(w) == 0:
            start_lowest(w)
        return False
    door.last = replica
    take_out(w, request)
    place, first = first_place(w, replica), first_place(w, replica)
    for each in range(first + 1, first + w.rules.places):
        if _load(w, each) < _load(w, place):
            place = each
    append(w, inbox(place), request)
    call = w.calls[request]
    call.place, call.routed_s = place, now_s
    call.sendings += 1
    return True


@compiled
def _load(w: World, place: int) -> int:
    """Count the requests at a place."""
    count: int = w.engines.books[place].waiting + w.engines.books[place].running + w.queues[inbox(place)].waiting
    return count


@inlined
def _see(w: World, s: State, place: int, until_s: float) -> None:
    """Let an engine know what was routed to it until a time."""
    line = w.queues[inbox(place)]
    while line.waiting > 0 and w.calls[line.head].routed_s <= until_s:
        request = line.head
        take_out(w, request)
        enqueue(s, request)


@inlined
def _begin_steps(w: World, tables: Tables, now_s: float, steps: npt.NDArray[np.void], rows: int) -> int:
    """Begin a step wherever there is something to do and none is under way; return the rows filled so far."""
    hall = w.hall
    hall.wake_s = math.inf
    last_call = 1 if hall.opened == len(w.order) and hall.heaped == 0 else 0
    for place in range(len(w.ends_s)):
        row = w.places[place]
        if row.busy == 1 or _load(w, place) == 0:
            continue
        replica = place // w.rules.places
        s, table = view(w.engines, place), tables[pool_of(w, replica)]
        _see(w, s, place, row.start_s if s.limits.async_scheduling else now_s)
        if s.book[0].running + s.book[0].waiting == 0:
            _see(w, s, place, now_s)
        s.book[0].last_call = last_call
        if schedule(s, now_s) == 0:
            hall.wake_s = min(hall.wake_s, wake_s(s, now_s))
            continue
        work_s, prompt_s = step_seconds(s, table)
        end_s = _pass_stages(w, replica, now_s, work_s)
        note(s, steps, rows, now_s, work_s if w.rules.places == 1 else end_s - now_s, prompt_s)
        steps[rows].work_s, steps[rows].replica = work_s, replica
        w.ends_s[place] = end_s
        row.busy, row.start_s, row.step = 1, now_s, hall.steps + rows
        hall.busy += 1
        rows += 1
    return rows


@inlined
def _pass_stages(w: World, replica: int, now_s: float, work_s: float) -> float:
    """Return when a step leaves the last stage; a stage serves one batch at a time."""
    free_s, t = w.stages_free_s[replica], now_s
    for stage in range(w.rules.places):
        t = max(t, free_s[stage]) + work_s / w.rules.places
        free_s[stage] = t
    return t


@compiled
def burst(w: World, tables: Tables, steps: npt.NDArray[np.void]) -> int:
    """Run until the table of steps or that of events may be full, or nothing is left; return the rows filled."""
    hall, rows = w.hall, 0
    most_events = 4 * w.rules.replicas + 2 * len(w.failures)
    while hall.left > 0 and rows + len(w.ends_s) <= len(steps) and hall.events + most_events <= len(w.events):
        now_s = _next_moment(w)
        if now_s == math.inf:
            hall.stuck = 1
            break
        hall.clock_s, hall.settled = now_s, 0
        _end_steps(w, now_s)
        if w.rules.timeout_s < math.inf:
            time_out(w, now_s)
        control(w, now_s)
        _arrive(w, now_s)
        rows = _begin_steps(w, tables, now_s, steps, rows)
    hall.steps += rows
    return rows
