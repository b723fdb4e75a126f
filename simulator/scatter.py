"""Predicted against measured, one panel per metric. Matplotlib is imported with this module."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from simulator.prediction import Prediction

PANELS_PER_ROW = 4


def scatter(predictions: Sequence[Prediction]) -> Figure:
    """Draw predicted over measured on equal logarithmic axes; lines mark equality and a factor of 1.25 either way."""
    panels: dict[str, list[Prediction]] = defaultdict(list)
    for each in predictions:
        if each.value is not None:
            panels[each.measurement.metric].append(each)
    rows = max(1, -(-len(panels) // PANELS_PER_ROW))
    figure = Figure(figsize=(4.2 * PANELS_PER_ROW, 4.0 * rows), layout="constrained")
    axes = figure.subplots(rows, PANELS_PER_ROW, squeeze=False).ravel()
    for ax, (metric, some) in zip(axes, sorted(panels.items()), strict=False):
        regimes = sorted({each.measurement.setup.regime or "" for each in some})
        for regime in regimes:
            these = [each for each in some if (each.measurement.setup.regime or "") == regime]
            measured = [each.measurement.value for each in these]
            ax.plot(
                measured, [each.value for each in these], ".", markersize=3, alpha=0.5, label=f"{regime} {len(these)}"
            )
        ends = np.array([min(each.measurement.value for each in some), max(each.measurement.value for each in some)])
        for factor, style in ((1.0, "-"), (1.25, ":"), (0.8, ":")):
            ax.plot(ends, ends * factor, style, color="#444444", linewidth=0.8)
        ax.set(xscale="log", yscale="log", title=metric, xlabel="measured", ylabel="predicted")
        ax.tick_params(axis="x", which="minor", labelsize=6)  # less than a decade labels these too
        ax.legend(fontsize=7, frameon=False)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure
