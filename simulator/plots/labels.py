"""Labels that do not cover each other: those of points, and the legend below a figure."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Annotation
    from matplotlib.transforms import BboxBase

SIDES = (  # of a point, in the order in which they are tried: points right and up, the sides of the text there
    (5, 3, "left", "bottom"),
    (-5, 3, "right", "bottom"),
    (5, -3, "left", "top"),
    (-5, -3, "right", "top"),
    (0, 6, "center", "bottom"),
    (0, -6, "center", "top"),
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
)
FURTHER = (1.0, 2.5, 4.0, 5.5)  # times the distance of a side
TEXT, OUTSIDE, POINT, LINE = 100.0, 100.0, 10.0, 1.0  # how bad it is to cover what, or to leave the axes
AIR = 2.0  # points between two labels
MOST_COLUMNS, ROW_INCHES = 4, 0.21  # of a legend


def spread_labels(figure: "Figure") -> None:
    """Move each label of a point, an `annotate` by so many points, to the side where it covers least."""
    from matplotlib.text import Annotation  # noqa: PLC0415  half a second

    if engine := figure.get_layout_engine():
        engine.execute(figure)  # labels are measured where the axes will be
    for axes in figure.axes:
        found = [each for each in axes.texts if isinstance(each, Annotation) and each.anncoords == "offset points"]
        _spread(axes, [each for each in found if np.isfinite(each.xy).all()])


def _spread(axes: "Axes", labels: Sequence["Annotation"]) -> None:
    from matplotlib.transforms import Bbox  # noqa: PLC0415

    inside, pixels = axes.get_window_extent(), axes.figure.dpi / 72
    points = [axes.transData.transform(each.xy) for each in labels]
    paths = list(_paths(axes))
    done: list[BboxBase] = []
    for label in labels:
        best: tuple[float, Any, BboxBase] | None = None
        for times, place in ((times, place) for times in FURTHER for place in SIDES):
            _put(label, place, times)
            box = label.get_window_extent()
            near = Bbox([[box.x0 - AIR * pixels, box.y0], [box.x1 + AIR * pixels, box.y1]])
            bad = times + TEXT * sum(near.overlaps(each) for each in done)
            bad += OUTSIDE * (not (inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1)))
            bad += POINT * sum(near.contains(*each) for each in points)
            bad += LINE * sum(path.intersects_bbox(box, filled=False) for path in paths)
            if best is None or bad < best[0]:
                best = bad, (place, times), box
        if best is not None:
            _put(label, *best[1])
            done.append(best[2])


def _put(label: "Annotation", place: tuple[int, int, Any, Any], times: float) -> None:
    right, up, side, base = place
    label.set(position=(times * right, times * up), ha=side, va=base)


def _paths(axes: "Axes") -> Iterator[Any]:
    """Yield all lines of axes, in pixels; bars of intervals are lines, too."""
    for line in axes.lines:
        yield line.get_path().transformed(line.get_transform())
    for collection in axes.collections:
        if hasattr(collection, "get_segments"):
            yield from (path.transformed(collection.get_transform()) for path in collection.get_paths())


def legend_below(figure: "Figure", handles: Sequence[Any], *, grows: bool = False) -> "Legend":
    """Return a legend below all axes, in as many columns as the figure is wide for.

    `grows`: the figure becomes higher by the rows of the legend after its second, so that its axes keep their size.
    """
    for columns in range(min(MOST_COLUMNS, max(1, len(handles))), 0, -1):
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    rows = -(-len(handles) // columns)
    if grows and rows > 2:
        figure.set_figheight(figure.get_figheight() + ROW_INCHES * (rows - 2))
    return legend
