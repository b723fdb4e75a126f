"""Marks that plots share: of a value with its interval, and of the curves of a plot."""

from typing import TYPE_CHECKING, NamedTuple, Self

from simulator.frames import Row
from simulator.plots.palette import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Ends = tuple[float | None, float | None]  # of an interval; the upper one None: it has none
BEYOND = 1e12  # of all axes: where an interval without an end is drawn to
MARKERS = "osD^vP"  # as many as make, with the colours, 42 kinds of curves: none rests on its colour alone
WHISKER = "#555555"


class Curve(NamedTuple):
    """How a curve is drawn."""

    colour: str
    marker: str

    @classmethod
    def of(cls, place: int) -> Self:
        """Return the mark of a plot's first, second, ... curve.

        >>> Curve.of(0).marker, Curve.of(0).colour == Curve.of(7).colour, Curve.of(7).marker
        ('o', True, 's')
        """
        return cls(SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)])

    def handle(self, label: str) -> "Line2D":
        """Return the curve's entry of a legend."""
        from matplotlib.lines import Line2D  # noqa: PLC0415  half a second

        return Line2D([], [], color=self.colour, marker=self.marker, markersize=4, label=label)


def ends_of(row: Row, key: str) -> Ends:
    """Return the interval of a figure of a row.

    >>> ends_of({"usd": 2.0, "usd_low": 1.5, "usd_high": None}, "usd")
    (1.5, None)
    """
    return row[f"{key}_low"], row[f"{key}_high"]


def whisker(axes: "Axes", which: str, at: float, ends: Ends, colour: str = WHISKER) -> None:
    """Draw an interval along an axis ("x" or "y") at a place of the other; an arrow to the edge where an end is none.

    That is an upper end of None, and a lower one of 0 on a logarithmic axis: its scale is chosen before. An interval
    that is not known, both ends None, is not drawn.
    """
    low, high = ends
    if low is None:
        return
    is_log = (axes.get_xscale() if which == "x" else axes.get_yscale()) == "log"
    falls = low <= 0 and is_log
    along, across = [1 / BEYOND if falls else low, BEYOND if high is None else high], [at, at]
    x, y = (along, across) if which == "x" else (across, along)
    axes.plot(x, y, color=colour, lw=1.0, marker="|" if which == "x" else "_", markersize=5, zorder=1.5)
    transform = axes.get_yaxis_transform() if which == "x" else axes.get_xaxis_transform()
    for is_beyond, edge, markers in ((falls, 0.0, "<v"), (high is None, 1.0, ">^")):
        if is_beyond:
            tip, marker = ((edge, at), markers[0]) if which == "x" else ((at, edge), markers[1])
            axes.plot(*tip, marker, color=colour, markersize=5, transform=transform, clip_on=False)
