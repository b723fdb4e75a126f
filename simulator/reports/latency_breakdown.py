"""Breakdown of each request's latency into parts that add up to it, from the tables of a run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.arrays import Bools, Floats, Ints
from simulator.errors import NotModelledError
from simulator.models.operations import Span, pairs
from simulator.reports.queueing import QueueEstimate
from simulator.reports.report import Report
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import UNCACHED, Table, blocks
from simulator.simulation.engine_loop import Run
from simulator.simulation.fleet_run import ROUNDING_S, FleetRun
from simulator.simulation.step_seconds import slope

PARTS = {
    "network": "the round trip between client and server",
    "engine": "the engine's own time per request outside the steps",
    "queue": "arrival until the first step that computes it (after a failure of its replica: the last such step)",
    "prefill": "its own prompt: its share, by tokens, of what prompts add to the steps until its first token",
    "interference": "what others' prompts add to its steps, before and after its first token",
    "redo": "after its first token: from a preemption to the next token",
    "decode": "decode steps: of other requests before its first token, of its own batch after it",
}


@dataclass(frozen=True)
class LatencyParts:
    """Seconds of each part of TTFT and E2EL by request: arrays of shape (counted requests,), whose sum is the latency.

    The table of requests says how long a preempted request was out, not when: other prompts' interference is spread
    evenly over its time after the first token. A preemption before the first token counts into the parts of that time.
    """

    ttft: dict[str, Floats]
    e2el: dict[str, Floats]

    def of(self, metric: str) -> dict[str, Floats]:
        """Return the parts of "ttft" or "e2el". Arrays of shape (counted requests,), in seconds."""
        return {"ttft": self.ttft, "e2el": self.e2el}[metric]


def by_engine(run: Run) -> Iterator[tuple[Table, Bools | slice]]:
    """Yield, for each engine of a run, its steps in order and a mask (requests,) of the requests that it served."""
    if not isinstance(run, FleetRun):
        yield run.steps, slice(None)
        return
    for each in np.unique(run.steps.replica):
        yield run.steps[run.steps.replica == each], run.replica == each


class _Prompts:
    """Seconds and tokens that prompts added to the steps of one engine, as running sums over its steps."""

    def __init__(self, steps: Table, stream_s: float) -> None:
        self.start_s = np.ascontiguousarray(steps.start_s)
        front_s = stream_s * np.cumsum(steps.decodes + steps.prompts, dtype=np.float64)
        free_s = np.concatenate([[0.0], front_s])[:-1]  # front-end time before each step
        self.shown_s = front_s + np.maximum.accumulate(steps.start_s + steps.seconds - free_s)
        self.seconds = np.concatenate([[0.0], np.cumsum(steps.prompt_s)])
        self.tokens = np.concatenate([[0], np.cumsum(steps.prompt_tokens, dtype=np.int64)])

    def begun(self, before_s: Floats) -> Ints:
        """Return how many steps began before each of these times."""
        return np.searchsorted(self.start_s, before_s)

    def shown(self, until_s: Floats) -> Ints:
        """Return how many steps the front end had shown by each of these times."""
        return np.searchsorted(self.shown_s, until_s + ROUNDING_S, side="right")

    def between(self, first: Ints, last: Ints) -> tuple[Floats, Ints]:
        """Return the seconds and tokens of prompts in the steps `first` to `last` - 1."""
        return self.seconds[last] - self.seconds[first], self.tokens[last] - self.tokens[first]


def latency_parts(report: Report) -> LatencyParts:
    """Return the parts (PARTS) of TTFT and E2EL of every request that a report counts.

    From the first step that computes a request to its first token: what prompts add to the steps is "prefill" by its
    share of their tokens and else "interference"; the rest, including the front end, is "decode". After the first token
    all prompts are others'. Raises NotModelledError for a fleet with a prefill pool.
    """
    run, kept = report.run, slice(report.skipped, None)
    own, others, later = _of_prompts(run)
    waited_s, generating_s = run.first_token_s - run.scheduled_s, run.finished_s - run.first_token_s
    going_s = generating_s - run.stalled_s
    share = np.divide(going_s, generating_s, out=np.zeros_like(later), where=generating_s > 0)
    later = np.minimum(later * share, going_s)
    zeros = np.zeros_like(later)
    ttft = {
        "network": np.full_like(later, report.network_s),
        "engine": np.broadcast_to(report.request_s, later.shape),
        "queue": run.scheduled_s - run.requests.arrival_s,
        "prefill": own,
        "interference": others,
        "redo": zeros,
        "decode": waited_s - own - others,
    }
    after = {"interference": later, "redo": run.stalled_s, "decode": going_s - later}
    e2el = {part: values + after.get(part, zeros) for part, values in ttft.items()}
    return LatencyParts(*({part: values[kept] for part, values in each.items()} for each in (ttft, e2el)))


def _of_prompts(run: Run) -> tuple[Floats, Floats, Floats]:
    """Return arrays (requests,) in seconds: own prompt and others' before the first token, prompts after it."""
    own, others, later = (np.zeros(len(run.requests)) for _ in range(3))
    computed = run.requests.prompt_tokens - run.hit_tokens
    for steps, served in by_engine(run):
        prompts = _Prompts(steps, run.limits.stream_s)
        if not np.isin(run.scheduled_s[served], prompts.start_s).all():
            because = "two engines served each request, and a run names the second alone"
            raise NotModelledError("the split of a fleet with a prefill pool", because, "Leave the split out")
        scheduled_s, first_s, finished_s = run.scheduled_s[served], run.first_token_s[served], run.finished_s[served]
        first, last = prompts.shown(first_s), prompts.shown(finished_s)
        added_s, tokens = prompts.between(prompts.begun(scheduled_s), first)
        added_s = np.minimum(added_s, first_s - scheduled_s)
        own[served] = added_s * np.minimum(computed[served] / np.maximum(tokens, 1), 1.0)
        others[served] = added_s - own[served]
        if run.limits.policy != UNCACHED:  # without a KV cache all prompts are its own
            later[served] = prompts.between(first, last)[0]
    return own, others, later


