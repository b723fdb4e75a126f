"""`--report` and `infercast report` as users call them: the page says what the screen says, and whence."""

import re
from html import unescape
from pathlib import Path

import pytest

from simulator.cli.commands import simulate
from tests.support.commands import infercast, printed, refused

ASKED = ["--model", "llama-3.2-1b", "--hardware", "l4", "--isl", "256", "--osl", "64", "--rate", "4"]
LOAD = ["--num-prompts", "60", "--slo", "ttft:500ms,tpot:50ms"]


def words(html: str) -> str:
    """The text of a page, with one space between words."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


@pytest.fixture(scope="module")
def screen_and_page(tmp_path_factory) -> tuple[str, str]:
    path = tmp_path_factory.mktemp("page") / "load.html"
    screen = printed("simulate", *ASKED, *LOAD, "--report", str(path))
    return screen, path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_has_each_figure_of_the_screen(screen_and_page):
    screen, page = screen_and_page
    shown = words(page)
    _, (title, _, _, *rows) = (part.splitlines() for part in screen.split("\n\n")[:2])
    assert title in shown
    assert len(rows) == 3
    for row in rows:
        for figure in row.split():
            assert figure in shown


@pytest.mark.slow
def test_the_page_says_what_it_rests_on_and_how_to_repeat_it(screen_and_page):
    _, page = screen_and_page
    shown = words(page)
    for told in ("Guesses", "graph_bytes", "Fitted multipliers", "prompt_launch_s", "INFERCAST_DATE=2026-11-23"):
        assert told in shown
    assert f"infercast simulate {' '.join(ASKED)}" in shown
    for heading in ("In figures", "Where a request's time goes", "Where a step's time goes", "Where the memory goes"):
        assert f"{heading}</h2>" in unescape(page)


def test_the_answer_is_what_the_screen_begins_with(screen_and_page):
    screen, page = screen_and_page
    answer = " ".join(screen.split("\n\n")[0].split())
    assert answer.startswith("Keeps the SLO")
    assert f"Answer {answer} " in words(page)


@pytest.mark.slow
def test_the_same_command_writes_the_same_bytes(tmp_path):
    command = ["fleet", *ASKED, *LOAD, "--replicas", "2", "--report", "fleet.html"]
    pages = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        assert infercast(*command, folder=folder).returncode == 0
        pages.append((folder / "fleet.html").read_bytes())
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_the_page_of_a_sweep_looks_into_the_run_of_its_verdict_and_simulates_no_other_again(tmp_path, monkeypatch):
    again = []
    simulated = simulate._simulated
    monkeypatch.setattr(simulate, "_simulated", lambda asked: again.append(asked) or simulated(asked))
    page = tmp_path / "page.html"
    screen = printed("simulate", *ASKED[:-1], "2,4,2000", *LOAD, "--report", str(page))
    assert "Most tokens: rate 4/s," in screen
    assert [each.users.request_rate for each in again] == ["4"]
    assert "3 simulations, of which one is looked into" in words(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", ["simulate", "plan", "compare", "fleet"])
def test_a_file_of_another_kind_is_refused_first(command):
    told = refused(command, *ASKED, *LOAD, "--report", "page.pdf")
    assert told == "infercast: error: --report page.pdf: its ending is not that of a web page. Use page.html.\n"


def test_report_refuses_what_no_deployment_keeps(tmp_path):
    page = tmp_path / "page.html"
    told = refused("report", *ASKED, "--num-prompts", "60", "--slo", "tpot:1us", "--out", str(page))
    assert "cannot keep the SLO at any load" in told
    assert not Path(page).exists()
