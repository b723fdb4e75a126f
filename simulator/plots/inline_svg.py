"""A plot as SVG inside a page: text stays text, colours follow the page's, points have tooltips, equal plots are equal.

Matplotlib is imported with this module, which takes half a second: import it only where a page is asked for.
"""

import io
import re
from html import escape
from itertools import count

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from simulator.plots.palette import TIP

INK = ("#000000", "#222222", "#333333", "#444444", "#555555", "black")  # become the page's own, dark or light
COLOURS = {
    **dict.fromkeys(INK, "var(--ink)"),
    **dict.fromkeys(("#666666", "#808080"), "var(--muted)"),
    **dict.fromkeys(("#ececec", "#e2e2e2", "#efefef"), "var(--rule)"),
    **dict.fromkeys(("#ffffff", "white"), "var(--paper)"),
}
_COLOUR = re.compile(rf"(?<=: )(?:{'|'.join(COLOURS)})(?=[;\"])")
_FONT = re.compile(r"font: (?:\w+ )*?(?:(\d00|bold) )?([\d.]+)px [^;\"]*")
_FAMILY = re.compile(r"(?<=[;\"]) ?font-family: [^;\"]*;? ?")
_NUMBERS = re.compile(r' (?:d|x|y|width|height|points|transform|viewBox)="[^"]*"')
_ID = re.compile(r' id="([^"]*)"')
_TIP = re.compile(rf'<g id="{TIP}([^"]*)">')


def inline_svg(figure: Figure, name: str, says: str) -> str:
    """Return a figure as one `<svg>` element; `name` begins its ids, which a page has once, `says` is read aloud."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        _lay_out(figure)
        bare = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=bare, dpi=150)  # of what is rasterized
    text = buffer.getvalue()
    box = re.search(r'viewBox="([^"]*)"', text)
    inside = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    inside = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", inside, flags=re.DOTALL)
    inside = _TIP.sub(lambda match: f'<g class="tip"><title>{match[1]}</title>', inside)
    inside = _own_ids(inside.replace("xlink:href", "href"), name)
    inside = _COLOUR.sub(lambda match: COLOURS[match[0]], inside)
    inside = _FONT.sub(lambda match: f"font-size: {match[2]}px" + ("; font-weight: 600" if match[1] else ""), inside)
    inside = _FAMILY.sub("", inside)
    inside = _NUMBERS.sub(lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match[0]), inside)
    inside = re.sub(r"\n\s*", "\n", inside)
    view = box[1] if box else "0 0 1 1"
    return f'<svg viewBox="{view}" role="img" aria-label="{escape(says)}">{inside}</svg>'


def _lay_out(figure: Figure) -> None:
    """Arrange a figure once and for all: `savefig` would draw all of it to do so, and then again."""
    FigureCanvasSVG(figure)  # becomes the figure's: its letters are those that are measured
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)


def _own_ids(text: str, name: str) -> str:
    """Drop the ids that nothing refers to, and number the others after a name."""
    used = {*re.findall(r"url\(#([^)]*)\)", text), *re.findall(r'href="#([^"]*)"', text)}
    numbers = count(1)
    new = {old: f"{name}-{next(numbers)}" for old in dict.fromkeys(_ID.findall(text)) if old in used}
    text = _ID.sub(lambda match: f' id="{new[match[1]]}"' if match[1] in new else "", text)
    return re.sub(r"(url\(#|href=\"#)([^)\"]*)", lambda match: match[1] + new[match[2]], text)
