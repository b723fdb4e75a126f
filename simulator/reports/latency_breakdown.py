"""Where the time of each request went, from the tables of a run; the parts add up to the latency."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from simulator.errors import NotModelledError
from simulator.reports.queueing import QueueEstimate
from simulator.reports.report import ROUNDING_S, Report
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import UNCACHED, Table
from simulator.simulation.engine_loop import Run
from simulator.simulation.fleet_run import FleetRun

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
PARTS = {
    "network": "the round trip between client and server",
    "engine": "the engine's own time per request outside the steps",
    "queue": "arrival until the first step that computes it (where a replica failed: the last first step)",
    "prefill": "its own prompt: its share, by tokens, of what prompts add to the steps until its first token",
    "interference": "what others' prompts add to its steps, before and after its first token",
    "redo": "after its first token: from a preemption to the next token",
    "decode": "the steps' decoding: before its first token others', after it its own batch's",
}


@dataclass(frozen=True)
class Split:
    """Seconds of each part by request; TTFT and E2EL are the sums over parts.

    A preempted request's table row says how long it was out, not when: others' prompts are taken as spread evenly over
    its time after the first token. A preemption before the first token is in the parts of that time.
    """

    ttft: dict[str, Floats]
    e2el: dict[str, Floats]

    def of(self, metric: str) -> dict[str, Floats]:
        """Return the parts of "ttft" or "e2el"."""
        return {"ttft": self.ttft, "e2el": self.e2el}[metric]


def by_engine(run: Run) -> Iterator[tuple[Table, npt.NDArray[np.bool_] | slice]]:
    """Yield, for each engine of a run, its steps in order and which requests it served."""
    if not isinstance(run, FleetRun):
        yield run.steps, slice(None)
        return
    for each in np.unique(run.steps.replica):
        yield run.steps[run.steps.replica == each], run.replica == each


class _Prompts:
    """What prompts added to the steps of one engine, as running sums over its steps."""

    def __init__(self, steps: Table, stream_s: float) -> None:
        self.start_s = np.ascontiguousarray(steps.start_s)
        front_s = stream_s * np.cumsum(steps.decodes + steps.prompts, dtype=np.float64)
        free_s = np.concatenate([[0.0], front_s])[:-1]  # the front end's work before each step: it waits for their ends
        self.shown_s = front_s + np.maximum.accumulate(steps.start_s + steps.seconds - free_s)
        self.seconds = np.concatenate([[0.0], np.cumsum(steps.prompt_s)])
        self.tokens = np.concatenate([[0], np.cumsum(steps.prompt_tokens, dtype=np.int64)])

    def begun(self, before_s: Floats) -> Ints:
        """Return how many steps began before these times."""
        return np.searchsorted(self.start_s, before_s)

    def shown(self, until_s: Floats) -> Ints:
        """Return how many steps the front end had shown by these times."""
        return np.searchsorted(self.shown_s, until_s + ROUNDING_S, side="right")

    def between(self, first: Ints, last: Ints) -> tuple[Floats, Ints]:
        """Return seconds and tokens of the prompts of the steps from one to another, which is not counted."""
        return self.seconds[last] - self.seconds[first], self.tokens[last] - self.tokens[first]


def split(report: Report) -> Split:
    """Split the TTFT and the E2EL of every counted request.

    Steps from the first that computes a request to its first token: what their prompts add is its own by its share of
    their tokens, else interference; the rest are decodes, and the front end. After the first token prompts are others'.
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
    return Split(*({part: values[kept] for part, values in each.items()} for each in (ttft, e2el)))


def _of_prompts(run: Run) -> tuple[Floats, Floats, Floats]:
    """Return, by request, seconds of its own prompt and of others' before its first token, and of prompts after it."""
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
        if run.limits.policy != UNCACHED:  # without a cache every token is a prompt again, its own
            later[served] = prompts.between(first, last)[0]
    return own, others, later


def saved_prefill_s(run: Run, table: StepTable) -> float:
    """Return the seconds of prompts that cached prefixes saved: h tokens at the head of a prompt, not computed.

    Each costs what one more token adds to a full step, and its attention: a h + b h + c h (h + 1) / 2, with a the last
    slope of `table.token_s`, b and c the slopes of prompt tokens and pairs. What a load from the host took is not
    taken off.
    """
    hit = run.hit_tokens.astype(np.float64)
    per_token = float(table.token_s[-1] - table.token_s[-2]) + float(table.slopes[2])
    window = run.limits.window or hit.max(initial=0.0) + 1
    full = hit * (hit + 1) / 2
    windowed = np.where(hit > window, window * (hit - (window - 1) / 2), full)
    return float((per_token * hit + table.slopes[3] * full + table.slopes[4] * windowed).sum())


@dataclass(frozen=True)
class Explanation:
    """The means of a split, over all draws of a load, and the split of one request of the first: that at the p95."""

    report: Report

    @cached_property
    def split(self) -> Split:
        """The parts of every request of the first draw."""
        return split(self.report)

    @cached_property
    def _splits(self) -> tuple[Split, ...]:
        return self.split, *map(split, self.report.draws)

    def mean_s(self, metric: str) -> dict[str, float]:
        """Mean seconds of each part of "ttft" or "e2el"; their sum is the mean of the latency."""
        return {part: float(np.mean([each.of(metric)[part].mean() for each in self._splits])) for part in PARTS}

    def p95_request(self, metric: str) -> int:
        """Return the row, in the workload, of the request whose latency is the p95 of all counted."""
        latency_s = self.report.latencies_s[metric]
        place = round(0.95 * (len(latency_s) - 1))
        return self.report.skipped + int(np.argpartition(latency_s, place)[place])

    def p95_s(self, metric: str) -> dict[str, float]:
        """Seconds of each part of that request."""
        row = self.p95_request(metric) - self.report.skipped
        return {part: float(values[row]) for part, values in self.split.of(metric).items()}

    @cached_property
    def queue(self) -> QueueEstimate | None:
        """A queueing estimate from the mean service time of this run and its slots; None where nobody keeps a rate.

        Slots: the sequences of mean length at half their output that the engine may run at once.
        """
        run, kept = self.report.run, slice(self.report.skipped, None)
        arrival_s = run.requests.arrival_s[kept]
        span_s = float(arrival_s[-1] - arrival_s[0])
        if run.requests.concurrency or not span_s:
            return None
        service_s = (run.finished_s - run.scheduled_s)[kept]
        tokens = float((run.requests.prompt_tokens + run.requests.output_tokens / 2)[kept].mean())
        limits = run.limits
        fit = limits.num_blocks * limits.block_size / (limits.full_groups + limits.window_groups) / tokens
        mean_s = float(service_s.mean())
        return QueueEstimate(
            rate_per_s=(len(arrival_s) - 1) / span_s,
            service_s=mean_s,
            cv2=float(service_s.var()) / mean_s**2,
            slots=max(1, min(limits.max_num_seqs, int(fit))),
        )
