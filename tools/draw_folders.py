"""Draw docs/images/folders.svg: the folders of the package, each standing on those that it imports.

python -m tools.draw_folders

Names, arrows and words are those of the table in docs/structure.md, which a test holds against the imports of the code.
An arrow that follows from others is left out, but for those in DIRECT. Chosen here by hand are the columns of each
folder alone; the rows follow from the arrows.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TABLE, PICTURE = ROOT / "docs" / "structure.md", ROOT / "docs" / "images" / "folders.svg"
GRID = 16  # columns
LEFT = (0, 12)  # columns of a folder without others: all but those of `executors` and `html`, which need the root alone
COLUMNS = {  # first and last but one of each folder that is not as wide as LEFT
    **{"cli": (0, GRID), "cost": (0, 14), "root": (0, GRID), "executors": (12, 14), "html": (14, GRID)},
    **dict.fromkeys(("reference", "calibration", "validation"), (0, 6)),
    **dict.fromkeys(("deployment", "roofline", "engines"), (0, 6)),
    **{"questions": (0, 9), "plots": (9, 12), "workloads": (9, 12)},
    **{"claims": (7, 9), "scheduler": (6, 9), "models": (0, 3), "hardware": (3, 6)},
}
DIRECT = {("cli", "questions")}  # drawn though it follows from others
LABELS = {("cli", "questions"): "as users ask", ("validation", "questions"): "as published rows ask"}
COLOURS = {  # each group of folders with its legend
    "#cfe3f7": ("entry points", ("cli", "claims", "reference", "plots", "calibration", "validation", "html")),
    "#f7e6b5": ("question and answer", ("questions", "cost", "reports")),
    "#cdebd0": ("load and schedule", ("simulation", "scheduler", "workloads")),
    "#f5d5c6": ("work and time", ("deployment", "roofline", "engines", "models", "hardware")),
    "#e2e2e2": ("shared by all", ("executors", "root")),
}
WIDTH_PX, ROW_PX, GAP_PX, LEGEND_PX, LETTER_PX = 930, 48, 20, 34, 6.0
LINE_PX = 14
Arrows = dict[str, set[str]]


class Box(NamedTuple):
    """A folder on the grid: columns [left, right), rows [top, bottom)."""

    left: int
    right: int
    top: int
    bottom: int


def table() -> tuple[Arrows, dict[str, str]]:
    """Return the folders that each folder imports, and what it holds in words."""
    rows = [line for line in TABLE.read_text().split("```")[1].splitlines() if "->" in line]
    found = [(row.partition("->")[0].strip(), row.partition("->")[2].partition("|")) for row in rows]
    arrows = {name: set(re.findall(r"[a-z]+", below)) for name, (below, _, _) in found}
    return arrows, {name: words.strip().replace("`", "") for name, (_, _, words) in found}


def reduced(arrows: Arrows) -> Arrows:
    """Return the arrows that do not follow from others: the transitive reduction of a graph without a circle."""

    def reached(name: str) -> set[str]:
        return set().union(*({below} | reached(below) for below in arrows[name]))

    return {
        name: {each for each in below if not any(each in reached(other) for other in below - {each})}
        for name, below in arrows.items()
    }


def boxes(arrows: Arrows) -> dict[str, Box]:
    """Put each folder in the highest row below all that import it; it reaches down to the next in its columns."""
    tops: dict[str, int] = {}

    def top(name: str) -> int:
        importers = [other for other, below in arrows.items() if name in below]
        tops[name] = tops[name] if name in tops else 1 + max(map(top, importers), default=-1)
        return tops[name]

    rows = 1 + max(map(top, arrows))
    columns = {name: COLUMNS.get(name, LEFT) for name in arrows}

    def bottom(name: str) -> int:
        left, right = columns[name]
        under = (other for other, (first, last) in columns.items() if first < right and left < last)
        return min((tops[other] for other in under if tops[other] > tops[name]), default=rows)

    return {name: Box(*columns[name], tops[name], bottom(name)) for name in arrows}


def svg() -> str:
    """Return the picture; ValueError where a folder does not stand on one that it imports."""
    arrows, words = table()
    drawn = {pair for name, below in reduced(arrows).items() for pair in ((name, each) for each in below)}
    drawn |= {(name, below) for name, below in DIRECT if below in arrows[name]}
    places = boxes(arrows)
    rows = max(box.bottom for box in places.values())
    height_px = rows * (ROW_PX + GAP_PX) - GAP_PX + LEGEND_PX
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -1 {WIDTH_PX} {height_px + 1}" width="{WIDTH_PX}" '
        f'height="{height_px + 1}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="11">',
        "<title>The folders of simulator/: each imports only what it stands on</title>",
        *(line for name, box in places.items() for line in _folder(name, words[name], box)),
        *(line for pair in sorted(drawn) for line in _arrow(pair, places)),
        *_legend(height_px - LEGEND_PX / 2 + 4),
        "</svg>\n",
    ])  # fmt: skip


def _x_px(column: float) -> float:
    return column * WIDTH_PX / GRID


def _folder(name: str, words: str, box: Box) -> Iterator[str]:
    x_px, y_px = _x_px(box.left) + GAP_PX / 4, box.top * (ROW_PX + GAP_PX)
    width_px = _x_px(box.right - box.left) - GAP_PX / 2
    height_px = (box.bottom - box.top) * (ROW_PX + GAP_PX) - GAP_PX
    colour = next((each for each, (_, names) in COLOURS.items() if name in names), "#ffffff")
    shape = f'x="{x_px:.1f}" y="{y_px}" width="{width_px:.1f}" height="{height_px}" rx="5"'
    yield f'<rect {shape} fill="{colour}" stroke="#777" stroke-width="0.8"/>'
    lines = wrap(words, round((width_px - 24) / LETTER_PX))
    middle_px, first_px = x_px + width_px / 2, y_px + (height_px - LINE_PX * len(lines)) / 2 + 4
    for index, line in enumerate([name, *lines]):
        style = 'fill="#333"' if index else 'font-weight="bold" font-size="13" fill="#111"'
        place = f'x="{middle_px:.1f}" y="{first_px + LINE_PX * index:.1f}" text-anchor="middle"'
        yield f"<text {place} {style}>{escape(line)}</text>"


def _arrow(pair: tuple[str, str], places: dict[str, Box]) -> Iterator[str]:
    """Draw an arrow straight down, in the middle of the columns that both folders have and no folder between."""
    upper, lower = (places[name] for name in pair)
    between = [box for box in places.values() if upper.bottom <= box.top < lower.top]
    columns = range(max(upper.left, lower.left), min(upper.right, lower.right))
    free = [each for each in columns if not any(box.left <= each < box.right for box in between)]
    if not free:
        raise ValueError(f"{pair[0]} does not stand on {pair[1]}: give one of them other COLUMNS")
    x_px = _x_px((free[0] + free[-1] + 1) / 2)
    begin_px, end_px = upper.bottom * (ROW_PX + GAP_PX) - GAP_PX, lower.top * (ROW_PX + GAP_PX)
    yield f'<path d="M{x_px:.1f} {begin_px + 1}V{end_px - 7}" stroke="#808080" stroke-width="1.6"/>'
    head = f"{x_px - 5:.1f},{end_px - 8} {x_px + 5:.1f},{end_px - 8} {x_px:.1f},{end_px - 1}"
    yield f'<polygon points="{head}" fill="#808080"/>'
    if pair in LABELS:
        yield f'<text x="{x_px + 10:.1f}" y="{end_px - 7}" fill="#808080">{LABELS[pair]}</text>'


def _legend(y_px: float) -> Iterator[str]:
    x_px = GAP_PX / 4
    for colour, (words, _) in COLOURS.items():
        shape = f'x="{x_px:.1f}" y="{y_px - 9:.1f}" width="11" height="11" rx="2"'
        yield f'<rect {shape} fill="{colour}" stroke="#777" stroke-width="0.8"/>'
        yield f'<text x="{x_px + 16:.1f}" y="{y_px:.1f}" fill="#808080">{words}</text>'
        x_px += 44 + LETTER_PX * len(words)


if __name__ == "__main__":
    PICTURE.write_text(svg())
