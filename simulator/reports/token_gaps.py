"""Inter-token latency: the gaps between the tokens of a run, pooled over its requests."""

import numpy as np

from simulator.arrays import Floats
from simulator.reports.batch_means import QUANTILES, Statistic, statistic
from simulator.simulation.engine_loop import Run
from simulator.simulation.fleet_run import ROUNDING_S


def pooled_gaps(run: Run, since_s: float) -> Statistic:
    """Return the statistic of the gaps between tokens from a moment on, in seconds, without half-widths.

    Each sequence of a decode step has a gap. One that a preemption widened counts at its mean per preempted request.
    """
    stalls = run.preemptions > 0
    gaps, weights = _gaps_of_steps(run, since_s)
    gaps = np.concatenate([gaps, run.stalled_s[stalls] / run.preemptions[stalls]])
    weights = np.concatenate([weights, run.preemptions[stalls].astype(np.float64)])
    if not weights.sum():
        return statistic(np.empty(0))
    order = np.argsort(gaps, kind="stable")
    below, ordered = np.cumsum(weights[order]), gaps[order]
    values = {"mean": float(np.average(gaps, weights=weights))}
    for name, share in QUANTILES.items():
        values[name] = float(ordered[np.searchsorted(below, share * below[-1])])
    spread = float(np.sqrt(np.average((gaps - values["mean"]) ** 2, weights=weights)))
    return Statistic(values, spread, int(below[-1]))


def _gaps_of_steps(run: Run, since_s: float) -> tuple[Floats, Floats]:
    """Return the gaps before the tokens of decode steps from a moment on, in seconds, and how many sequences have each.

    A sequence waits from the decode step before, or from its first token, through the steps of prompts between. Where
    several steps run at once (pipelines, fleets), or sequences were put back, a gap is the step's own seconds. Gaps are
    those of the engine: what a front end delays (SchedulerLimits.stream_s) is in TTFT and TPOT alone.
    """
    decoding = run.steps.decodes > 0
    start_s, seconds, decodes = (run.steps[name][decoding] for name in ("start_s", "seconds", "decodes"))
    if run.engines > 1 or run.preemptions.any() or not len(start_s):
        kept = start_s >= since_s
        return seconds[kept], decodes[kept].astype(np.float64)
    ends_s = start_s + seconds
    gaps = np.diff(ends_s, prepend=start_s[0])
    first_s = _made_s(run, run.first_token_s[run.requests.output_tokens > 1])
    joined = np.searchsorted(start_s, first_s - ROUNDING_S)  # the decode step after each first token
    first_s, joined = first_s[joined < len(start_s)], joined[joined < len(start_s)]
    stayed = np.maximum(decodes - np.bincount(joined, minlength=len(start_s)), 0).astype(np.float64)
    kept, new = start_s >= since_s, start_s[joined] >= since_s
    gaps = np.concatenate([gaps[kept], (ends_s[joined] - first_s)[new]])
    return gaps, np.concatenate([stayed[kept], np.ones(int(new.sum()))])


def _made_s(run: Run, first_token_s: Floats) -> Floats:
    """Return when the engine had made first tokens that clients saw: the end of the last step until then. Same shape.

    A front end shows them later (docs/serving-rules.md, E), when the step after may be under way.
    """
    ends_s: Floats = run.steps.start_s + run.steps.seconds
    made = np.searchsorted(ends_s, first_token_s + ROUNDING_S, "right") - 1
    return np.take(ends_s, np.maximum(made, 0))
