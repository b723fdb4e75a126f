"""Small plots of one panel each, as pages show them: side by side on a screen, one below the other on a phone."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simulator.deployment.estimate import Phase
from simulator.frames import Row
from simulator.plots.labels import legend_below, spread_labels
from simulator.plots.marks import ends_of, whisker
from simulator.plots.palette import BOUND, RESOURCES, TIP, grid_lines, short, tip, wide_axis
from simulator.plots.run_plots import distribution_keys, draw_distribution, draw_over_time, draw_parts
from simulator.plots.sweep_plots import Sweep, draw_latency, draw_pareto
from simulator.reports.latency_breakdown import Explanation
from simulator.reports.timeline import Timeline
from simulator.units import GIB

SIZE = (5.2, 3.5)  # inches: 10 px letters on a phone that is 390 px wide
WIDE_SIZE = (10.6, 3.6)
OTHERS = "#8f8f8f"  # ops of which several things bind
MOST_OPS = 9  # bars of a step; the rest is one more
MEMORY = {  # parts of a device's memory, in the order of `infercast memory`, each with its colour
    "weights": "#4c72b0",
    "workspace of a step": "#f4b183",
    "other buffers": "#a0a0a0",
    "captured graphs": "#6b4c2a",
    "recurrent states": "#882255",
    "KV cache": "#4d9221",
    "unused": "#dfe3e8",
}


def panel(size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    """Return a figure with one empty plot."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def latency_panel(sweep: Sweep, metric: str) -> Figure:
    """Return "ttft", "tpot" or "e2el" over the load: p95 with its interval, median, the SLO's bound and the knee."""
    figure, axes = panel()
    draw_latency(axes, sweep, metric)
    axes.set_title("")
    grid_lines(axes)
    legend_below(figure, _keys(sweep, metric), grows=True)
    return figure


def _keys(sweep: Sweep, metric: str) -> list[Line2D | Patch]:
    """Return what the lines of a latency over the load mean, in words short enough for a small plot."""
    ink: dict[str, Any] = {"color": "#555555"}
    found: list[Line2D | Patch] = [curve.handle(name or "p95") for name, curve in sweep.marks.items()]
    found.append(Line2D([], [], ls=":", label="median", **ink))
    found.append(Patch(alpha=0.2, lw=0, label=f"{sweep.rows[0]['interval']:.0%} interval of p95", **ink))
    if bound_s := sweep.slo.bounds_s.get(metric):
        found.append(Line2D([], [], ls="--", color=BOUND, label=f"at most {bound_s * 1e3:,g} ms asked"))
    if any(sweep.kept(places) for places in sweep.curves.values()):
        said = "SLO kept up to here" if sweep.of_load else "keeps the SLO"
        found.append(Line2D([], [], ls="", marker="o", mfc="none", markersize=9, label=said, **ink))
    if any(row["overloaded"] for row in sweep.rows):
        found.append(Line2D([], [], ls="", marker="x", label="the queue grows", **ink))
    return found


def pareto_panel(sweep: Sweep) -> Figure:
    """Return tokens/s of a device over tokens/s of a user, a point for each load."""
    figure, axes = panel()
    draw_pareto(axes, sweep)
    axes.set_title("")
    grid_lines(axes)
    if len(sweep.marks) > 1:
        legend_below(figure, [curve.handle(name) for name, curve in sweep.marks.items()], grows=True)
    spread_labels(figure)
    return figure


def parts_panel(explained: Explanation) -> Figure:
    """Return what TTFT and E2EL consist of, in the mean and in the request at p95."""
    figure = Figure(figsize=SIZE, layout="constrained")
    bars = figure.subplots(1, 2)
    for axes, metric in zip(bars, ("ttft", "e2el"), strict=True):
        draw_parts(axes, explained, metric)
        axes.spines[["top", "right"]].set_visible(False)
    legend_below(figure, bars[1].get_legend_handles_labels()[0])
    return figure


def distribution_panel(explained: Explanation, metric: str, row: Row) -> Figure:
    """Return the share of requests within a latency, with the SLO's bound and the interval of the p95."""
    figure, axes = panel()
    draw_distribution(axes, explained.report, metric, row)
    if keys := distribution_keys([axes]):
        legend_below(figure, keys)
    return figure


