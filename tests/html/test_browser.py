"""Pages in headless Chromium: no console error, no request, sorted by click and by keyboard, on a phone, on paper."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import infercast
from tests.support.paths import CHROMIUM

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install '.[dev]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
MOST_BYTES = 2_000_000
ALONE = ["--model", "llama-3.2-1b", "--hardware", "l4"]
DEPLOYED = ["--model", "llama-3.2-1b", "--hardware", "l4,h100-sxm"]
LOAD = ["--isl", "256", "--osl", "64", "--num-prompts", "200", "--slo", "ttft:500ms,tpot:50ms"]
ONE_TOKEN = ["--isl", "256", "--osl", "1", "--num-prompts", "50", "--rate", "0.5", "--slo", "ttft:5s"]
RESULTS = "tests/fixtures/bench/invented_vllm_serve.json"
COMMANDS = {
    "report": ["report", *DEPLOYED, *LOAD, "--rate", "4", "--vs-api", "--out"],
    "compare": ["compare", *DEPLOYED, *LOAD, "--rate", "40", "--report"],
    "sweep": ["simulate", *DEPLOYED, *LOAD, "--rate", "1,4,16,200", "--report"],
    "overloaded": ["simulate", *ALONE, *LOAD, "--rate", "500", "--report"],
    "no price, one token": ["report", "--model", "llama-3.2-1b", "--hardware", "m2-ultra", *ONE_TOKEN, "--out"],
    "plan": ["plan", *ALONE, *LOAD, "--rate", "40", "--rate-curve", "sine:0.8", "--months", "3", "--report"],
    "fleet": ["fleet", *ALONE, *LOAD, "--rate", "8", "--replicas", "2", "--report"],
    "validate": ["validate", RESULTS, "--hardware", "l40s", "--tp", "1", "--report"],
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{place}.html" for place, name in enumerate(COMMANDS)}
    for name, command in COMMANDS.items():
        done = infercast(*command, str(found[name]))
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


class Opened:
    """A page in the browser, with what it said on the console and what it asked for."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_renders_says_nothing_asks_for_nothing_is_small_and_fits_a_phone(name, pages, browser):
    """On a phone tables scroll, not the page."""
    assert pages[name].stat().st_size < MOST_BYTES
    with Opened(browser, pages[name]) as opened:
        page = opened.page
        assert page.locator("h1").inner_text()
        assert page.locator(".answer").inner_text().endswith(".")
        drawings = page.locator("svg")
        assert drawings.count() > 0
        for each in drawings.all():
            assert each.bounding_box()["height"] > 50
        page.wait_for_load_state("networkidle")
        assert opened.said == []
        assert [url for url in opened.requests if url.split(":")[0] not in ("file", "data")] == []
        assert sum(url.startswith("file:") for url in opened.requests) == 1
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [390, 390]
        cut = "[...document.querySelectorAll('.scroll')].some((each) => each.scrollWidth > each.clientWidth)"
        assert page.evaluate(cut)


def column(table: Any, place: int) -> list[str]:
    return [row.locator("th, td").nth(place).inner_text() for row in table.locator("tbody tr").all()]


def dollars(table: Any) -> list[float]:
    return [float(text.replace(",", "")) for text in column(table, 2)]


def test_tables_sort_by_click_and_by_keyboard(pages, browser):
    with Opened(browser, pages["report"]) as opened:
        table = opened.page.get_by_role("table", name="Answers, the cheapest first")
        head = table.locator("thead th").nth(2)
        assert (head.inner_text(), head.get_attribute("aria-sort")) == ("$/h", "none")
        cheapest_first = dollars(table)
        assert cheapest_first == sorted(cheapest_first)
        head.get_by_role("button").click()
        assert (head.get_attribute("aria-sort"), dollars(table)) == ("ascending", cheapest_first)
        head.get_by_role("button").click()
        assert (head.get_attribute("aria-sort"), dollars(table)) == ("descending", cheapest_first[::-1])
        first = table.locator("thead th").nth(0)
        first.get_by_role("button").focus()
        opened.page.keyboard.press("Enter")
        assert column(table, 0) == sorted(column(table, 0))
        opened.page.keyboard.press("Space")
        assert column(table, 0) == sorted(column(table, 0), reverse=True)
        assert (first.get_attribute("aria-sort"), head.get_attribute("aria-sort")) == ("descending", "none")


