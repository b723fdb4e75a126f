"""The event loop: arrivals, steps and completions of one engine, as two flat tables."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled
from simulator.roofline import StepTable
from simulator.scheduler import complete, schedule
from simulator.state import Floats, Limits, State, Table, new_state, waiting
from simulator.workload import Requests

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
    ]
)
BURST = 65_536  # steps between two looks at the clock on the wall
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: one row per request and one per step, in seconds and tokens."""

    limits: Limits
    requests: Requests
    scheduled_s: Floats
    first_token_s: Floats
    finished_s: Floats
    stalled_s: Floats
    preemptions: npt.NDArray[np.int64]
    steps: Table

    @property
    def busy_s(self) -> float:
        """Seconds in which a step ran."""
        return float(self.steps.seconds.sum())

    @property
    def end_s(self) -> float:
        """The end of the last step."""
        last = self.steps[-1] if len(self.steps) else None
        return float(last.start_s + last.seconds) if last is not None else 0.0


@compiled
def decode_seconds(s: State, table: StepTable) -> float:
    """Return how long the scheduled step would take without its prompts, 0 where nothing decodes."""
    book = s.book[0]
    if book.decode_now == 0:
        return 0.0
    reads, windowed = book.base_sum + book.decoding * (book.tick + 1), 0
    if s.limits.window > 0:
        closed = book.decoding - book.open_reads
        windowed = book.open_base_sum + book.open_reads * (book.tick + 1) + closed * s.limits.window
    alone = table.token_s[book.decoding] + table.logit_s[book.decoding]
    return alone + table.slopes[0] * reads + table.slopes[1] * windowed


@compiled
def prompt_seconds(s: State, table: StepTable) -> float:
    """Return what the scheduled prompts add to the step: more tokens, more logits, attention over the prompts."""
    book = s.book[0]
    if book.prompt_tokens == 0:
        return 0.0
    decodes = book.decoding * book.decode_now
    added = _token_seconds(table.token_s, decodes + book.prompt_tokens) + table.logit_s[book.scheduled]
    if decodes > 0:
        added -= table.token_s[decodes] + table.logit_s[decodes]
    return (
        added
        + table.slopes[2] * book.prompt_tokens
        + table.slopes[3] * book.prompt_pairs
        + table.slopes[4] * book.prompt_pairs_windowed
    )


@compiled
def _token_seconds(token_s: Floats, tokens: int) -> float:
    """Look up, and go on with the last slope for the large prompts of a static batch."""
    last = len(token_s) - 1
    if tokens <= last:
        return token_s[tokens]
    return token_s[last] + (tokens - last) * (token_s[last] - token_s[last - 1])


@compiled
def _burst(s: State, table: StepTable, arrival_s: Floats, clock: Floats, steps: npt.NDArray[np.void]) -> int:
    """Run until the table of steps is full or nothing is left; return how many rows were filled.

    `clock` is the time now, and the time up to which the scheduler has seen arrivals.
    """
    book, requests = s.book[0], len(arrival_s)
    for index in range(len(steps)):
        while book.arrived < requests and arrival_s[book.arrived] <= clock[1]:
            book.arrived += 1
        scheduled = schedule(s, clock[0])
        if scheduled == 0:
            if book.arrived == requests:
                return index
            clock[0] = clock[1] = max(clock[0], arrival_s[book.arrived])
            while book.arrived < requests and arrival_s[book.arrived] <= clock[1]:
                book.arrived += 1
            scheduled = schedule(s, clock[0])
        prompt_s = prompt_seconds(s, table)
        seconds = decode_seconds(s, table) + prompt_s
        step = steps[index]
        step.start_s = clock[0]
        step.seconds = seconds
        step.prompt_s = prompt_s
        step.decodes = book.decoding * book.decode_now
        step.prompts = scheduled - step.decodes
        step.prompt_tokens = book.prompt_tokens
        step.running = book.running
        step.waiting = waiting(s)
        step.blocks = s.limits.num_blocks - book.free_blocks
        end_s = clock[0] + seconds
        finished = complete(s, end_s)
        if book.released > 0:  # closed loop: each completion sends the next request
            for request in range(book.released, min(book.released + finished, requests)):
                arrival_s[request] = end_s
            book.released += finished
        clock[1] = clock[0] if s.limits.async_scheduling else end_s
        clock[0] = end_s
    return len(steps)


def simulate(limits: Limits, table: StepTable, requests: Requests, progress: Progress | None = None) -> Run:
    """Run a workload to its end under an engine's limits, each step taking the time that the table says.

    `progress` is called with (requests finished, all requests) after every burst of steps. The caller has refused
    requests that can never fit: see `Deployment.check`.
    """
    state = new_state(limits, requests.prompt_tokens, requests.output_tokens)
    arrival_s = np.array(requests.arrival_s)
    if requests.concurrency:
        arrival_s[requests.concurrency :] = np.inf
        state.book[0].released = min(requests.concurrency, len(arrival_s))
    clock, bursts = np.zeros(2), []
    while True:
        steps = np.zeros(BURST, STEP)
        count = _burst(state, table, arrival_s, clock, steps)
        bursts.append(steps if count == BURST else steps[:count].copy())
        if progress is not None:
            progress(int(state.book[0].finished), len(arrival_s))
        if count < BURST:
            break
    return Run(
        limits=limits,
        requests=Requests(arrival_s, requests.prompt_tokens, requests.output_tokens, requests.concurrency),
        scheduled_s=np.ascontiguousarray(state.requests.scheduled_s),
        first_token_s=np.ascontiguousarray(state.requests.first_token_s),
        finished_s=np.ascontiguousarray(state.requests.finished_s),
        stalled_s=np.ascontiguousarray(state.requests.stalled_s),
        preemptions=np.ascontiguousarray(state.requests.preemptions),
        steps=np.concatenate(bursts).view(np.recarray),
    )
