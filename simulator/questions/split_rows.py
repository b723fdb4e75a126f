"""Where the time of a simulated load went, as columns of its row, and what queueing theory says."""

import math

from simulator.frames import Row
from simulator.reports.latency_breakdown import Explanation
from simulator.reports.report import Report

METRICS = ("ttft", "e2el")


def split_row(report: Report) -> Row:
    """Return columns of the latency breakdown in milliseconds: its means, the request at p95, and queueing theory.

    Keys: `mean_<metric>_<part>_ms`, `p95_request_<metric>_<part>_ms`, `p95_request_<metric>` (the row of that request),
    `erlang_c_mean_queue_ms` and `m_g_1_mean_queue_ms` (None in a closed loop; sources: reports/queueing.py).
    """
    explained = Explanation(report)
    row: dict[str, float | None] = {}
    for metric in METRICS:
        row |= {f"mean_{metric}_{part}_ms": s * 1e3 for part, s in explained.mean_s(metric).items()}
        row |= {f"p95_request_{metric}_{part}_ms": s * 1e3 for part, s in explained.p95_s(metric).items()}
        row[f"p95_request_{metric}"] = explained.p95_request(metric)
    queue = explained.queue
    row["erlang_c_mean_queue_ms"] = queue.erlang_c_wait_s * 1e3 if queue else None
    row["m_g_1_mean_queue_ms"] = queue.m_g_1_wait_s * 1e3 if queue else None
    return row


def _wait(seconds: float) -> str:
    if seconds == math.inf:
        return "no steady state"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-6 else "next to nothing"


def queue_note(report: Report) -> str:
    """Return a line with the mean queueing time simulated, and by Erlang C (M/M/c) and M/G/1 for the same service."""
    queue = Explanation(report).queue
    if queue is None:
        return "No estimate of queueing theory: the requests have no rate."
    taken = f"{queue.slots} slots, busy {queue.load:.0%}, {queue.service_s:.3g} s (cv² {queue.cv2:.2g}) per request"
    said = ", ".join(
        f"{name} {_wait(wait_s)}"
        for name, wait_s in (("Erlang C (M/M/c)", queue.erlang_c_wait_s), ("M/G/1", queue.m_g_1_wait_s))
    )
    simulated = "grows" if report.endless else f"{report.metrics['queue']['mean'] * 1e3:.3g} ms"
    caution = "for orientation only: a batch is no set of servers, and requests also wait for the step under way"
    return f"Mean queue: simulated {simulated}. An estimate of queueing theory, with {taken}: {said} ({caution})."