def test_rows_without_a_figure_stay_last_and_sums_at_the_foot(pages, browser):
    with Opened(browser, pages["sweep"]) as opened:
        opened.page.locator("details").evaluate_all("(all) => all.forEach((each) => { each.open = true; })")
        table = opened.page.locator("table:has(tfoot)").first
        total = table.locator("tfoot tr").inner_text()
        before = column(table, 1)
        for _ in range(2):
            table.locator("thead button").nth(1).click()
        assert table.locator("tfoot tr").inner_text() == total
        assert sorted(column(table, 1)) == sorted(before)
        swept = opened.page.get_by_role("table", name="Under load")
        place = [head.inner_text() for head in swept.locator("thead th").all()].index("TTFT p95 ms")
        for _ in range(2):
            swept.locator("thead button").nth(place).click()
            assert column(swept, place)[-1] == "-"


def test_without_scripts_everything_is_there(pages, browser):
    with Opened(browser, pages["report"], java_script_enabled=False) as opened:
        assert opened.page.locator("thead button").count() == 0
        assert opened.page.get_by_role("table", name="Answers, the cheapest first").is_visible()


def test_dark_where_the_reader_asks_for_it_and_light_on_paper(pages, browser, tmp_path):
    paper = "getComputedStyle(document.body).backgroundColor"
    with Opened(browser, pages["report"], color_scheme="dark") as opened:
        assert opened.page.evaluate(paper) == "rgb(20, 24, 29)"
        opened.page.emulate_media(media="print", color_scheme="dark")
        assert opened.page.evaluate(paper) == "rgb(255, 255, 255)"
        assert not opened.page.locator("nav").is_visible()
        opened.page.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
    assert b"/MediaBox [0 0 594.95" in (tmp_path / "page.pdf").read_bytes()  # A4


def test_who_uses_no_mouse_reaches_answer_tables_and_folded_parts(pages, browser):
    with Opened(browser, pages["report"]) as opened:
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.className") == "skip"
        reached = {
            (opened.page.keyboard.press("Tab"), opened.page.evaluate("document.activeElement.tagName"))[1]
            for _ in range(60)
        }
        assert {"A", "BUTTON", "DIV", "PRE"} <= reached
        names = [each.get_attribute("aria-label") for each in opened.page.get_by_role("img").all()]
        assert all(names)
        assert len(names) == len(set(names))


def test_the_report_has_all_that_a_planner_asks_for(pages, browser):
    with Opened(browser, pages["report"]) as opened:
        headings = [each.inner_text() for each in opened.page.locator("h2").all()[1:]]
    assert headings == [
        "In figures",
        "The options",
        "How sure it is, and what moves it",
        "Against hosted APIs",
        "Latency against load, one replica of l4",
        "Where a request's time goes",
        "Where a step's time goes",
        "Where the memory goes",
        "Prices",
        "Every figure",
        "What this rests on",
        "How to repeat it",
    ]


def test_what_is_pointed_at_tells_its_figure(pages, browser):
    """The topmost thing in the middle of a point or bar is its tooltip, or that of another over it."""
    hits = """[...document.querySelectorAll(".tip")].map((tip) => {
      tip.scrollIntoView({ block: "center", behavior: "instant" });
      const at = tip.getBoundingClientRect();
      const top = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);
      return [tip.querySelector("title").textContent, Math.min(at.width, at.height), Boolean(top?.closest(".tip"))];
    })"""
    with Opened(browser, pages["report"], viewport={"width": 1280, "height": 900}) as opened:
        found = opened.page.evaluate(hits)
    assert len(found) > 40
    assert [told for told, width, is_hit in found if width > 2 and not is_hit] == []
