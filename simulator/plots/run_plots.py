"""Plot of `infercast simulate --plot`: state, throughput and binding resource over time, and parts of the latencies."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.arrays import Floats
from simulator.frames import Row
from simulator.plots.palette import (
    BOUND,
    CACHE,
    DECODE,
    PROMPT,
    REDO,
    RUNNING,
    TIP,
    WAITING,
    grid_lines,
    plain_ticks,
    short,
    wide_axis,
)
from simulator.plots.palette import RESOURCES as COLOURS_OF_RESOURCES
from simulator.reports.latency_breakdown import Explanation
from simulator.reports.report import Report
from simulator.reports.timeline import Timeline
from simulator.roofline.op_time import RESOURCES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

PART_COLOURS = {
    "network": "#bcd0e6",
    "engine": COLOURS_OF_RESOURCES["overhead"],
    "queue": WAITING,
    "prefill": PROMPT,
    "interference": "#f2b27a",
    "redo": REDO,
    "decode": DECODE,
}
DISTRIBUTIONS = ("ttft", "tpot", "e2el")
LONG_S = 10.0  # from which latencies are drawn in seconds


def plot_run(title: str, over_time: Timeline, explained: Explanation, row: Row | None = None) -> "Figure":
    """Return a plot of a run: over time, the parts of TTFT and E2EL, and the distributions of latencies with the SLO.

    Left, over seconds: requests running and waiting, KV-cache usage with preemptions, tokens/s, and the share of each
    interval that each resource binds. Middle: seconds in the mean and in the request at p95. Right: the share of
    requests within a latency; `row`, the run's figures under the keys of `infercast simulate`'s JSON, has the interval
    that is drawn at p95.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second

    figure = Figure(figsize=(15, 8.4), layout="constrained")
    grid = figure.add_gridspec(1, 3, width_ratios=(1.9, 1, 1.1))
    left, right, last = (figure.add_subfigure(grid[place]) for place in range(3))
    draw_over_time(left, over_time)
    bars = right.subplots(2, 1)
    for axes, metric in zip(bars, ("ttft", "e2el"), strict=True):
        draw_parts(axes, explained, metric)
    right.legend(*bars[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    shares = last.subplots(len(DISTRIBUTIONS), 1)
    for axes, metric in zip(shares, DISTRIBUTIONS, strict=True):
        draw_distribution(axes, explained.report, metric, row)
    last.legend(handles=distribution_keys(shares), loc="outside lower center", fontsize=9, frameon=False)
    for axes in (*bars, *shares):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11, wrap=True)
    return figure


def draw_over_time(figure: "FigureBase", over_time: Timeline) -> None:
    """Plot requests, KV-cache usage, throughput and the binding resource of a run over seconds, one above the other."""
    panels = figure.subplots(4, 1, sharex=True)
    _plot_requests(panels[0], over_time)
    _plot_cache_usage(panels[1], over_time)
    _plot_throughput(panels[2], over_time)
    _plot_binding(panels[3], over_time)
    panels[3].set_xlabel("time [s]")
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        plain_ticks(axes.yaxis)
        axes.margins(x=0)
    plain_ticks(panels[3].xaxis)
    figure.align_ylabels(panels)


def _legend(axes: "Axes") -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.97), fontsize=9, ncols=5, frameon=False, borderpad=0.2)


def _draw(axes: "Axes", over_time: Timeline, values: Floats, colour: str, label: str) -> None:
    axes.stairs(values, over_time.edges_s, color=colour, linewidth=1.3, label=label)


def _plot_requests(axes: "Axes", over_time: Timeline) -> None:
    _draw(axes, over_time, over_time.columns["vllm:num_requests_running"], RUNNING, "running")
    _draw(axes, over_time, over_time.columns["vllm:num_requests_waiting"], WAITING, "waiting")
    axes.set(ylabel="requests")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _plot_cache_usage(axes: "Axes", over_time: Timeline) -> None:
    _draw(axes, over_time, over_time.columns["vllm:kv_cache_usage_perc"], CACHE, "KV cache used")
    preemptions = np.diff(over_time.columns["vllm:num_preemptions"], prepend=0.0)
    axes.set(ylabel="KV cache used, share", ylim=(0, 1.05))
    if preemptions.any():
        twin = axes.twinx()
        _draw(twin, over_time, preemptions, REDO, "preemptions")
        twin.set_ylabel(f"preemptions in {over_time.edges_s[1] - over_time.edges_s[0]:.2g} s", color=REDO)
        twin.set_ylim(bottom=0)
        twin.spines["top"].set_visible(False)


