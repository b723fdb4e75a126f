"""The documentation site: built without a warning, whole without a network, complete; opened from a folder."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from html import unescape
from pathlib import Path

import pytest

import simulator
from simulator.cli import COMMANDS
from tests.support.paths import CHROMIUM, ROOT

FETCHED = re.compile(r"""(?:<(?:script|img|iframe|source)[^>]*\ssrc|<link[^>]*\shref)=["']?((?:https?:)?//[^"'\s>]+)""")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(build, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_document_is_a_page(site):
    documents = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {Path(f"{name}.html") for name in ("commands", "schemas", "changelog", "contributing")}
    pages = {path.relative_to(site) for path in site.rglob("*.html")} - {Path("404.html")}
    assert pages == documents | made


def test_nothing_is_fetched(site):
    """No page names a script, a style, a font or a picture of another host, and no style does."""
    for path in site.rglob("*.html"):
        assert FETCHED.findall(path.read_text()) == [], path.name
    for path in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//", path.read_text()) == [], path.name


def test_the_search_works_without_a_server(site):
    """The index is a script that a page may load from a folder; it knows a word of each kind of page."""
    index = (site / "search" / "search_index.js").read_text()
    found = json.loads(index[index.index("{") : index.rindex("}") + 1])
    text = {each["location"].partition("#")[0]: each["text"] for each in found["docs"]}
    assert {"tutorial.html", "howto/own-gpu.html", "background/queueing.html", "api.html"} <= set(text)
    everything = " ".join(each["text"] for each in found["docs"])
    for word in ("Pollaczek", "--request-rate", "memory_bytes_per_s", "deploy("):
        assert word in everything


def test_the_reference_has_every_command_and_every_public_name(site):
    commands, api = ((site / name).read_text() for name in ("commands.html", "api.html"))
    for name in COMMANDS:
        assert f"Usage: infercast {name}" in commands
    for name in simulator.__all__:
        assert f'id="simulator.{name}"' in api
        assert "<blockquote>" not in api  # doctests are code


def test_options_that_pages_name_are_there(site):
    """`infercast COMMAND --option` in the text of a page: the command's help has the option."""
    helps, named = defaultdict(str), 0
    for part in unescape((site / "commands.html").read_text()).split("Usage: infercast ")[1:]:
        helps[part.split()[0]] += part  # calibrate has two
    for path in (ROOT / "docs").rglob("*.md"):
        for words in re.findall(r"`infercast ([a-z-]+(?: [^`]*)?)`", path.read_text()):
            name, *others = words.split()
            assert name in COMMANDS or name.startswith("-"), f"{path.name}: infercast {words}"
            for option in [each.partition("=")[0] for each in others if each.startswith("--")]:
                named += 1
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", helps[name]), f"{path.name}: infercast {words}"
    assert named > 10


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
def test_a_browser_searches_a_folder(site):
    """Opened as a file, a page finds words of others, says nothing on its console and asks no host for anything."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install '.[dev]'")
    said, asked = [], []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "howto" / "own-gpu.html").as_uri())
        page.locator(".md-search__input").press_sequentially("Khinchine")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert "queueing.html" in found.get_attribute("href")
        browser.close()
    assert said == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
