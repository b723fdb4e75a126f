"""Scatter plot of predicted against measured, one panel per metric. Importing this module imports matplotlib."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from simulator.validation.prediction import Prediction

PANELS_PER_ROW = 4
FEW = 100  # predictions of a metric up to which their dots are large
BEYOND = 1.3  # the axes end at this factor beyond the extremes


def scatter(predictions: Sequence[Prediction], *, rasterized: bool = False) -> Figure:
    """Draw predicted over measured on equal logarithmic axes; lines mark equality and a factor of 1.25 either way.

    `rasterized`: dots are a picture inside an SVG, which stays small however many there are.
    """
    panels: dict[str, list[Prediction]] = defaultdict(list)
    for each in predictions:
        if each.value is not None:
            panels[each.measurement.metric].append(each)
    columns = min(PANELS_PER_ROW, max(1, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(3.2 * columns, 3.1 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, (metric, some) in zip(axes, sorted(panels.items()), strict=False):
        values = [(each.measurement.value, each.value or np.nan) for each in some]
        regimes = [each.measurement.setup.regime or "" for each in some]
        ends = np.array([np.nanmin(values) / BEYOND, np.nanmax(values) * BEYOND])
        size, alpha = (6, 0.8) if len(some) <= FEW else (3, 0.5)
        for regime in sorted(set(regimes)):
            these = [at for own, at in zip(regimes, values, strict=True) if own == regime]
            drawn = ax.plot(*zip(*these, strict=True), ".", markersize=size, alpha=alpha)
            drawn[0].set(label=f"{regime} {len(these)}", rasterized=rasterized)
        for factor, style in ((1.0, "-"), (1.25, ":"), (0.8, ":")):
            ax.plot(ends, ends * factor, style, color="#444444", linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=metric, xlabel="measured", ylabel="predicted")
        for axis in (ax.xaxis, ax.yaxis):
            within_a_decade = ends[1] < 10 * ends[0]
            axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8) if within_a_decade else (1,)))
            axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axis.set_minor_formatter("")
        ax.set_aspect("equal")
        ax.legend(fontsize=7, frameon=False, loc="upper left")
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure
