"""Colours of all plots, each with one meaning, and the axes that they share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

PROMPT, DECODE = "#d95f02", "#4c72b0"  # work on prompts; on generated tokens
WAITING, RUNNING, CACHE, REDO = "#8f8f8f", "#333333", "#4d9221", "#8e1b5e"  # requests; KV cache; preemptions
BOUND = "#c44e52"  # what the SLO or the asked rate demands, and what fails it
RESOURCES = {"compute": "#7570b3", "memory": "#1b9e77", "link": "#e6ab02", "overhead": "#d8c3ae", "idle": "#efefef"}
SERIES = ("#1b6ca8", "#e08214", "#882255", "#009e73", "#6b4c2a", "#56b4e9", "#cc79a7")  # curves; `marks.Curve`
DARK, LIGHT = "#4c72b0", "#b3c6e0"  # two of a kind: p95 and median, up and paid
ON_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}  # behind a text over lines
TIP = "tip: "  # begins the id of what shows a text when pointed at, in an SVG inside a page
MOST_DECIMALS = 6  # of a tick
WIDE = 8.0  # largest over smallest value from which an axis is logarithmic


def wide_axis(axes: "Axes", which: str, values: npt.ArrayLike, bounds: Sequence[float] = ()) -> None:
    """Make an axis ("x" or "y") logarithmic where positive values differ by more than `WIDE`, else let it begin at 0.

    `bounds` are lines that it has to show, too. Ticks are plain numbers: 1, 2, 5, 10; of long ones 1,000, 3,000.
    """
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415  half a second

    shown = np.asarray([*np.ravel(np.asarray(values, np.float64)), *bounds])
    shown = shown[np.isfinite(shown) & (shown > 0)]
    axis = axes.xaxis if which == "x" else axes.yaxis
    if len(shown) and shown.max() / shown.min() > WIDE:
        axes.set(**{f"{which}scale": "log"})
        ratio = shown.max() / shown.min()
        few = which == "x" and shown.max() >= 1000 and ratio > 20  # long numbers side by side
        axis.set_major_locator(LogLocator(subs=(1.0,) if ratio > 200 else (1.0, 3.0) if few else (1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
        axes.set(**{f"{which}lim": (shown.min() / 1.3, shown.max() * 1.3)})
    else:
        axes.set(**{f"{which}lim": (0.0, 1.08 * shown.max() if len(shown) else 1.0)})
    plain_ticks(axis)


def plain_ticks(axis: "Axis") -> None:
    """Write the ticks of an axis as plain numbers; on a linear one all with as many decimals: 0.10 beside 0.15."""
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415  half a second

    def written(value: float, _: object) -> str:
        if axis.get_scale() != "linear":
            return f"{value:,.10g}"
        sizes = (axis.get_majorticklocs() * 10.0**decimals for decimals in range(MOST_DECIMALS))
        decimals = next((place for place, each in enumerate(sizes) if np.allclose(each, each.round())), MOST_DECIMALS)
        return f"{value:,.{decimals}f}"

    axis.set_major_formatter(FuncFormatter(written))


def grid_lines(axes: "Axes") -> None:
    """Draw thin lines at the ticks, below all that is plotted."""
    axes.grid(True, color="#ececec", lw=0.6)
    axes.set_axisbelow(True)


def short(value: float) -> str:
    """Return a number with three significant digits, zeros at its end too, and all of those before the point.

    >>> short(1291.4), short(0.01234), short(1.1), short(99.96), short(0.0)
    ('1,291', '0.0123', '1.10', '100', '0')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 or value == 0 else f"{value:#.3g}"


def tip(axes: "Axes", x: float, y: float, text: str) -> None:
    """Let a point of a plot show a text when pointed at (`inline_svg`); in files of pictures it shows nothing."""
    if np.isfinite([x, y]).all():
        axes.scatter([x], [y], s=110, color="black", alpha=0.0, linewidths=0, zorder=9, gid=f"{TIP}{text}")
