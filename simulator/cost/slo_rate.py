"""A load at the highest rate that keeps the SLO, near the asked one: what a run under limits of latency is."""

from dataclasses import replace

import numpy as np

from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError
from simulator.profile import Figure, Source
from simulator.reports.report import Report
from simulator.simulation.engine_loop import Progress
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, Released


def _guess(text: str) -> Source:
    return Source(text=text, date="2026-11-22", evidence="guess")


TRIES = 6  # simulations at most, beside the saturated one
CLOSE = 0.9  # of a bound used: near enough, as MLPerf's servers use 0.8 to 0.99 of one
STEADY = 0.2, 0.7  # of a saturated run's seconds: after the prompts of its first wave, before its drain
SERVED = Figure(0.98, _guess("share of the unlimited rate that a server is sent: MLPerf entries 0.87 to 0.98"))
LIKELY = Figure(1.15, _guess("times the asked rate: a capacity predicted beyond it is one that nobody used"))
EVERYTHING_PER_S = 1e9  # a rate that stands for "as many as the SLO allows"


def within_slo(scenario: Scenario, progress: Progress | None = None) -> Report:
    """Return the run at the highest rate that keeps every bound of the SLO, the slowest tried if none does.

    A bound is kept where the `slo.share` quantile of its latency is within it. Who runs under limits raises the rate
    until one of them binds (the p99 of MLPerf's servers is at 0.8 to 0.99 of a limit in most entries), so how near a
    run is to saturation is known better from its limits than from a predicted capacity, of which a few per cent are a
    factor in latency. No more than `LIKELY` times the asked rate is tried. InfercastError without a bound or a rate.
    """
    workload, asked = scenario.workload, scenario.workload.arrivals
    if not scenario.slo.bounds_s or not isinstance(asked, OpenLoop | Released):
        because = "the highest rate within an SLO needs bounds, and requests at a rate"
        raise InfercastError("--within-slo", because, "Give --slo ttft:2s,tpot:200ms and --request-rate")
    saturated = scenario.report(replace(workload, arrivals=ClosedLoop(workload.request_count)), progress)
    most = min(SERVED * _steady_per_s(saturated), LIKELY * asked.rate_per_s)
    low, high, rate_per_s, kept = 0.0, most, most, None
    for _ in range(TRIES):
        report = scenario.report(workload.at_rate(rate_per_s), progress)
        found = replace(report, is_limited=True, of_asked=rate_per_s / asked.rate_per_s)
        used = _used(found)
        if used > 1:
            high = rate_per_s
        else:
            low, kept = rate_per_s, found
        if CLOSE <= used <= 1 or low == most:
            break
        rate_per_s = (low * high) ** 0.5 if low else high / 2
    return kept or found


def _steady_per_s(report: Report) -> float:
    """Return the requests a second of a run of all at once, by the tokens between its first prompts and its drain.

    By the requests that end then it would be too many: the short ones end first. No more than its front end streams.
    """
    steps, outputs = report.run.steps, report.run.requests.output_tokens
    starts, ends = (share * report.duration_s for share in STEADY)
    inside = (steps.start_s >= starts) & (steps.start_s < ends)
    decoded = float(steps.decodes[inside].sum() / max(1.0, outputs.mean() - 1.0))
    engine_per_s = decoded / (ends - starts) or len(outputs) / report.duration_s
    shown_s = report.run.limits.stream_s * float(outputs.mean())  # of a request, by its front end
    return min(engine_per_s, 1 / shown_s) if shown_s else engine_per_s


def _used(report: Report) -> float:
    """Return the largest share of a bound that the SLO's quantile of its latency takes."""
    found, share = report.latencies_s, report.slo.share
    return max(float(np.nanquantile(found[name], share)) / bound_s for name, bound_s in report.slo.bounds_s.items())
