"""Scatter plot of predicted against measured, one panel per metric. Importing this module imports matplotlib."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator

from simulator.validation.prediction import Prediction

PANELS_PER_ROW = 3
PANEL_INCHES = 3.7, 4.0  # of a square, its title and its labels
FEW = 100  # predictions of a metric up to which their dots are large
BEYOND = 1.3  # the axes end at this factor beyond the extremes
NAMES = {  # of metrics, with their unit
    "prefill_ms": "prefill [ms]",
    "ttft_ms": "TTFT [ms]",
    "tpot_ms": "TPOT [ms]",
    "itl_ms": "ITL [ms]",
    "e2e_latency_ms": "E2EL [ms]",
    "pp_tok_s": "llama.cpp prompts [tokens/s]",
    "tg_tok_s": "llama.cpp generation [tokens/s]",
    "decode_tok_s_per_user": "decode, of a user [tokens/s]",
    "req_s": "requests/s",
    "throughput_out_tok_s": "output [tokens/s]",
    "throughput_total_tok_s": "prompt and output [tokens/s]",
    "throughput_in_tok_s": "prompts [tokens/s]",
}
REGIMES = {  # each with its colour and marker in every panel
    "single": ("#1b6ca8", "o"),
    "fixed_batch": ("#e08214", "s"),
    "closed_loop": ("#56b4e9", "^"),
    "offline": ("#882255", "v"),
    "open_loop": ("#009e73", "D"),
    "": ("#8f8f8f", "P"),
}


class Dot(NamedTuple):
    """One measurement and what was predicted for it, in the unit of its metric."""

    metric: str
    regime: str
    measured: float
    predicted: float


def scatter(predictions: Sequence[Prediction], *, rasterized: bool = False) -> Figure:
    """Draw predictions as `draw_dots` does; those without a value are left out."""
    found = [(each.measurement, each.value) for each in predictions]
    dots = [Dot(each.metric, each.setup.regime or "", each.value, value) for each, value in found if value is not None]
    return draw_dots(dots, rasterized=rasterized)


def draw_dots(dots: Iterable[Dot], *, rasterized: bool = False) -> Figure:
    """Draw predicted over measured on equal logarithmic axes; lines mark equality and a factor of 1.25 either way.

    `rasterized`: dots are a picture inside an SVG, which stays small however many there are.
    """
    panels: dict[str, list[Dot]] = defaultdict(list)
    for each in dots:
        panels[each.metric].append(each)
    columns = min(PANELS_PER_ROW, max(1, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, metric in zip(axes, sorted(panels), strict=False):
        _plot(ax, panels[metric], rasterized=rasterized)
        ax.set_title(NAMES.get(metric, metric), fontsize=10.5)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure


def _plot(ax: Axes, dots: Sequence[Dot], *, rasterized: bool) -> None:
    values = [(each.measured, each.predicted) for each in dots]
    ends = np.array([np.nanmin(values) / BEYOND, np.nanmax(values) * BEYOND])
    size, alpha = (5, 0.8) if len(dots) <= FEW else (2.5, 0.5)
    for regime, (colour, marker) in REGIMES.items():
        these = [(each.measured, each.predicted) for each in dots if each.regime == regime]
        if these:
            label = f"{regime.replace('_', ' ') or 'not stated'}: {len(these):,}"
            drawn = ax.plot(*zip(*these, strict=True), marker, ms=size, mew=0, alpha=alpha, color=colour, label=label)
            drawn[0].set_rasterized(rasterized)
    for factor, style in ((1.0, "-"), (1.25, ":"), (0.8, ":")):
        ax.plot(ends, ends * factor, style, color="#444444", linewidth=0.8)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured", ylabel="predicted")
    decades = np.log10(ends[1] / ends[0])
    steps = (1, 1.5, 2, 3, 4, 6, 8) if decades < 0.7 else (1, 2, 5) if decades < 1.6 else (1,)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=steps, numticks=5 if decades > 3 else 12))
        axis.set_major_formatter(EngFormatter(sep=""))
        axis.set_minor_formatter("")
    ax.set_aspect("equal")
    ax.legend(fontsize=8.5, frameon=False, loc="upper left", markerscale=1.6 if len(dots) > FEW else 1.0,
              handletextpad=0.1, borderaxespad=0.1)  # fmt: skip
