"""What documents name exists: files, functions, links, tests. The picture of the folders is drawn from their table."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.draw_folders import PICTURE, boxes, reduced, svg, table

PACKAGE = ROOT / "simulator"
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
STRUCTURE = ROOT / "docs" / "structure.md"
LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\n]+)`")


@cache
def defined(path: Path) -> frozenset[str]:
    """The functions, classes, methods (`Class.method`) and constants that a file defines."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            found |= methods | {f"{node.name}.{name}" for name in methods}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return frozenset(found)


def test_the_picture_is_drawn_from_the_table():
    """`python -m tools.draw_folders` draws it."""
    assert svg() == PICTURE.read_text()


def test_a_folder_stands_on_all_that_it_imports():
    """Every arrow of the table points down in the picture, and follows from those that are drawn."""
    arrows, _ = table()
    drawn, places = reduced(arrows), boxes(arrows)

    def reached(name: str) -> set[str]:
        return drawn[name].union(*(reached(each) for each in drawn[name]))

    for name, below in arrows.items():
        assert all(places[name].top < places[each].top for each in below), name
        assert reached(name) >= below


def test_where_things_live():
    """The reader's answers: each file is there, and defines what the table says."""
    text = STRUCTURE.read_text().partition("### Where does it live?")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 7
    for what, _, files, names in rows:
        found = frozenset().union(*(defined(PACKAGE / file) for file in QUOTED.findall(files)))
        assert set(QUOTED.findall(names)) <= found, what


def test_what_the_structure_names_is_there():
    """Files by their path below the package (or the repository), names as something in the package defines them."""
    everything = frozenset().union(*(defined(path) for path in PACKAGE.rglob("*.py")))
    text = STRUCTURE.read_text()
    for quoted in QUOTED.findall(text.replace(text.split("```")[1], "")):
        if re.fullmatch(r"[\w/.-]+\.(py|yaml|md)|[\w/]+/", quoted):
            assert any(list(place.glob(each)) for place in (ROOT, PACKAGE) for each in (quoted, f"*/{quoted}")), quoted
        elif name := re.fullmatch(r"([A-Z]\w*[a-z]\w*(?:\.\w+)?|[A-Z]{5,}|[\w.]+(?=\())(\(.*\))?", quoted):
            assert name[1] in everything | {"NUMBA_DISABLE_JIT", "INFERCAST_PROFILES"}, quoted


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.stem != "CHANGELOG"], ids=lambda path: path.stem)
def test_paths_are_there(path):
    """What stands in backticks and begins with a folder of the repository."""
    for folder in ("simulator", "tests", "hardware_profiles", "model_profiles"):
        for quoted in re.findall(rf"`({folder}/[\w/.*-]+)`", path.read_text()):
            assert list(ROOT.glob(quoted)), quoted


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    for target in LINK.findall(path.read_text()):
        if not target.startswith(("http://", "https://")):
            file, _, section = target.partition("#")
            aim = path.parent / file if file else path
            assert aim.exists(), target
            assert aim.resolve().is_relative_to(ROOT), f"{target} lies outside of the repository"
            assert not section or section in sections(aim), target


def sections(path: Path) -> set[str]:
    """The anchors that a page's headings make."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_contributing_names_tests_that_exist():
    names = [name for name in QUOTED.findall((ROOT / "CONTRIBUTING.md").read_text()) if name.startswith("test_")]
    assert len(names) > 9
    for name in names:
        assert list((ROOT / "tests").rglob(name)), name


def test_the_changelog_keeps_its_form():
    """Unreleased first, then the versions that were cut, the newest of which is the project's."""
    text = (ROOT / "CHANGELOG.md").read_text()
    first, cut, *_ = re.findall(r"^## (.*)$", text, re.MULTILINE)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert first == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", cut)
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
