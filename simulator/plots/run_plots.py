"""Plot of `infercast simulate --plot`: state, throughput and binding resource over time, and parts of the latencies."""

from typing import TYPE_CHECKING

import numpy as np

from simulator.reports.latency_breakdown import PARTS, Explanation
from simulator.reports.timeline import RESOURCES, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#4c72b0", "#dd8452", "#666666"
RESOURCE_COLOURS = {
    "compute": "#d95f02",
    "memory": "#4c72b0",
    "link": "#7570b3",
    "overhead": "#a6a6a6",
    "idle": "#efefef",
}
PART_COLOURS = dict(
    zip(PARTS, ("#8c8c8c", "#c7c7c7", "#c44e52", "#d95f02", "#f2b27a", "#8172b3", "#4c72b0"), strict=True)
)


def plot_run(title: str, over_time: Timeline, explained: Explanation) -> "Figure":
    """Return a plot of a run over time in seconds on the left, and of the parts of TTFT and E2EL on the right.

    Left: requests running and waiting, KV-cache usage with preemptions, tokens/s, and the share of each interval that
    each resource binds. Right: seconds in the mean and in the request at p95.
    """
    import matplotlib.pyplot as plt  # noqa: PLC0415  half a second
    from matplotlib.ticker import StrMethodFormatter  # noqa: PLC0415

    figure = plt.figure(figsize=(12.5, 8.4), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(2.1, 1))
    left, right = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    panels = left.subplots(4, 1, sharex=True)
    _plot_requests(panels[0], over_time)
    _plot_cache_usage(panels[1], over_time)
    _plot_throughput(panels[2], over_time)
    _plot_binding(panels[3], over_time)
    panels[3].set_xlabel("time [s]")
    bars = right.subplots(2, 1)
    for axes, metric in zip(bars, ("ttft", "e2el"), strict=True):
        _plot_parts(axes, explained, metric)
    right.legend(*bars[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    for axes in (*panels, *bars):
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    for axes in panels:
        axes.margins(x=0)
    figure.suptitle(title, fontsize=11, wrap=True)
    return figure


def _legend(axes: "Axes") -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.97), fontsize=9, ncols=5, frameon=False, borderpad=0.2)


def _draw(axes: "Axes", over_time: Timeline, values: "np.typing.NDArray[np.float64]", colour: str, label: str) -> None:
    axes.stairs(values, over_time.edges_s, color=colour, linewidth=1.3, label=label)


def _plot_requests(axes: "Axes", over_time: Timeline) -> None:
    _draw(axes, over_time, over_time.columns["vllm:num_requests_running"], BLUE, "running")
    _draw(axes, over_time, over_time.columns["vllm:num_requests_waiting"], ORANGE, "waiting")
    axes.set(ylabel="requests")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _plot_cache_usage(axes: "Axes", over_time: Timeline) -> None:
    _draw(axes, over_time, over_time.columns["vllm:kv_cache_usage_perc"], BLUE, "KV cache used")
    preemptions = np.diff(over_time.columns["vllm:num_preemptions"], prepend=0.0)
    axes.set(ylabel="KV cache used, share", ylim=(0, 1.05))
    if preemptions.any():
        twin = axes.twinx()
        _draw(twin, over_time, preemptions, ORANGE, "preemptions")
        twin.set_ylabel(f"preemptions in {over_time.edges_s[1] - over_time.edges_s[0]:.2g} s", color=ORANGE)
        twin.set_ylim(bottom=0)
        twin.spines["top"].set_visible(False)


def _plot_throughput(axes: "Axes", over_time: Timeline) -> None:
    spans_s = np.diff(over_time.edges_s)
    for name, colour, label in (
        ("vllm:prompt_tokens", ORANGE, "prompt"),
        ("vllm:generation_tokens", BLUE, "generation"),
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
            axes.stairs(above, over_time.edges_s, baseline=below, fill=True, color=RESOURCE_COLOURS[name], label=name)
        below = above
    axes.set(ylabel="bound by, share of time", ylim=(0, 1.0))
    _legend(axes)


def _plot_parts(axes: "Axes", explained: Explanation, metric: str) -> None:
    """Plot two stacked bars of the parts of a latency: its mean, and the request at its p95."""
    columns = [explained.mean_s(metric), explained.p95_s(metric)]
    below = np.zeros(2)
    for part, colour in PART_COLOURS.items():
        height = np.array([column[part] for column in columns])
        if explained.split.of("e2el")[part].any():
            axes.bar((0, 1), height, 0.6, bottom=below, color=colour, label=part)
        below += height
    for place, total in enumerate(below):
        axes.annotate(f"{total:.3g} s", (place, total), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks((0, 1), ("mean", "request at p95"))
    axes.set(ylabel=f"{metric.upper()} [s]")
    axes.margins(x=0.2, y=0.12)
