"""What a reader of a plot sees: which of its texts lie over each other, and which are cut off."""

from collections.abc import Iterator
from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import BboxBase

EDGE, GAP = 1.0, 2.0  # pixels that boxes of lines may share, they have air around them; between words side by side


def _texts(figure: Figure) -> Iterator[tuple[str, BboxBase]]:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    hidden = [label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in _ticks_outside(axis)]
    for text in figure.findobj(Text):
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip() and text not in hidden:
            yield text.get_text(), text.get_window_extent(canvas.get_renderer())


def _ticks_outside(axis) -> Iterator[Text]:
    """Yield the labels of ticks that are not drawn: matplotlib keeps some beyond the limits."""
    low, high = sorted(axis.get_view_interval())
    for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
        if not low <= tick.get_loc() <= high:
            yield from (tick.label1, tick.label2)


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Return the pairs of texts that cover each other."""
    return [
        (a, b)
        for (a, first), (b, second) in combinations(_texts(figure), 2)
        if min(first.x1, second.x1) - max(first.x0, second.x0) > -GAP
        and min(first.y1, second.y1) - max(first.y0, second.y0) > EDGE
    ]


def cut_off(figure: Figure) -> list[str]:
    """Return the texts that are not wholly inside the figure."""
    whole = figure.bbox
    return [
        text
        for text, box in _texts(figure)
        if box.x0 < whole.x0 - EDGE or box.x1 > whole.x1 + EDGE or box.y0 < whole.y0 - EDGE or box.y1 > whole.y1 + EDGE
    ]
