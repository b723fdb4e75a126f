"""Predictions beside measurements: steps by kind, and latencies of whole requests, for every way of predicting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.report import Report, summarize
from simulator.simulate import Run, begin, end, opening
from simulator.state import Limits
from simulator.steplog import LoggedStep, StepLog, parts_of
from simulator.workload import Requests

Floats = npt.NDArray[np.float64]
METRICS = ("ttft", "tpot", "e2el")
QUANTILES = {"p50": "median", "p95": "p95"}


@dataclass(frozen=True, slots=True)
class StepErrors:
    """How far predictions are from measurements over some steps: predicted / measured - 1."""

    count: int
    median: float  # of the absolute relative errors
    p90: float
    largest: float
    bias: float  # median of predicted / measured


def step_errors(predicted_s: Sequence[float], measured_s: Sequence[float]) -> StepErrors:
    """Compare step times.

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


def latencies(run: Run) -> dict[str, float]:
    """Return TTFT, TPOT and E2EL of a run, simulated or measured, as {"ttft_p50_s": ...}."""
    report: Report = summarize(run, steady=False)
    return {
        f"{metric}_{name}_s": report.metrics[metric][quantile]
        for metric in METRICS
        for name, quantile in QUANTILES.items()
    }


def relative_errors(predicted: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return predicted / measured - 1 for each figure."""
    return {name: predicted[name] / measured[name] - 1 for name in measured}


def limits_of(log: StepLog, window: int = 0) -> Limits:
    """Return the limits of a logged engine: continuous, one group of layers."""
    return Limits(
        policy=0,
        max_num_seqs=log.limits["max_num_seqs"],
        max_num_batched_tokens=log.limits["max_num_batched_tokens"],
        num_blocks=log.limits["num_blocks"],
        block_size=log.limits["block_size"],
        admit_full_prompt=bool(log.limits["admit_full_prompt"]),
        async_scheduling=False,
        window=window,
        full_groups=1,
        window_groups=0,
        window_blocks=0,
    )


def requests_of(log: StepLog) -> Requests:
    """Return the workload of a log."""
    rows = [(each.arrival_s, each.prompt_tokens, each.output_tokens) for each in log.requests]
    arrivals, prompts, outputs = zip(*rows, strict=True)
    return Requests(np.array(arrivals), np.array(prompts), np.array(outputs))


@dataclass(frozen=True, slots=True)
class Replay:
    """A log's requests under our scheduler with the log's own step times."""

    steps: tuple[LoggedStep, ...]
    equal: int  # leading steps of the same composition

    @property
    def count(self) -> int:
        """Steps taken."""
        return len(self.steps)


def replay(log: StepLog) -> Replay:
    """Give the measured step times, one after the other, to the simulator; the same schedule should come out.

    Where a composition deviates the times that follow belong to other steps, so only the leading equal ones say much.
    When the recorded times run out the last one is used again.
    """
    requests = requests_of(log)
    state, arrival_s = opening(limits_of(log), requests)
    clock_s, steps = np.zeros(2), list[LoggedStep]()
    clock_s[:] = log.steps[0].start_s
    while begin(state, arrival_s, clock_s):
        seconds = log.steps[min(len(steps), len(log.steps) - 1)].seconds
        steps.append(LoggedStep(float(clock_s[0]), seconds, parts_of(state)))
        end(state, arrival_s, clock_s, seconds)
    pairs = zip(steps, log.steps, strict=False)
    different = (index for index, (ours, theirs) in enumerate(pairs) if sorted(ours.parts) != sorted(theirs.parts))
    return Replay(tuple(steps), next(different, min(len(steps), len(log.steps))))
