"""Pages: every text is escaped, nothing is loaded, whoever listens or uses a keyboard finds names; equal bytes."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest
from matplotlib.figure import Figure

from simulator.errors import InfercastError
from simulator.html.page import (
    CommandBlock,
    Folded,
    HeadCell,
    KeyFigure,
    KeyFigures,
    Page,
    PageSection,
    Picture,
    Prose,
    TableBlock,
    TableCell,
    refuse_ending,
)
from simulator.plots.inline_svg import inline_svg
from simulator.plots.palette import tip

EVIL = '<script>alert(\'&"1")</script>'


def figure(label: str = "a") -> Figure:
    drawn = Figure(figsize=(3, 2))
    axes = drawn.subplots()
    axes.plot([1, 2], [1, 2], color="#333333", label=label)
    axes.scatter([1], [2])
    axes.legend()
    tip(axes, 1.5, 1.5, f"{label} here")
    return drawn


TABLE = TableBlock(
    EVIL,
    [HeadCell(EVIL, left=True), HeadCell("n")],
    [[TableCell(EVIL), TableCell("1,000", 1000.0)], [TableCell("b"), TableCell("-")]],
    totals=[[TableCell("sum"), TableCell("1,000", 1000.0)]],
)
BLOCKS = [
    KeyFigures([KeyFigure(EVIL, EVIL, EVIL)]),
    TABLE,
    Picture(EVIL, inline_svg(figure(EVIL), "one", EVIL)),
    Picture("two", inline_svg(figure(), "two", "two"), wide=True),
    Prose([EVIL]),
    Prose([EVIL], listed=True),
    CommandBlock(EVIL, EVIL),
    Folded(EVIL, [TABLE]),
]
PAGE = Page(EVIL, EVIL, EVIL, [PageSection("all", EVIL, BLOCKS), PageSection("none", "left out", [])], EVIL)
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str | None]


class Parsed(HTMLParser):
    """All elements and texts of a page; an end that closes nothing, or another element, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append(Element(tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def of(self, *tags: str) -> list[dict[str, str | None]]:
        return [each.attributes for each in self.elements if each.tag in tags]


@pytest.fixture(scope="module")
def parsed() -> Parsed:
    return Parsed(PAGE.html)


def test_every_text_is_escaped(parsed):
    assert len(parsed.of("script")) == 1  # the page's own
    shown = [text for text in parsed.texts if EVIL in text]
    assert len(shown) == 24  # each place once, the table twice; in the drawing its label and its tooltip
    assert EVIL not in PAGE.html


def test_nothing_is_loaded_from_elsewhere(parsed):
    links = [
        value
        for element in parsed.elements
        for name, value in element.attributes.items()
        if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset")
    ]
    assert links
    assert not [each for each in links if not (each or "").startswith(("#", "data:"))]
    assert "://" not in PAGE.html
    assert "@import" not in PAGE.html
    (policy,) = (each["content"] for each in parsed.of("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_ids_are_there_once_and_whatever_refers_to_one_finds_it(parsed):
    ids = [each.attributes["id"] for each in parsed.elements if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    named = [each.attributes["aria-labelledby"] for each in parsed.elements if "aria-labelledby" in each.attributes]
    anchors = [each["href"][1:] for each in parsed.of("a", "use")]
    assert {*named, *anchors} <= {*ids}


def test_headings_tables_and_drawings_have_names(parsed):
    assert len(parsed.of("h1")) == 1
    assert len(parsed.of("h2")) == 2  # the answer and one section: one without blocks is left out
    for table in parsed.of("table", "svg"):
        assert table["aria-label"]
    assert {each["scope"] for each in parsed.of("th")} == {"col", "row"}
    assert [each["role"] for each in parsed.of("svg")] == ["img", "img"]
    assert parsed.elements[0] == Element("html", {"lang": "en"})
    assert len(parsed.of("tfoot")) == 2


def test_a_table_sorts_by_numbers_and_a_dash_has_none():
    cells = Parsed(replace(PAGE, sections=[PageSection("t", "t", [TABLE])]).html).of("td")
    assert [each.get("data-order") for each in cells] == ["1000.0", None, "1000.0"]


def test_drawings_follow_the_page_and_points_have_tooltips():
    svg = inline_svg(figure(), "x", "says")
    assert "<title>a here</title>" in svg
    assert "var(--ink)" in svg
    assert "#333333" not in svg
    assert "font-family" not in svg
    assert "metadata" not in svg


def test_equal_pages_are_equal_bytes():
    assert inline_svg(figure(), "x", "says") == inline_svg(figure(), "x", "says")
    again = replace(PAGE, sections=[PageSection("all", EVIL, BLOCKS)])
    assert again.html == PAGE.html


def test_a_file_that_is_no_page_is_refused_before_anything_is_computed():
    refuse_ending(None)
    refuse_ending(Path("a.HTML"))
    with pytest.raises(InfercastError, match=r"page a\.pdf: its ending is not that of a web page\. Use a\.html"):
        refuse_ending(Path("a.pdf"))


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "page.html"
    PAGE.save(path)
    assert path.read_text(encoding="utf-8") == PAGE.html
    assert [each.name for each in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(InfercastError, match=r"it cannot be written"):
        PAGE.save(path / "below-a-file.html")
