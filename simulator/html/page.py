"""A page as a value: sections of text, key figures, tables, pictures and commands; and the file that it becomes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from simulator.errors import InfercastError, Setting
from simulator.files import write_whole

ENDINGS = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table: its printed text, and the number by which it sorts; None sorts by the text."""

    text: str
    order: float | None = None


@dataclass(frozen=True, slots=True)
class HeadCell:
    """The heading of a column; `left`: words, aligned left, not figures."""

    text: str
    left: bool = False


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table with a caption; the first cell of a row names it.

    `totals`: rows that stay below however the others are sorted. `fixed`: its rows have an order of their own.
    """

    caption: str
    heads: Sequence[HeadCell]
    rows: Sequence[Sequence[TableCell]]
    totals: Sequence[Sequence[TableCell]] = ()
    fixed: bool = False
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing as inline SVG, which names itself to screen readers; `wide`: over the whole page."""

    caption: str
    svg: str
    wide: bool = False
    kind: str = field(default="picture", init=False)


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number that readers look for first: its name, its value with the unit, and what else must be known of it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """Numbers side by side."""

    figures: Sequence[KeyFigure]
    kind: str = field(default="figures", init=False)


@dataclass(frozen=True, slots=True)
class Prose:
    """Sentences: a paragraph each, or with `listed` a point each."""

    sentences: Sequence[str]
    listed: bool = False
    kind: str = field(default="prose", init=False)


@dataclass(frozen=True, slots=True)
class CommandBlock:
    """A command line to copy."""

    caption: str
    line: str
    kind: str = field(default="command", init=False)


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that a reader opens, such as a table of hundreds of sources."""

    summary: str
    blocks: "Sequence[Block]"
    kind: str = field(default="folded", init=False)


Block = TableBlock | Picture | KeyFigures | Prose | CommandBlock | Folded


@dataclass(frozen=True)
class PageSection:
    """A part of a page with a heading; `name` is its anchor. Without blocks it is left out."""

    name: str
    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """All of a page: what was asked, the answer in a sentence, the sections, and of when and what it is."""

    title: str
    asked: str
    answer: str
    sections: Sequence[PageSection]
    made: str

    @cached_property
    def html(self) -> str:
        """The file's text: equal pages give equal bytes, every text is escaped, and nothing is loaded from elsewhere.

        >>> page = Page("<b>", "asked", "answer", [PageSection("a", "A", [Prose(["1 < 2"])])], "today")
        >>> "&lt;b&gt;" in page.html, "1 &lt; 2" in page.html, "://" in page.html
        (True, True, False)
        """
        from importlib.resources import files  # noqa: PLC0415  only where a page is asked for

        from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

        folder = files("simulator.html")
        texts = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html.j2", "page.css", "page.js")}
        made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        shown = [each for each in self.sections if each.blocks]
        return made.from_string(texts["page.html.j2"]).render(
            page=self, sections=shown, css=texts["page.css"], js=texts["page.js"]
        )

    def save(self, path: Path) -> None:
        """Write the page to a file, atomically. Raises InfercastError where it cannot be written."""
        write_whole(path, self.html, "--report")


def refuse_ending(path: Path | None) -> None:
    """Raise InfercastError where the file of a page would not open in a browser: before anything is computed."""
    if path is not None and path.suffix.lower() not in ENDINGS:
        because = "its ending is not that of a web page"
        raise InfercastError(Setting("page", path), because, f"Use {path.with_suffix('.html').name}")
