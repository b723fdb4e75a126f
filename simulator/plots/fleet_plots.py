"""Plot of `infercast fleet --plot`: requests, replicas and TTFT of a service over the time of a run."""

from typing import TYPE_CHECKING

import numpy as np

from simulator.arrays import Floats
from simulator.cost.service import ServiceReport
from simulator.plots.palette import BOUND, DARK, LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS, PER_BIN, SAMPLES = 240, 50, 20  # most time bins; mean requests per bin, at least; samples of the load in each
HOUR_S, MINUTE_S = 3600.0, 60.0


def plot_service(found: ServiceReport) -> "Figure":
    """Return a plot over time of requests/s, requests in the service, paid replicas and those up, and TTFT.

    Time is in hours, minutes or seconds, the largest unit of which the run has more than two.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second

    end_s = max(found.run.closed_s, 1e-9)
    unit_s, unit = next(
        ((size, name) for size, name in ((HOUR_S, "h"), (MINUTE_S, "min")) if end_s > 2 * size), (1.0, "s")
    )
    asked = len(found.run.row) + len(found.run.abandoned)
    edges_s = np.linspace(0.0, end_s, 1 + min(BINS, max(24, asked // PER_BIN)))
    figure = Figure(figsize=(10, 9), layout="constrained")
    panels = figure.subplots(4, 1, sharex=True)
    _plot_arrivals(panels[0], found, edges_s, unit_s)
    samples_s = np.linspace(0.0, end_s, SAMPLES * (len(edges_s) - 1), endpoint=False)
    outstanding = found.outstanding(samples_s).reshape(-1, SAMPLES).mean(axis=1)
    panels[1].stairs(outstanding, edges_s / unit_s, color=DARK, lw=1.2)
    panels[1].set(ylabel="requests in the service", ylim=(0, None))
    _plot_replicas(panels[2], found, end_s, unit_s)
    _plot_ttft(panels[3], found, edges_s, unit_s)
    panels[3].set_xlabel(f"time [{unit}]")
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
    figure.align_ylabels(panels)
    figure.suptitle(found.describe(), fontsize=11)
    return figure


def _legend(axes: "Axes") -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.97), fontsize=9, ncols=3, frameon=False, borderpad=0.2)


def _plot_arrivals(axes: "Axes", found: ServiceReport, edges_s: Floats, unit_s: float) -> None:
    """Plot requests per second by the time they were first sent, and those of them that were abandoned in the end."""
    run = found.run
    lost_s = run.abandoned_s[np.isfinite(run.abandoned_s)]
    sent_s = np.concatenate([run.requests.arrival_s, lost_s])
    for times_s, colour, label in ((sent_s, LIGHT, "sent"), (lost_s, BOUND, "abandoned")):
        rate = np.histogram(times_s, edges_s)[0] / np.diff(edges_s)
        if rate.any():
            axes.stairs(rate, edges_s / unit_s, fill=True, color=colour, label=label)
    axes.set(ylabel="requests/s", ylim=(0, None))
    _legend(axes)


def _plot_replicas(axes: "Axes", found: ServiceReport, end_s: float, unit_s: float) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  as matplotlib itself

    times_s = np.unique(np.clip([0.0, end_s, *found.run.events.time_s], 0.0, end_s))
    edges = times_s / unit_s
    axes.stairs(found.paid(times_s[:-1]), edges, fill=True, color=LIGHT, label="paid")
    axes.stairs(found.up(times_s[:-1]), edges, baseline=None, color=DARK, lw=1.3, label="up")
    axes.set(ylabel="replicas", ylim=(0, 1.1 * found.run.replicas))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes)


def _plot_ttft(axes: "Axes", found: ServiceReport, edges_s: Floats, unit_s: float) -> None:
    """Plot median and p95 TTFT by the time of sending, on a logarithmic axis in milliseconds."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter  # noqa: PLC0415

    ttft_ms = 1e3 * found.latencies_s["ttft"]
    bin_of = np.digitize(found.run.requests.arrival_s[found.report.skipped :], edges_s[1:-1])
    order = np.argsort(bin_of, kind="stable")
    bins = np.split(ttft_ms[order], np.searchsorted(bin_of[order], np.arange(1, len(edges_s) - 1)))
    quantiles = np.array([np.quantile(each, [0.5, 0.95]) if len(each) else (np.nan, np.nan) for each in bins])
    for values, colour, label in ((quantiles[:, 0], LIGHT, "median"), (quantiles[:, 1], DARK, "p95")):
        axes.stairs(values, edges_s / unit_s, baseline=None, color=colour, lw=1.3, label=label)
    bound_s = found.report.slo.bounds_s.get("ttft")
    if bound_s:
        axes.axhline(1e3 * bound_s, color=BOUND, ls="--", lw=1.2, label="SLO")
    axes.set(ylabel="TTFT [ms]", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    _legend(axes)
