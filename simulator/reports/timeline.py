"""A run over time, under vLLM's metric names, with the resource that binds it in each interval."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.arrays import Floats
from simulator.models.operations import Counts
from simulator.reports.latency_breakdown import by_engine
from simulator.roofline.op_time import RESOURCES, seconds_by_resource
from simulator.roofline.step_model import StepModel
from simulator.simulation.engine_loop import Run

INTERVALS = 200
SAMPLED_STEPS = 50_000  # steps whose ops are priced; of a longer run every k-th
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
COUNTERS = (
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:num_preemptions",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:request_success",
)


@dataclass(frozen=True)
class Timeline:
    """Metrics of a run in equal time intervals, from the first arrival to the end.

    `edges_s`: shape (intervals + 1,). `columns`: shape (intervals,) each, under the names of vLLM's metrics (Prometheus
    adds "_total" to counters). Gauges are means over an interval; cache usage is a share from 0 to 1. Counters are
    totals at its end; cache queries and hits are in tokens. `<resource>_share`: share of the interval in which a step
    ran whose time this resource determined most.
    """

    edges_s: Floats
    columns: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.edges_s) - 1

    @property
    def binding(self) -> list[str]:
        """What takes most of each interval: compute, memory, link, overhead, or idle."""
        names = [*RESOURCES, "idle"]
        shares = np.stack([self.columns[f"{name}_share"] for name in names])
        return [names[row] for row in shares.argmax(axis=0)]

    def rows(self) -> list[dict[str, float | str]]:
        """Return one mapping of column to value per interval."""
        spans = {"start_s": self.edges_s[:-1], "end_s": self.edges_s[1:]} | self.columns
        rounded = [np.round(values, 9).tolist() for values in spans.values()]
        listed = [dict(zip(spans, each, strict=True)) for each in zip(*rounded, strict=True)]
        return [{**row, "binding": name} for row, name in zip(listed, self.binding, strict=True)]


def timeline_of(run: Run, model: StepModel, intervals: int = INTERVALS) -> Timeline:
    """Return a run over time, in `intervals` intervals; `model` gives the time of each op of its steps."""
    edges_s = np.linspace(float(run.requests.arrival_s[0]), max(run.seen_s, 1e-9), intervals + 1)
    steps, spans_s, count = run.steps, np.diff(edges_s), run.engines
    ends_s = steps.start_s + steps.seconds

    def grown(amounts: Floats) -> Floats:
        return _ramps(steps.start_s, ends_s, amounts, edges_s)

    gauges = (steps.running, steps.waiting, steps.blocks / (run.limits.num_blocks * count))
    columns = {
        name: np.maximum(np.diff(grown(values * steps.seconds)), 0.0) / spans_s
        for name, values in zip(GAUGES, gauges, strict=True)
    }
    columns |= _counters(run, edges_s[1:]) | {"vllm:prompt_tokens": grown(steps.prompt_tokens.astype(np.float64))[1:]}
    for name, seconds in zip(RESOURCES, _bound_s(run, steps, model), strict=True):
        columns[f"{name}_share"] = np.maximum(np.diff(grown(seconds)), 0.0) / spans_s / count
    busy = np.sum([columns[f"{name}_share"] for name in RESOURCES], axis=0)
    columns["idle_share"] = np.maximum(1.0 - busy, 0.0)
    order = (*GAUGES, *COUNTERS, *(f"{name}_share" for name in (*RESOURCES, "idle")))
    return Timeline(edges_s, {name: columns[name] for name in order})


def _ramps(begin_s: Floats, end_s: Floats, amounts: Floats, at_s: Floats) -> Floats:
    """Return how much of all amounts has come by each time in `at_s`, each coming evenly from its begin to its end.

    The sum of lines that start at each begin, minus the same lines from each end on; amounts without duration come at
    once. All arrays but `at_s` have one entry per amount.
    """
    spans_s = end_s - begin_s
    rate = np.divide(amounts, spans_s, out=np.zeros_like(spans_s), where=spans_s > 0)
    total = _upto(end_s, np.where(spans_s > 0, 0.0, amounts), at_s)
    for sign, times_s in ((1.0, begin_s), (-1.0, end_s)):
        total += sign * (_upto(times_s, rate, at_s) * at_s - _upto(times_s, rate * times_s, at_s))
    return total


def _upto(times_s: Floats, amounts: Floats, at_s: Floats) -> Floats:
    """Return the sum of the amounts whose time has come, at each time in `at_s`."""
    in_order = bool((times_s[1:] >= times_s[:-1]).all())  # as the steps of one engine are
    order = slice(None) if in_order else np.argsort(times_s, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(amounts[order], dtype=np.float64)])
    return np.asarray(sums[np.searchsorted(times_s[order], at_s, side="right")])


def _counters(run: Run, at_s: Floats) -> dict[str, Floats]:
    """Return the counters; a request's first token comes at its time, the others evenly until the last."""
    requests, ones = run.requests, np.ones(len(run.requests))
    later = _ramps(run.first_token_s, run.finished_s, (requests.output_tokens - 1).astype(np.float64), at_s)
    return {
        "vllm:generation_tokens": _upto(run.first_token_s, ones, at_s) + later,
        "vllm:num_preemptions": _preemptions(run, at_s),
        "vllm:prefix_cache_queries": _upto(run.scheduled_s, requests.prompt_tokens.astype(np.float64), at_s),
        "vllm:prefix_cache_hits": _upto(run.scheduled_s, run.hit_tokens.astype(np.float64), at_s),
        "vllm:request_success": _upto(run.finished_s, ones, at_s),
    }


