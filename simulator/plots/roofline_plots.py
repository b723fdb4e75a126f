"""Roofline plots of deployments.

Matplotlib is imported with this module, which takes half a second: import it only where a plot is asked for.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, NullLocator, StrMethodFormatter

from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment
from simulator.deployment.estimate import Estimate
from simulator.plots.palette import DECODE, ON_PAPER, PROMPT, tip
from simulator.roofline.roofline import Rates
from simulator.units import scaled

COLOURS = {"prefill": PROMPT, "decode step": DECODE}
INK, GREY, DASHES = "#333333", "#666666", (0, (4, 3))
MARKERS = "osD^vPXphd<>8"


def plot_roofline(estimates: Sequence[Estimate]) -> Figure:
    """Return a plot of each op's attained FLOP/s over its arithmetic intensity, under the ceilings of its device.

    Both axes are per device: FLOP/s over FLOP per byte moved. One panel per deployment. Solid ceilings are the data
    sheet's peaks, min(P, W x intensity) with P in FLOP/s and W in bytes/s; dashed ones are what kernels achieve.
    Source: Williams, Waterman and Patterson, "Roofline", Communications of the ACM 52 (2009).
    """
    panels: dict[str, list[Estimate]] = {}
    for each in estimates:
        panels.setdefault(f"{each.deployment}, {each.deployment.engine.id}", []).append(each)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(6.6 * columns + 2.6, 4.9 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    style = _Style.of(estimates)
    for ax, (title, shown) in zip(axes, panels.items(), strict=False):
        points = [point for each in shown for point in _points(each)]
        for point in points:
            style.draw(ax, point)
        _plot_ceilings(ax, shown[0].deployment, points)
        ax.set_title(title, fontsize=10.5)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    figure.legend(handles=style.legend(), loc="outside right center", fontsize=8.5, frameon=False)
    return figure


class _Point(NamedTuple):
    phase: str
    op: str
    batch: Batch
    intensity: float
    flops_per_s: float


def _points(found: Estimate) -> Iterator[_Point]:
    """Yield a point for each op of both phases that computes and moves bytes."""
    for name, phase in zip(COLOURS, (found.prefill, found.decode), strict=True):
        for op in phase.ops:
            if op.time.flops and op.time.moved_bytes:  # prefill attention counts no bytes: it has no intensity
                flops, moved, seconds = (float(part) for part in (op.time.flops, op.time.moved_bytes, op.time.seconds))
                yield _Point(name, op.time.name, found.batch, flops / moved, flops / seconds)


class _Style(NamedTuple):
    """Marks of the plot: colour by phase, marker by op, opacity and size by batch (`weights`, 0 to 1)."""

    markers: dict[str, str]
    weights: dict[Batch, float]

    @classmethod
    def of(cls, estimates: Sequence[Estimate]) -> Self:
        names = dict.fromkeys(point.op for each in estimates for point in _points(each))
        batches = sorted({each.batch for each in estimates}, key=lambda batch: (batch.size, batch.prompt_tokens))
        weights = np.linspace(0.0, 1.0, len(batches)) if len(batches) > 1 else np.ones(1)
        markers = {name: MARKERS[place % len(MARKERS)] for place, name in enumerate(names)}
        return cls(markers, dict(zip(batches, map(float, weights), strict=True)))

    def draw(self, ax: Axes, point: _Point) -> None:
        weight = self.weights[point.batch]
        ax.plot(
            point.intensity,
            point.flops_per_s,
            self.markers[point.op],
            color=COLOURS[point.phase],
            alpha=0.4 + 0.6 * weight,
            markersize=5.5 + 2.5 * weight,
            markeredgecolor="white",
            markeredgewidth=0.6,
        )
        attained = f"{scaled(point.flops_per_s, 'FLOP/s')} at {point.intensity:.3g} FLOP per byte"
        tip(ax, point.intensity, point.flops_per_s, f"{point.phase}, {point.op}, {point.batch}: {attained}")

    def legend(self) -> list[Line2D]:
        def entry(label: str, colour: str, marker: str, weight: float = 1.0) -> Line2D:
            size, alpha = 5.5 + 2.5 * weight, 0.4 + 0.6 * weight
            return Line2D([], [], color=colour, marker=marker, ls="", label=label, markersize=size, alpha=alpha)

        gap = Line2D([], [], ls="", label=" ")
        lines = [
            Line2D([], [], color=INK, lw=1.4, label="data-sheet peaks"),
            Line2D([], [], color=INK, lw=1.1, ls=DASHES, label="achievable"),
        ]
        phases = [entry(phase, colour, "o") for phase, colour in COLOURS.items()]
        ops = [entry(name, GREY, marker) for name, marker in self.markers.items()]
        sizes = [
            entry(f"batch {batch.size} x {batch.prompt_tokens:,} tokens", GREY, "o", weight)
            for batch, weight in self.weights.items()
        ]
        return [*lines, gap, *phases, gap, *ops, *([gap, *sizes] if len(sizes) > 1 else [])]


def _plot_ceilings(ax: Axes, deployment: Deployment, points: Sequence[_Point]) -> None:
    """Plot the roofs of every number format in which the deployment computes, over the intensities shown."""
    hardware, kernels = deployment.hardware, deployment.kernels
    rates, width = Rates(kernels), float(hardware.memory_bytes_per_s)
    by_experts = sorted((op for op in deployment.ops if op.rate == "gemm"), key=lambda op: op.experts is None)
    gemms = {op.format: op for op in by_experts}  # one per number format, a plain GEMM where there is one
    highest = max(rates.peak(each)[1] for each in gemms)
    intensities = [point.intensity for point in points]
    x = np.geomspace(0.5 * min(intensities), 3 * max(*intensities, highest / width), 400)
    for each, op in gemms.items():
        name, peak = rates.peak(each)
        reached = rates.gemms.achieved(name, op)
        ax.plot(x, np.minimum(peak, width * x), color=INK, lw=1.4, zorder=1)
        roof = np.minimum(reached.compute * peak, reached.memory * width * x)
        ax.plot(x, roof, color=INK, lw=1.1, ls=DASHES, zorder=1)
        _label(ax, f"{name} {scaled(peak, 'FLOP/s')}", (float(x[-1]), peak), (-4, 3))
    below_ridge = float(x[0] ** 0.3 * (highest / width) ** 0.7)
    _label(ax, f"memory {scaled(width, 'B/s')}", (below_ridge, width * below_ridge), (-6, 4))
    ax.set(xscale="log", yscale="log", xlim=(x[0], x[-1]))
    ax.set_ylim(0.4 * min(point.flops_per_s for point in points), 2.5 * highest)
    for axis, written in ((ax.xaxis, StrMethodFormatter("{x:,.10g}")), (ax.yaxis, EngFormatter())):
        axis.set_major_formatter(written)
        axis.set_minor_locator(NullLocator())
    ax.set_xlabel("arithmetic intensity, FLOP per byte moved")
    ax.set_ylabel("attained by one device, FLOP/s")
    ax.grid(True, which="major", color="#e2e2e2", lw=0.6)
    ax.set_axisbelow(True)


def _label(ax: Axes, text: str, at: tuple[float, float], offset: tuple[int, int]) -> None:
    """Write text above and left of a point, on white."""
    ax.annotate(
        text, at, offset, textcoords="offset points", ha="right", va="bottom", fontsize=8.5, color=INK, bbox=ON_PAPER
    )
