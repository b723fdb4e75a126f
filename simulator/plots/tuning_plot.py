"""A plot of tuned settings: what the default, the best, and the best without each of its changes serve."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.plots.marks import whisker
from simulator.plots.palette import BOUND, LIGHT, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNKNOWN = "#d5d9de"  # of settings whose interval is not computed
Bar = tuple[str, float, float | None, float | None]  # name, score per second, the ends of its interval


def plot_tuned(bars: Sequence[Bar], unit: str, title: str) -> "Figure":
    """Return a plot with a bar for each of some settings, of so many `unit` a second, the first on top.

    A score of 0 is written as such: no load keeps the SLO with these settings.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second

    figure = Figure(figsize=(8, 1.4 + 0.45 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for row, (_, per_s, low, high) in enumerate(bars):
        axes.barh(row, per_s, 0.6, color=LIGHT if row < 2 else UNKNOWN)
        whisker(axes, "x", row, (low, high))
        if per_s:
            beside = (max(per_s, high or 0.0), row)
            axes.annotate(short(per_s), beside, (5, 0), textcoords="offset points", va="center", fontsize=9)
        else:
            axes.text(0, row, " no load keeps the SLO", va="center", color=BOUND, fontsize=9)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axes.invert_yaxis()
    axes.set(xlabel=f"{unit} (line: held-out interval)")
    figure.suptitle(title, fontsize=10.5)
    axes.set_xlim(0, 1.12 * max((max(per_s, high or 0.0) for _, per_s, _, high in bars), default=0.0) or 1.0)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
