"""The event loop: arrivals, steps and completions of one engine, as two flat tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.arrays import Floats, Ints
from simulator.errors import WorkloadError
from simulator.roofline.step_model import StepTable
from simulator.scheduler.completion import complete, show
from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.policies import received_s, schedule, wake_s
from simulator.scheduler.prefix_cache import warm_cache
from simulator.scheduler.state import (
    UNCACHED,
    SchedulerLimits,
    State,
    Table,
    engine_state,
    limits_of_record,
    new_engines,
    new_requests,
)
from simulator.scheduler.waiting_queue import enqueue
from simulator.simulation.rejection import Rejected, rejections
from simulator.simulation.run_size import refuse_oversized
from simulator.simulation.step_seconds import step_seconds
from simulator.workloads.workload import Requests

STEP = np.dtype(
    [
        ("start_s", np.float64),
        ("seconds", np.float64),
        ("prompt_s", np.float64),  # of these, what its prompts add to a step of its decodes alone
        ("decodes", np.int32),  # sequences that decode
        ("prompts", np.int32),  # sequences that compute tokens of their prompt
        ("prompt_tokens", np.int32),
        ("running", np.int32),
        ("waiting", np.int32),
        ("blocks", np.int32),  # cache blocks held
        ("cached_tokens", np.int32),  # tokens in these; blocks of shared tokens, and the tokens, count once
        ("loaded_tokens", np.int32),  # tokens whose cache came back from the host's tier
    ]
)
BURST = 65_536  # steps between two looks at the clock on the wall
OUTCOMES = ("scheduled_s", "first_token_s", "finished_s", "stalled_s", "preemptions", "hit_tokens")  # of a request
Progress = Callable[[int, int], None]
Acceptance = Sequence[float]


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: one row per request that was not `rejected` and one per step, in seconds and tokens."""

    limits: SchedulerLimits
    requests: Requests
    scheduled_s: Floats
    first_token_s: Floats
    finished_s: Floats
    stalled_s: Floats
    preemptions: Ints
    hit_tokens: Ints  # of each prompt, what the prefix cache had when it was first admitted
    steps: Table
    rejected: Rejected = field(default_factory=Rejected)
    stages: int = 1  # of a pipeline: as many engines, each with its part of the slots and of the cache (`limits`)

    @property
    def busy_s(self) -> float:
        """Seconds in which a step ran."""
        return float(self.steps.seconds.sum())

    @property
    def engines(self) -> int:
        """How many steps may run at once."""
        return 1

    def at_once(self, of_steps: Ints) -> tuple[float, int]:
        """Return mean, over busy time, and peak of what a replica has at once, from what is in each step."""
        mean = float(np.average(of_steps, weights=self.steps.seconds)) if self.busy_s else 0.0
        return mean, int(of_steps.max(initial=0))

    @property
    def end_s(self) -> float:
        """The end of the last step."""
        last = self.steps[-1] if len(self.steps) else None
        return float(last.start_s + last.seconds) if last is not None else 0.0

    @property
    def seen_s(self) -> float:
        """When the last token was seen: the end of the last step, or later where a front end streams it."""
        return max(self.end_s, float(np.nanmax(self.finished_s, initial=0.0)))


@inlined
def _arrive(s: State, seen_until_s: float) -> None:
    """Let every request in that has arrived by a time."""
    book = s.book[0]
    while book.arrived < len(s.requests) and s.requests[book.arrived].arrival_s <= seen_until_s:
        enqueue(s, book.arrived)
        book.arrived += 1


@inlined
def _next_arrival_s(s: State) -> float:
    """Return when the next request arrives; infinity where none is on its way."""
    return s.requests[s.book[0].arrived].arrival_s if s.book[0].arrived < len(s.requests) else np.inf


@inlined
def begin(s: State, clock: Floats) -> int:
    """Decide the next step at the time on the clock, after a jump to the next arrival where there is nothing to do.

    `clock` is the time now, and the time up to which the scheduler has seen arrivals. Return how many sequences take
    part; 0 when everything is done.
    """
    moment_s = clock[1]
    while True:
        _arrive(s, moment_s)
        s.book[0].last_call = 1 if _next_arrival_s(s) == np.inf else 0
        scheduled = schedule(s, clock[0])
        if scheduled > 0:
            return scheduled
        moment_s = min(_next_arrival_s(s), wake_s(s, clock[0]))
        if moment_s == np.inf:
            return 0
        moment_s = clock[0] = clock[1] = max(clock[0], moment_s)
        s.book[0].ahead_s = 0.0


@inlined
def end(s: State, clock: Floats, seconds: float) -> None:
    """Complete the step that was begun, so many seconds after its start, and set the clock to its end."""
    book, end_s = s.book[0], clock[0] + seconds
    shown_s = show(s, end_s)
    finished = complete(s, shown_s)
    if book.released > 0:  # closed loop: each completion sends the next request
        for request in range(book.released, min(book.released + finished, len(s.requests))):
            s.requests[request].arrival_s = shown_s + s.limits.turnaround_s
            if s.requests[request].prefilled:
                s.requests[request].first_token_s = s.requests[request].arrival_s
        book.released += finished
    clock[1] = received_s(s, clock[0] if s.limits.async_scheduling else end_s)
    clock[0] = end_s


