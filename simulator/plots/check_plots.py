"""Plot of `infercast check --plot`: predicted over measured step times, one panel per way of predicting."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from simulator.plots.palette import DECODE, PROMPT, RUNNING

COLOURS = {"prefill": PROMPT, "decode": DECODE, "mixed": RUNNING}


def plot_check(found: Mapping[str, Any]) -> Figure:
    """Return a plot of predicted over measured step times in milliseconds, both axes logarithmic.

    `found` is what `Check.as_dict` returns. Hollow marks: other processes used more than 0.1 cores during that step.
    """
    cells = found["cells"]
    tiers = list(cells[0]["predicted_s"])
    figure = Figure(figsize=(3.6 * len(tiers), 3.9), layout="constrained")
    panels = figure.subplots(1, len(tiers), sharex=True, sharey=True, squeeze=False)[0]
    ends = [min(each["measured_s"] for each in cells) * 400, max(each["measured_s"] for each in cells) * 2500]
    for panel, tier in zip(panels, tiers, strict=True):
        panel.plot(ends, ends, color="#666666", linewidth=0.8)
        for kind, colour in COLOURS.items():
            for hollow in (False, True):
                marked = [c for c in cells if c["kind"] == kind and (c["others_cores"] > 0.1) == hollow]
                panel.scatter(
                    [1e3 * each["measured_s"] for each in marked],
                    [1e3 * each["predicted_s"][tier] for each in marked],
                    s=22,
                    facecolors="none" if hollow else colour,
                    edgecolors=colour,
                    label=None if hollow else kind,
                )
        error = median(abs(each["predicted_s"][tier] / each["measured_s"] - 1) for each in cells)
        panel.set(title=f"{tier}: {error:.0%} off (median)", xscale="log", yscale="log", xlabel="measured [ms]")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
            axis.set_minor_formatter(NullFormatter())
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("predicted [ms]")
    panels[0].legend(frameon=False)
    figure.suptitle("{model}, {dtype}, {device}".format(**found["about"]), fontsize=9)
    return figure
