"""A load at the highest rate that keeps the SLO, near the asked rate: how benchmarks with latency limits are run."""

import math
from dataclasses import replace

import numpy as np

from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError
from simulator.profile import Figure, Source
from simulator.reports.report import Report
from simulator.simulation.engine_loop import Progress
from simulator.simulation.fleet_run import FleetRun
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, Released


def _guess(text: str) -> Source:
    return Source(text=text, date="2026-11-22", evidence="guess")


TRIES = 12  # most simulations, beside the saturated one
FIRST_STEP, LONGEST_STEP = 0.03, 1.0  # of the rate, from the saturated one on until a limit lies between; each doubles
PRECISION = 0.01  # of the rate, at which the search ends
CLOSE_TO_BOUND = 0.9  # the search ends at this share of a bound: MLPerf's server entries use 0.8 to 0.99 of one
STEADY_PART = 0.2, 0.7  # of a saturated run's seconds: after the prefill of its first wave, before it drains
MOST_OF_ASKED = Figure(1.15, _guess("times the asked rate: a capacity predicted beyond it is one that nobody used"))
EVERYTHING_PER_S = 1e9  # a rate that stands for "as many as the SLO allows"


def within_slo(scenario: Scenario, progress: Progress | None = None) -> Report:
    """Return the run at the highest rate that keeps every bound of the SLO; the lowest rate tried if none does.

    A bound is kept where the `slo.share` quantile of its latency is within it, and none is where the queue grows
    without end. Whoever benchmarks under latency limits raises the rate until one of them binds (in most MLPerf server
    entries the p99 is at 0.8 to 0.99 of a limit). So the limits tell better than a predicted capacity how near
    saturation a run was: a few per cent of capacity are a factor in latency. The rate is at most `MOST_OF_ASKED` times
    the asked one. The search begins at what a saturated run serves; a server whose cache is not full serves some per
    cent more, for it evicts nothing.

    Source: "Maximum Poisson throughput parameter supported", the metric of MLPerf's server and interactive scenarios
    (inference_rules.adoc, Scenarios), and the limits and latencies of its published entries (docs/accuracy.md).

    Raises InfercastError without a bound, or for a workload that is not sent at a rate.
    """
    workload, asked = scenario.workload, scenario.workload.arrivals
    if not scenario.slo.bounds_s or not isinstance(asked, OpenLoop | Released):
        because = "the highest rate within an SLO needs bounds, and requests at a rate"
        raise InfercastError("--within-slo", because, "Give --slo ttft:2s,tpot:200ms and --request-rate")
    saturated = scenario.report(replace(workload, arrivals=ClosedLoop(workload.request_count)), progress)
    most_per_s = MOST_OF_ASKED * asked.rate_per_s
    rate_per_s = min(most_per_s, _steady_per_s(saturated, _tokens_at_once(scenario)))
    low, high, kept = 0.0, math.inf, None
    for each in range(TRIES):
        report = scenario.report(workload.at_rate(rate_per_s), progress)
        found = replace(report, is_limited=True, of_asked=rate_per_s / asked.rate_per_s)
        used = _share_of_bound(found)
        if used > 1 or found.overloaded:
            high = rate_per_s
        else:
            low, kept = rate_per_s, found
        if kept and (low == most_per_s or high < (1 + PRECISION) * low or (kept is found and used >= CLOSE_TO_BOUND)):
            break
        rate_per_s = _next_per_s(low, high, most_per_s, min(LONGEST_STEP, FIRST_STEP * 2**each))
    return kept or found


def _tokens_at_once(scenario: Scenario) -> float:
    """Return the tokens of a sequence that a row of decodes in the table of steps stands for."""
    deployment = scenario.deployment
    return deployment.tokens_per_step * deployment.engine.num_scheduler_steps


def _next_per_s(low: float, high: float, most_per_s: float, step: float) -> float:
    """Return the rate to try next: beyond the only end that is known, or between both.

    >>> _next_per_s(0.0, 103.0, 200.0, 0.03), _next_per_s(100.0, math.inf, 102.0, 0.03), _next_per_s(4.0, 9.0, 9.0, 1.0)
    (100.0, 102.0, 6.0)
    """
    if low and high < math.inf:
        return math.sqrt(low * high)
    return min(most_per_s, low * (1 + step)) if low else high / (1 + step)


def _steady_per_s(report: Report, tokens_at_once: float) -> float:
    """Return the steady requests/s of a run of all requests at once: decodes/s in STEADY_PART / mean of a request.

    Counting the requests that finish then would overestimate it: the short ones finish first. The front ends, each of
    which streams one token after the other, bound it from above.
    """
    steps, outputs = report.run.steps, report.run.requests.output_tokens
    starts, ends = (share * report.duration_s for share in STEADY_PART)
    inside = (steps.start_s >= starts) & (steps.start_s < ends)
    needed = float(np.ceil((outputs - 1.0) / tokens_at_once).mean())
    decoded = float(steps.decodes[inside].sum() / max(1.0, needed))
    engine_per_s = decoded / (ends - starts) or len(outputs) / report.duration_s
    stream_s = report.run.limits.stream_s * float(outputs.mean())  # of the front end, per request
    front_ends = report.run.replicas if isinstance(report.run, FleetRun) else 1
    return min(engine_per_s, front_ends / stream_s) if stream_s else engine_per_s


def _share_of_bound(report: Report) -> float:
    """Return the largest ratio of a latency's `slo.share` quantile to its bound; above 1 the SLO is broken."""
    found, share = report.latencies_s, report.slo.share
    known_s = {name: found[name][~np.isnan(found[name])] for name in report.slo.bounds_s}  # one token has no TPOT
    shares = (np.quantile(each_s, share) / report.slo.bounds_s[name] for name, each_s in known_s.items() if len(each_s))
    return float(max(shares, default=0.0))
