"""Figures of services: replicas and load over the time of a run."""

from typing import TYPE_CHECKING

import numpy as np

from simulator.plan_plots import BOUND, DARK, LIGHT
from simulator.service import ServiceReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 720
HOUR_S, MINUTE_S = 3600.0, 60.0


def over_time(found: ServiceReport) -> "Figure":
    """Draw requests per second and in the service, replicas paid for and up, and TTFT, over the time of a run."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  half a second

    run, end_s = found.run, max(found.run.closed_s, 1e-9)
    unit_s, unit = next(
        ((size, name) for size, name in ((HOUR_S, "hours"), (MINUTE_S, "minutes")) if end_s > 2 * size), (1.0, "s")
    )
    edges_s = np.linspace(0.0, end_s, min(POINTS, 1 + max(24, len(run.row) // 50)))
    middles = (edges_s[:-1] + edges_s[1:]) / 2 / unit_s
    figure, panels = plt.subplots(3, 1, figsize=(10, 7.5), sharex=True, layout="constrained")
    load, count, wait = panels
    arrived = np.histogram(run.requests.arrival_s, edges_s)[0] / np.diff(edges_s)
    load.fill_between(middles, arrived, step="mid", color=LIGHT, label="requests per second")
    busy = load.twinx()
    busy.plot(edges_s / unit_s, found.outstanding(edges_s), color=DARK, lw=1.1)
    busy.yaxis.label.set_color(DARK)
    busy.set(ylabel="requests in the service", ylim=(0, None))
    busy.spines["top"].set_visible(False)
    load.set(ylabel="requests/s")
    fine_s = np.linspace(0.0, end_s, 4 * POINTS, endpoint=False)
    count.fill_between(fine_s / unit_s, found.paid(fine_s), step="post", color=LIGHT, label="paid for")
    count.step(fine_s / unit_s, found.up(fine_s), where="post", color=DARK, lw=1.3, label="up")
    count.set(ylabel="replicas", ylim=(0, 1.25 * found.run.replicas))
    count.legend(loc="lower right", fontsize=9, frameon=False, ncols=2)
    ttft = found.report.latencies_s["ttft"]
    part = np.clip(np.digitize(run.requests.arrival_s, edges_s) - 1, 0, len(edges_s) - 2)
    shown = [
        np.quantile(ttft[part == each], [0.5, 0.95]) if (part == each).any() else (np.nan, np.nan)
        for each in range(len(middles))
    ]
    wait.plot(middles, [low for low, _ in shown], color=LIGHT, lw=1.2, label="median")
    wait.plot(middles, [high for _, high in shown], color=DARK, lw=1.2, label="p95")
    bound_s = found.report.slo.bounds_s.get("ttft")
    if bound_s:
        wait.axhline(bound_s, color=BOUND, ls="--", lw=1.2, label="bound of the SLO")
    wait.set(ylabel="TTFT [s]", xlabel=f"time [{unit}]", yscale="log")
    wait.legend(loc="upper right", fontsize=9, frameon=False, ncols=3)
    for axes in panels:
        axes.spines["top"].set_visible(False)
        axes.margins(x=0)
    figure.suptitle(f"{found.run.replicas} replicas at most of {found.service.deployment}", fontsize=11)
    return figure