def saved_prefill_s(run: Run, table: StepTable) -> float:
    """Return the prefill seconds that the prefix cache saved, over all requests: h tokens per hit, not computed.

    Each hit saves a h + b h + c h (h + 1) / 2 s, with a the slope of `table.token_s` (one more token in a full
    step) and b and c the slopes of prompt tokens and pairs. Loading from the host tier is not subtracted.
    """
    hit = run.hit_tokens.astype(np.float64)
    per_token = slope(table.token_s) + float(table.slopes[2])
    span = Span(run.limits.window, run.limits.chunked) if run.limits.window else None
    full, windowed = pairs(hit), pairs(hit, 0, span)
    return float(np.sum(per_token * hit + table.slopes[3] * full + table.slopes[4] * windowed))


@dataclass(frozen=True)
class Explanation:
    """Breakdown of a report's latencies: means over all draws, and the request at the p95 of the first one."""

    report: Report

    @cached_property
    def split(self) -> LatencyParts:
        """The parts of every request of the first draw."""
        return latency_parts(self.report)

    @cached_property
    def _splits(self) -> tuple[LatencyParts, ...]:
        return self.split, *map(latency_parts, self.report.draws)

    def mean_s(self, metric: str) -> dict[str, float]:
        """Mean seconds of each part of "ttft" or "e2el"; their sum is the mean of the latency."""
        return {part: float(np.mean([each.of(metric)[part].mean() for each in self._splits])) for part in PARTS}

    def p95_request(self, metric: str) -> int:
        """Return the row, in the workload, of the request at the p95 of "ttft" or "e2el"."""
        latency_s = self.report.latencies_s[metric]
        place = round(0.95 * (len(latency_s) - 1))
        return self.report.skipped + int(np.argpartition(latency_s, place)[place])

    def p95_s(self, metric: str) -> dict[str, float]:
        """Return the seconds of each part of that request."""
        row = self.p95_request(metric) - self.report.skipped
        return {part: float(values[row]) for part, values in self.split.of(metric).items()}

    @cached_property
    def queue(self) -> QueueEstimate | None:
        """Queueing estimate from this run's mean service time and sequence slots; None for a closed loop.

        Slots: how many sequences of mean length, at half their output, the engines can run at once.
        """
        run, kept = self.report.run, slice(self.report.skipped, None)
        arrival_s = run.requests.arrival_s[kept]
        span_s = float(arrival_s[-1] - arrival_s[0])
        if run.requests.concurrency or not span_s:
            return None
        service_s = (run.finished_s - run.scheduled_s)[kept]
        tokens = float((run.requests.prompt_tokens + run.requests.output_tokens / 2)[kept].mean())
        limits = run.limits
        fit = limits.num_blocks // blocks(limits, math.ceil(tokens))
        mean_s = float(service_s.mean())
        return QueueEstimate(
            rate_per_s=(len(arrival_s) - 1) / span_s,
            service_s=mean_s,
            cv2=float(service_s.var()) / mean_s**2,
            slots=run.engines * max(1, min(limits.max_num_seqs, fit)),
        )
