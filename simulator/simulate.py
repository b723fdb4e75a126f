"""The event loop: arrivals, steps and completions of one engine, as two flat tables."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled, inlined
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


@inlined
def _arrive(s: State, arrival_s: Floats, seen_until_s: float) -> None:
    """Let every request in that has arrived by a time."""
    book = s.book[0]
    while book.arrived < len(arrival_s) and arrival_s[book.arrived] <= seen_until_s:
        book.arrived += 1


@inlined
def begin(s: State, arrival_s: Floats, clock: Floats) -> int:
    """Decide the next step at the time on the clock, after a jump to the next arrival where there is nothing to do.

    `clock` is the time now, and the time up to which the scheduler has seen arrivals. Return how many sequences take
    part; 0 when everything is done.
    """
    _arrive(s, arrival_s, clock[1])
    scheduled = schedule(s, clock[0])
    if scheduled == 0 and s.book[0].arrived < len(arrival_s):
        clock[0] = clock[1] = max(clock[0], arrival_s[s.book[0].arrived])
        _arrive(s, arrival_s, clock[1])
        scheduled = schedule(s, clock[0])
    return scheduled


@inlined
def end(s: State, arrival_s: Floats, clock: Floats, seconds: float) -> None:
    """Complete the step that was begun, so many seconds after its start, and set the clock to its end."""
    book, end_s = s.book[0], clock[0] + seconds
    finished = complete(s, end_s)
    if book.released > 0:  # closed loop: each completion sends the next request
        for request in range(book.released, min(book.released + finished, len(arrival_s))):
            arrival_s[request] = end_s
        book.released += finished
    clock[1] = clock[0] if s.limits.async_scheduling else end_s
    clock[0] = end_s


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
    step.waiting = waiting(s)
    step.blocks = s.limits.num_blocks - book.free_blocks


@compiled
def _burst(s: State, table: StepTable, arrival_s: Floats, clock: Floats, steps: npt.NDArray[np.void]) -> int:
    """Run until the table of steps is full or nothing is left; return how many rows were filled."""
    for index in range(len(steps)):
        if begin(s, arrival_s, clock) == 0:
            return index
        prompt_s = prompt_seconds(s, table)
        seconds = decode_seconds(s, table) + prompt_s
        note(s, steps, index, clock[0], seconds, prompt_s)
        end(s, arrival_s, clock, seconds)
    return len(steps)


def opening(limits: Limits, requests: Requests) -> tuple[State, Floats]:
    """Return the state before the first step, and the arrivals: in a closed loop, all but the first are to come."""
    state = new_state(limits, requests.prompt_tokens, requests.output_tokens)
    arrival_s = np.array(requests.arrival_s)
    if requests.concurrency:
        arrival_s[requests.concurrency :] = np.inf
        state.book[0].released = min(requests.concurrency, len(arrival_s))
    return state, arrival_s


def closing(s: State, arrival_s: Floats, requests: Requests, steps: npt.NDArray[np.void]) -> Run:
    """Return what happened, after the last step."""
    columns = {
        name: np.ascontiguousarray(s.requests[name])
        for name in ("scheduled_s", "first_token_s", "finished_s", "stalled_s", "preemptions")
    }
    sent = Requests(arrival_s, requests.prompt_tokens, requests.output_tokens, requests.concurrency)
    return Run(limits=s.limits, requests=sent, steps=steps.view(np.recarray), **columns)


def simulate(limits: Limits, table: StepTable, requests: Requests, progress: Progress | None = None) -> Run:
    """Run a workload to its end under an engine's limits, each step taking the time that the table says.

    `progress` is called with (requests finished, all requests) after every burst of steps. The caller has refused
    requests that can never fit: see `Deployment.check`.
    """
    state, arrival_s = opening(limits, requests)
    clock, bursts = np.zeros(2), []
    while True:
        steps = np.zeros(BURST, STEP).view(np.recarray)  # so that plain Python, too, reads fields as attributes
        count = _burst(state, table, arrival_s, clock, steps)
        bursts.append(steps if count == BURST else steps[:count].copy())
        if progress is not None:
            progress(int(state.book[0].finished), len(arrival_s))
        if count < BURST:
            break
    return closing(state, arrival_s, requests, np.concatenate(bursts))
