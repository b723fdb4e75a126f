"""Published runs that must keep limits of latency: they run at the highest rate that does, and so does a prediction."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulator.reports.report import Report
from simulator.workloads.arrivals import Arrivals, ClosedLoop, OpenLoop, Released
from simulator.workloads.workload import Workload

TRIES = 6  # simulations at most, beside the saturated one
CLOSE = 0.9  # of a limit used: near enough, as MLPerf's servers use 0.8 to 0.99 of one
STEADY = 0.2, 0.7  # guess: of a saturated run's seconds: after the prompts of its first wave, before its drain
SERVED = 0.98  # guess: of what is served without limits, what a server is still sent: MLPerf entries 0.87 to 0.98
LIKELY = 1.15  # guess: times the asked rate; a capacity predicted beyond it is one that the source did not use


class Edge(NamedTuple):
    """A run at the highest rate that keeps the limits, and how many times the asked rate that is."""

    report: Report
    of_asked: float


def edge(
    workload: Workload,
    limits_s: tuple[float, float],
    under: Callable[[Workload], Report],
    arrive: Callable[[float], Arrivals],
) -> Edge:
    """Return the run at the highest rate whose p99 of TTFT and TPOT keep `limits_s`; the slowest tried if none does.

    Who publishes a run under limits raises the rate until one of them binds: the p99 of MLPerf's servers is at 0.8 to
    0.99 of a limit in most entries (published/README.md). How near a run is to saturation is known better from its
    limits than from a predicted capacity, of which a few per cent are a factor in latency. `arrive` makes the arrivals
    of a rate.
    """
    count, asked = workload.request_count, workload.arrivals
    saturated = under(replace(workload, arrivals=ClosedLoop(count)))
    most = SERVED * _steady_per_s(saturated)
    asked_per_s = asked.rate_per_s if isinstance(asked, OpenLoop | Released) else most  # a source may state no rate
    most = min(most, LIKELY * asked_per_s)
    low, high, rate_per_s, kept = 0.0, most, most, None
    for _ in range(TRIES):
        found = Edge(under(replace(workload, arrivals=arrive(rate_per_s))), rate_per_s / asked_per_s)
        used = _used(found.report, limits_s)
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

    By the requests that end then it would be too many: the short ones end first. No more than its front end shows.
    """
    steps, outputs = report.run.steps, report.run.requests.output_tokens
    starts, ends = (share * report.duration_s for share in STEADY)
    inside = (steps.start_s >= starts) & (steps.start_s < ends)
    decoded = float(steps.decodes[inside].sum() / max(1.0, outputs.mean() - 1.0))
    engine_per_s = decoded / (ends - starts) or len(outputs) / report.duration_s
    shown_s = report.run.limits.stream_s * float(outputs.mean())  # of a request, by its front end
    return min(engine_per_s, 1 / shown_s) if shown_s else engine_per_s


def _used(report: Report, limits_s: tuple[float, float]) -> float:
    """Return the largest share of a limit that a run's p99 takes."""
    latencies = report.latencies_s["ttft"], report.latencies_s["tpot"]
    return max(float(np.nanquantile(each, 0.99)) / limit for each, limit in zip(latencies, limits_s, strict=True))
