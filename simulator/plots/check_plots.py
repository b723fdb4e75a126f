"""Plot of `infercast check --plot`: predicted over measured step times, one panel per way of predicting."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.plots.labels import legend_below
from simulator.plots.palette import DECODE, PROMPT, RUNNING, wide_axis

MARKS = {"prefill": (PROMPT, "o"), "decode": (DECODE, "s"), "mixed": (RUNNING, "^")}
HOLLOW = "hollow: other processes were busy"


def plot_check(found: Mapping[str, Any]) -> Figure:
    """Return a plot of predicted over measured step times in milliseconds, on equal axes.

    `found` is what `Check.as_dict` returns. Hollow marks: other processes used more than 0.1 cores during that step.
    """
    cells = found["cells"]
    tiers = list(cells[0]["predicted_s"])
    figure = Figure(figsize=(3.6 * len(tiers), 4.2), layout="constrained")
    panels = figure.subplots(1, len(tiers), sharex=True, sharey=True, squeeze=False)[0]
    ends = [min(each["measured_s"] for each in cells) * 400, max(each["measured_s"] for each in cells) * 2500]
    shown = [1e3 * each["measured_s"] for each in cells]
    shown += [1e3 * seconds for each in cells for seconds in each["predicted_s"].values()]
    for panel, tier in zip(panels, tiers, strict=True):
        panel.plot(ends, ends, color="#666666", linewidth=0.8)
        for kind, (colour, marker) in MARKS.items():
            for hollow in (False, True):
                marked = [c for c in cells if c["kind"] == kind and (c["others_cores"] > 0.1) == hollow]
                panel.scatter(
                    [1e3 * each["measured_s"] for each in marked],
                    [1e3 * each["predicted_s"][tier] for each in marked],
                    s=22,
                    marker=marker,
                    facecolors="none" if hollow else colour,
                    edgecolors=colour,
                )
        error = median(abs(each["predicted_s"][tier] / each["measured_s"] - 1) for each in cells)
        panel.set(title=f"{tier}: {error:.0%} off (median)", xlabel="measured [ms]")
        for which in ("x", "y"):
            wide_axis(panel, which, shown)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("predicted [ms]")
    marks = [Line2D([], [], ls="", color=colour, marker=marker, label=kind) for kind, (colour, marker) in MARKS.items()]
    legend_below(figure, [*marks, Line2D([], [], ls="", mfc="none", mec="#555555", marker="o", label=HOLLOW)])
    figure.suptitle("{model}, {dtype}, {device}".format(**found["about"]), fontsize=9)
    return figure