def _plot_throughput(axes: "Axes", over_time: Timeline) -> None:
    spans_s = np.diff(over_time.edges_s)
    for name, colour, label in (
        ("vllm:prompt_tokens", PROMPT, "prompt"),
        ("vllm:generation_tokens", DECODE, "generation"),
    ):
        _draw(axes, over_time, np.diff(over_time.columns[name], prepend=0.0) / spans_s, colour, label)
    axes.set(ylabel="tokens/s")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _plot_binding(axes: "Axes", over_time: Timeline) -> None:
    """Plot, stacked, the share of each interval that each resource binds, and that in which no step runs."""
    below = np.zeros(len(over_time))
    for name in (*RESOURCES, "idle"):
        above = below + over_time.columns[f"{name}_share"]
        if (above > below).any():
            axes.stairs(
                above, over_time.edges_s, baseline=below, fill=True, color=COLOURS_OF_RESOURCES[name], label=name
            )
        below = above
    axes.set(ylabel="bound by, share of time", ylim=(0, 1.0))
    _legend(axes)


def draw_parts(axes: "Axes", explained: Explanation, metric: str) -> None:
    """Plot two stacked bars of the parts of a latency: its mean, and the request at its p95."""
    columns = [explained.mean_s(metric), explained.p95_s(metric)]
    below = np.zeros(2)
    for part, colour in PART_COLOURS.items():
        height = np.array([column[part] for column in columns])
        if explained.split.of("e2el")[part].any():
            bars = axes.bar((0, 1), height, 0.6, bottom=below, color=colour, label=part)
            for bar, seconds in zip(bars, height, strict=True):
                bar.set_gid(f"{TIP}{part}: {short(seconds)} s")
        below += height
    for place, total in enumerate(below):
        axes.annotate(f"{short(total)} s", (place, total), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks((0, 1), ("mean", "request at p95"))
    axes.set(ylabel=f"{metric.upper()} [s]")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.2, y=0.12)
    plain_ticks(axes.yaxis)


def draw_distribution(axes: "Axes", report: Report, metric: str, row: Row | None) -> None:
    """Plot the share of requests within a latency, the SLO's bound, and the held-out interval of the p95.

    In seconds where latencies reach ten of them, else in ms. Rejected requests are within none, so the curve may end
    below 1. What the lines are is said by `distribution_keys`: inside the plot words would lie on the curve.
    """
    values_s = np.sort(report.latencies_s[metric])
    values_s = values_s[~np.isnan(values_s)]
    if not len(values_s):
        axes.set_axis_off()
        return
    unit, per_s = ("s", 1.0) if values_s[-1] >= LONG_S else ("ms", 1e3)
    kept = (1 - report.rejected_share) * np.arange(1, len(values_s) + 1) / len(values_s)
    axes.step(values_s * per_s, kept, where="post", color=RUNNING, lw=1.6)
    bound_s = report.slo.bounds_s.get(metric)
    ends_ms: list[Any] = [row.get(f"p95_{metric}_ms_{end}") if row else None for end in ("low", "high")]
    ends = [each * per_s / 1e3 for each in ends_ms if each is not None]
    if len(ends) == 2 and row is not None and not report.endless:
        label = f"{row['interval']:.0%} interval of the p95"
        axes.plot(ends, [0.95, 0.95], color=RUNNING, lw=6, alpha=0.25, solid_capstyle="butt", label=label)
    if bound_s:
        axes.axvline(bound_s * per_s, color=BOUND, ls="--", lw=1.2, label="the SLO's bound")
        told = f"{report.within[metric]:.1%} within {bound_s * 1e3:,g} ms"
        axes.set_title(told, fontsize=9, color=BOUND, loc="right", pad=4)
    wide_axis(axes, "x", [*values_s[[0, -1]] * per_s, *ends], [bound_s * per_s] if bound_s else [])
    axes.set(xlabel=f"{metric.upper()} [{unit}]", ylabel="share of requests within", ylim=(0, 1.02))
    grid_lines(axes)


def distribution_keys(panels: Iterable["Axes"]) -> list[Any]:
    """Return the entries of a legend of distributions: the SLO's bound and the interval, where they are drawn."""
    found = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return list(found.values())