@inlined
def cached_tokens(s: State) -> int:
    """Return the tokens that the cache holds in the step that was scheduled, its own included, shared ones once."""
    book = s.book[0]
    if s.limits.policy == UNCACHED:
        return 0
    decoded = book.base_sum + book.unfinished * (book.tick + book.decode_now) + book.padding
    shared = book.extra_holders * s.limits.prefix_block_tokens
    return decoded + book.prompt_cached + book.prompt_tokens - shared


@inlined
def note(s: State, steps: npt.NDArray[np.void], index: int, start_s: float, seconds: float, prompt_s: float) -> None:
    """Write down what the step that was begun consists of, and how long it takes."""
    book, step = s.book[0], steps[index]
    step.start_s = start_s
    step.seconds = seconds
    step.prompt_s = prompt_s
    step.decodes = book.decoding * book.decode_now
    step.prompts = book.scheduled - step.decodes
    step.prompt_tokens = book.prompt_tokens
    step.running = book.running
    step.waiting = book.waiting
    step.blocks = s.limits.num_blocks - book.free_blocks
    step.cached_tokens = cached_tokens(s)
    step.loaded_tokens = book.loaded_tokens


@compiled
def _burst(s: State, table: StepTable, clock: Floats, steps: npt.NDArray[np.void]) -> int:
    """Run until the table of steps is full or nothing is left; return how many rows were filled."""
    for index in range(len(steps)):
        if begin(s, clock) == 0:
            return index
        seconds, prompt_s = step_seconds(s, table)
        note(s, steps, index, clock[0], seconds, prompt_s)
        end(s, clock, seconds)
    return len(steps)


def request_table(requests: Requests, prefix_block_tokens: int) -> Table:
    """Return the scheduler's table of a workload; in a closed loop all but the first requests are still to be sent."""
    arrival_s = np.array(requests.arrival_s)
    arrival_s[requests.concurrency or len(arrival_s) :] = np.inf
    table = new_requests(arrival_s, requests.prompt_tokens, requests.output_tokens)
    table.priority, table.prefilled = requests.priority, requests.prefilled
    table.first_token_s[requests.prefilled] = arrival_s[requests.prefilled]
    table.emitted = requests.prefilled
    if len(requests.prefixes):
        table.first_prefix_block, table.prefix_block_count = requests.prefixes.first, requests.prefixes.count
    if prefix_block_tokens:
        most = (table.prompt_tokens + table.output_tokens - 1) // prefix_block_tokens
        table.prefix_block_count = np.minimum(table.prefix_block_count, most)
    return table


def opening(limits: SchedulerLimits, requests: Requests, acceptance: Acceptance = ()) -> State:
    """Return the state before the first step."""
    table = request_table(requests, limits.prefix_block_tokens)
    state = engine_state(new_engines([(limits, tuple(acceptance))], table, requests.prefixes.ids), 0)
    state.book[0].released = min(requests.concurrency, len(requests))
    if limits.prefix_block_tokens:
        warm_cache(state, requests.prefixes.ids[requests.prefixes.warm])
    return state


def closing(s: State, requests: Requests, steps: npt.NDArray[np.void]) -> Run:
    """Return what happened, after the last step."""
    columns: dict[str, Any] = {name: np.ascontiguousarray(s.requests[name]) for name in OUTCOMES}
    sent = replace(requests, arrival_s=s.requests.arrival_s)
    return Run(limits=limits_of_record(s.limits), requests=sent, steps=steps.view(np.recarray), **columns)


def stuck(left: int, requests: Requests) -> WorkloadError:
    """Return the error of requests that no step can take."""
    because = "a prompt, or what a preemption makes an engine compute again, is more than a step may compute"
    remedy = "Raise max_num_batched_tokens, or choose a device with room for more cache"
    return WorkloadError(f"{left} of {len(requests)} requests that wait for ever", because, remedy)


def simulate(
    limits: SchedulerLimits,
    table: StepTable,
    requests: Requests,
    progress: Progress | None = None,
    acceptance: Acceptance = (),
) -> Run:
    """Run a workload to its end under an engine's limits, each step taking the time that the table says.

    Requests that the engine could never finish are rejected and take no part. `progress` is called with (requests
    finished, all requests) after every burst of steps; `acceptance` are the probabilities that the 1st, 2nd, ... draft
    token is accepted if all before it are. WorkloadError where all are rejected, or some wait for ever; InfercastError
    for what exceeds the memory.
    """
    rejected = Rejected.of(rejections(limits, requests), len(requests))
    requests = requests.only(rejected.accepted(len(requests))) if len(rejected) else requests
    refuse_oversized(limits, requests)
    state, clock, bursts = opening(limits, requests, acceptance), np.zeros(2), []
    while True:
        steps = np.zeros(BURST, STEP).view(np.recarray)  # so that plain Python, too, reads fields as attributes
        count = _burst(state, table, clock, steps)
        bursts.append(steps if count == BURST else steps[:count].copy())
        if progress is not None:
            progress(int(state.book[0].finished), len(requests))
        if count < BURST:
            break
    if left := len(requests) - int(state.book[0].finished):
        raise stuck(left, requests)
    return replace(closing(state, requests, np.concatenate(bursts)), rejected=rejected)