def timeline_panel(over_time: Timeline) -> Figure:
    """Return requests, KV-cache usage, throughput and the binding resource of a run over its time."""
    figure = Figure(figsize=(10.6, 7.2), layout="constrained")
    draw_over_time(figure, over_time)
    return figure


def phase_panel(phase: Phase) -> Figure:
    """Return the milliseconds of each kind of op of a phase, the longest first, in the colour of what binds it."""
    figure, axes = panel()
    ops = sorted(phase.ops, key=lambda op: -float(op.time.seconds))
    shown, rest = ops[:MOST_OPS], ops[MOST_OPS:]
    bars = [(op.time.name, float(op.time.seconds) * 1e3, op.time.bound) for op in shown]
    if rest:
        bars.append((f"{len(rest)} others", sum(float(op.time.seconds) for op in rest) * 1e3, "several"))
    for place, (name, took_ms, bound) in enumerate(bars):
        share = took_ms / (phase.seconds * 1e3)
        (bar,) = axes.barh(place, took_ms, 0.7, color=RESOURCES.get(bound, OTHERS))
        bar.set_gid(f"{TIP}{name}: {short(took_ms)} ms, {share:.0%} of {short(phase.seconds * 1e3)} ms")
        axes.annotate(f"{share:.0%}", (took_ms, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars], fontsize=8.5)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("ms")
    bounds = dict.fromkeys(bound for _, _, bound in bars if bound in RESOURCES)
    handles = [axes.barh(0, 0, color=RESOURCES[bound], label=f"bound by {bound}") for bound in bounds]
    legend_below(figure, handles)
    return figure


def memory_panel(labels: Sequence[str], stacks: Sequence[Mapping[str, float]]) -> Figure:
    """Return a bar for each deployment: the parts of a device's memory in GiB, named as in MEMORY."""
    figure, axes = panel((WIDE_SIZE[0], 1.6 + 0.5 * len(labels)))
    for place, stack in enumerate(stacks):
        begin = 0.0
        for part, colour in MEMORY.items():
            gib = stack.get(part, 0.0) / GIB
            if gib > 0:
                (bar,) = axes.barh(place, gib, 0.62, left=begin, color=colour)
                bar.set_gid(f"{TIP}{labels[place]}: {part} {short(gib)} GiB")
                begin += gib
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("GiB of each device")
    used = [part for part in MEMORY if any(stack.get(part, 0.0) > 0 for stack in stacks)]
    handles = [axes.barh(0, 0, color=MEMORY[part], label=part) for part in used]
    legend_below(figure, handles)
    return figure


def frontier_panel(labels: Sequence[str], rows: Sequence[Row]) -> Figure:
    """Return dollars per million output tokens over tokens/s of a user (1 / p95 TPOT), a point for each answer.

    `rows`, each with its label, have `p95_tpot_ms` and `usd_per_million_output_tokens` with its `_low` and `_high`. The
    line joins the answers that no other beats in both.
    """
    figure, axes = panel(WIDE_SIZE)
    points = [
        (1e3 / row["p95_tpot_ms"], row["usd_per_million_output_tokens"], {**row, "label": label})
        for label, row in zip(labels, rows, strict=True)
        if row["usd_per_million_output_tokens"] is not None
    ]
    best = [
        (user, usd)
        for user, usd, _ in sorted(points, key=lambda each: each[0])
        if not any(other >= user and less < usd for other, less, _ in points)
    ]
    axes.plot(*zip(*best, strict=True), "-", color="#b3c6e0", lw=1.4, zorder=1)
    for user, usd, row in points:
        whisker(axes, "y", user, ends_of(row, "usd_per_million_output_tokens"))
        axes.plot(user, usd, "o", color="#4c72b0", markersize=6)
        axes.annotate(row["label"], (user, usd), (5, 3), textcoords="offset points", fontsize=8.5)
        told = f"${short(usd)} per million output tokens, {short(user)} tokens/s of a user"
        tip(axes, user, usd, f"{row['label']}: {told}")
    axes.set(xlabel="tokens/s of a user at p95 (1 / TPOT)", ylabel="$ per million output tokens")
    axes.margins(x=0.12)
    ends = [end for _, _, row in points for end in ends_of(row, "usd_per_million_output_tokens")]
    wide_axis(axes, "y", [*(usd for _, usd, _ in points), *(end for end in ends if end)])
    grid_lines(axes)
    spread_labels(figure)
    return figure
