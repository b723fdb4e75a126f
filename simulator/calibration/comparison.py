"""Predictions beside measurements: seconds of steps by kind, and latencies of whole requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.arrays import Floats
from simulator.calibration.op_tables import table_seconds
from simulator.calibration.step_log import LoggedStep, StepLog, parts_of
from simulator.models.operations import Span
from simulator.reports.report import latencies_s
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, SchedulerLimits
from simulator.simulation.engine_loop import Run, begin, end, opening
from simulator.workloads.workload import Requests

KINDS = ("prefill", "decode", "mixed")
METRICS = ("ttft", "tpot", "e2el")
QUANTILES = {"p50": 0.5, "p95": 0.95}


@dataclass(frozen=True, slots=True)
class StepErrors:
    """How far predicted step times are from measured ones over some steps: errors are predicted / measured - 1."""

    count: int
    median: float  # of the absolute relative errors
    p90: float
    largest: float
    bias: float  # median of predicted / measured


def step_errors(predicted_s: Sequence[float], measured_s: Sequence[float]) -> StepErrors:
    """Return the errors of predicted step times, both in seconds and of shape (steps,); NaN for no step.

    >>> step_errors([1.1, 0.9, 1.0], [1.0, 1.0, 1.0]).bias
    1.0
    """
    if not measured_s:
        nan = float("nan")
        return StepErrors(0, nan, nan, nan, nan)
    ratio = np.array(predicted_s) / np.array(measured_s)
    error = np.abs(ratio - 1)
    low, high = (float(np.quantile(error, share)) for share in (0.5, 0.9))
    return StepErrors(len(ratio), low, high, float(error.max()), float(np.median(ratio)))


def errors_by_kind(
    tiers: Mapping[str, StepTable], steps: Sequence[LoggedStep], span: Span | None = None
) -> dict[str, dict[str, StepErrors]]:
    """Return {kind of step: {predictor: errors}} over a run's steps; kinds that do not occur are left out.

    `tiers`: a step table for each predictor, say "roofline" and "calibrated". `span`: of the model's local layers, None
    for none.
    """
    found: dict[str, dict[str, StepErrors]] = {}
    for kind in KINDS:
        some = [(step.counts(span), step.seconds) for step in steps if step.kind == kind]
        if some:
            seconds = [each for _, each in some]
            found[kind] = {
                tier: step_errors([table_seconds(table, counts) for counts, _ in some], seconds)
                for tier, table in tiers.items()
            }
    return found


def latency_quantiles(run: Run) -> dict[str, float]:
    """Return the p50 and p95 of TTFT, TPOT and E2EL of a simulated run in seconds, as {"ttft_p50_s": ...}."""
    outputs = run.requests.output_tokens
    return _quantiles(run.requests.arrival_s, run.first_token_s, run.finished_s, outputs)


def logged_latencies(log: StepLog) -> dict[str, float]:
    """Return the p50 and p95 of TTFT, TPOT and E2EL of a log in seconds, under the same names."""
    rows = [(each.arrival_s, each.first_token_s, each.finished_s, each.output_tokens) for each in log.requests]
    return _quantiles(*np.array(rows).T)


def _quantiles(arrival_s: Floats, first_s: Floats, last_s: Floats, outputs: npt.NDArray[Any]) -> dict[str, float]:
    return {
        f"{name}_{label}_s": float(np.nanquantile(values, share))
        for name, values in latencies_s(arrival_s, first_s, last_s, outputs).items()
        for label, share in QUANTILES.items()
    }


def relative_errors(predicted: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return predicted / measured - 1 for each measured name.

    >>> relative_errors({"ttft_p50_s": 0.3}, {"ttft_p50_s": 0.2})
    {'ttft_p50_s': 0.4999999999999998}
    """
    return {name: predicted[name] / measured[name] - 1 for name in measured}


def limits_of(log: StepLog, span: Span | None = None) -> SchedulerLimits:
    """Return the scheduler limits of a logged engine: continuous batching, one KV-cache group."""
    return SchedulerLimits(
        policy=CONTINUOUS,
        max_num_seqs=log.limits["max_num_seqs"],
        max_num_batched_tokens=log.limits["max_num_batched_tokens"],
        num_blocks=log.limits["num_blocks"],
        block_size=log.limits["block_size"],
        admit_full_prompt=bool(log.limits.get("admit_full_prompt")),
        window=span.tokens if span else 0,
        chunked=span.chunked if span else False,
    )


def requests_of(log: StepLog) -> Requests:
    """Return the requests of a log."""
    rows = [(each.arrival_s, each.prompt_tokens, each.output_tokens) for each in log.requests]
    arrivals, prompts, outputs = zip(*rows, strict=True)
    return Requests(np.array(arrivals), np.array(prompts), np.array(outputs))


@dataclass(frozen=True, slots=True)
class Replay:
    """The steps of a log's requests under our scheduler with the log's own step times."""

    steps: tuple[LoggedStep, ...]
    equal: int  # leading steps of the same composition


def replay(log: StepLog) -> Replay:
    """Simulate a log's requests with its measured starts and lengths of steps; the same steps should come out.

    Once a step differs the times that follow belong to other steps, so `equal` counts the leading equal steps alone.
    When the recorded times run out the last one is used again.
    """
    requests = requests_of(log)
    state = opening(limits_of(log), requests)
    clock_s, steps = np.zeros(2), list[LoggedStep]()
    for step in chain(log.steps, repeat(log.steps[-1])):
        clock_s[0] = max(clock_s[0], step.start_s)  # the engine's loop takes a little time between steps
        if not begin(state, clock_s):
            break
        steps.append(LoggedStep(float(clock_s[0]), step.seconds, parts_of(state)))
        end(state, clock_s, step.seconds)
    pairs = zip(steps, log.steps, strict=False)
    different = (index for index, (ours, theirs) in enumerate(pairs) if sorted(ours.parts) != sorted(theirs.parts))
    return Replay(tuple(steps), next(different, min(len(steps), len(log.steps))))
