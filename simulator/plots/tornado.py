"""A tornado plot: what the best answer costs at both ends of each thing that may be other than asked or predicted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.cost.sensitivity import Knob

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ASKED, UNCERTAIN, NOTHING = "#4c72b0", "#dd8452", "#c44e52"  # what users know; what predictions leave open; no SLO kept

ROOM = 0.17  # of the longest bar: beside the shortest one, for the words at its end


def plot_tornado(knobs: Sequence[Knob], usd_per_hour: float, title: str) -> "Figure":
    """Return a plot with a bar per knob, the largest swing on top, around the answer's `usd_per_hour`.

    An end at which no number of replicas keeps the SLO is an arrow; a star is an end at which another answer is best.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second
    from matplotlib.patches import Patch  # noqa: PLC0415

    figure = Figure(figsize=(10, 1.6 + 0.38 * len(knobs)), layout="constrained")
    axes = figure.subplots()
    known = [usd_per_hour, *(end.own_usd for knob in knobs for end in (knob.low, knob.high) if end.own_usd is not None)]
    most = max(known)
    for row, knob in enumerate(knobs):
        _draw(axes, row, knob, (usd_per_hour, 1.15 * most))
    axes.axvline(usd_per_hour, color="black", linewidth=1)
    axes.set_yticks(range(len(knobs)), [f"{knob.name}: {knob.low.value} to {knob.high.value}" for knob in knobs])
    axes.invert_yaxis()
    marks = "*: another answer is cheaper there; >: no number of replicas keeps the SLO"
    axes.set(xlabel=f"$ per hour\n{marks}", title=title)
    axes.set_xlim(min(0, min(known) - ROOM * most), 1.3 * most)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= 1.3 * most])
    axes.spines[["top", "right", "left"]].set_visible(False)
    bars = [Patch(color=colour) for colour in (ASKED, UNCERTAIN)]
    axes.legend(bars, ["asked", "uncertain"], loc="lower right", fontsize=9, frameon=False)
    return figure


def _draw(axes: "Axes", row: int, knob: Knob, scale: tuple[float, float]) -> None:
    """Draw both ends of a knob with their words; `scale`: the dollars of the answer, those of an end without an SLO."""
    now, far = scale
    colour, words = ASKED if knob.is_known else UNCERTAIN, 0
    low, high = (far if end.own_usd is None else end.own_usd for end in (knob.low, knob.high))
    for end, usd, other, free in ((knob.low, low, high, "right"), (knob.high, high, low, "left")):
        axes.barh(row, usd - now, 0.6, left=now, color=NOTHING if end.own_usd is None else colour)
        mark = " >" if end.own_usd is None else "*" if end.best else ""
        if usd != now or mark:
            beyond = usd - now or now - other  # an end that changes nothing has its words beside the other's bar
            side = "left" if beyond > 0 else "right" if beyond < 0 else free
            axes.text(usd, row, f" {end.value}{mark} ", va="center", ha=side, fontsize=8.5)
            words += 1
    if not words:
        axes.text(now, row, "  no change", va="center", fontsize=8.5, color="#666666")