def _preemptions(run: Run, at_s: Floats) -> Floats:
    """Return the number of preemptions by each time: preempted requests are admitted - finished - running.

    No step both preempts and admits, so the steps' increases of this difference are preemptions.
    """
    total = np.zeros_like(at_s)
    for steps, served in by_engine(run):
        if not run.preemptions[served].any():
            continue
        started_s = np.ascontiguousarray(steps.start_s)
        admitted = np.searchsorted(np.sort(run.scheduled_s[served]), started_s, side="right")
        gone = np.searchsorted(np.sort(run.finished_s[served]), started_s, side="right")
        put_back = np.diff(admitted - gone - steps.running, prepend=0)
        total += _upto(started_s, np.maximum(put_back, 0).astype(np.float64), at_s)
    return total


def _bound_s(run: Run, steps: npt.NDArray[np.void], model: StepModel) -> Floats:
    """Return the seconds of each step that ops bound by each resource take, shape (resources, steps).

    A step's context is estimated from the KV cache that it holds, its prompts' attention from the workload's prompt
    lengths.
    """
    every = max(1, -(-len(steps) // SAMPLED_STEPS))
    sample = steps[::every]
    decodes, prompts = (sample[name].astype(np.float64) for name in ("decodes", "prompts"))
    new, lengths = sample["prompt_tokens"].astype(np.float64), run.requests.prompt_tokens.astype(np.float64)
    reads = sample["cached_tokens"] * decodes / np.maximum(decodes + prompts, 1.0)
    window = run.limits.window
    mean_in_span = window / 2 if run.limits.chunked else window  # over all positions of chunks; of windows at their end
    local = np.where(reads > decodes * window, decodes * mean_in_span, reads)
    pairs = new * float((lengths * lengths).sum() / lengths.sum()) / 2
    counts = Counts(
        steps=np.ones_like(new),
        tokens=decodes * (1 + model.draft_tokens) + new,
        logits=decodes * (1 + model.draft_tokens) + prompts,
        decode_reads=reads,
        decode_reads_windowed=local,
        prefill_tokens=new,
        prefill_pairs=pairs,
        prefill_pairs_windowed=np.minimum(pairs, new * mean_in_span),
    )
    bound = seconds_by_resource(model.explain(counts))
    shares = bound / np.maximum(bound.sum(axis=0), 1e-300)
    seconds: Floats = np.repeat(shares, every, axis=1)[:, : len(steps)] * steps["seconds"]
    return seconds
