"""The house rules that a machine can check: imports go down, files and functions stay small."""

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

import simulator

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "simulator"
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 350, 50, 6


def module(path: Path) -> str:
    """The room that a file belongs to: a sub-package is one room."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("simulator."):
            found.add(node.module.split(".")[1])
        if isinstance(node, ast.ImportFrom) and node.module == "simulator":
            found |= {each.name for each in node.names}
        if isinstance(node, ast.Import):
            found |= {each.name.split(".")[1] for each in node.names if each.name.startswith("simulator.")}
    return found - {module(path)}


ARROWS = {path: imported(path) for path in FILES}


def floors() -> dict[str, int]:
    """The picture of docs/structure.md: its floor for every room that it names."""
    picture = (ROOT / "docs" / "structure.md").read_text().split("```")[1]
    found: dict[str, int] = {}
    for line in filter(None, picture.splitlines()):
        floor, _, names = line.partition("|")[0].strip().partition(" ")
        found |= dict.fromkeys(re.findall(r"[a-z_]+", names), int(floor))
    return found


def test_the_picture_names_every_room():
    assert floors().keys() == {module(path) for path in FILES} - {"__init__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path):
    if module(path) == "__init__":
        return
    known = floors()
    upward = {name for name in ARROWS[path] if known[name] > known[module(path)]}
    assert not upward, f"{path.name} imports what stands above it"


def test_no_circle():
    edges: dict[str, set[str]] = {}
    for path, names in ARROWS.items():
        edges.setdefault(module(path), set()).update(names)
    done: set[str] = set()
    while edges:
        free = {name for name, needs in edges.items() if not needs - done}
        assert free, f"a circle among {sorted(edges)}"
        done |= free
        edges = {name: needs for name, needs in edges.items() if name not in free}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sizes(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, node.name
            names = [each.arg for each in (*node.args.args, *node.args.kwonlyargs) if each.arg not in ("self", "cls")]
            command = module(path) == "cli" and node.name == "command"
            assert command or len(names) <= MAX_PARAMETERS, f"{node.name}: a seventh name asks for a noun"


def test_only_the_command_line_prints():
    for path in FILES:
        if module(path) != "cli":
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            assert not [call for call in calls if getattr(call.func, "id", "") == "print"], path.name


def test_no_public_name_is_hidden_by_its_module():
    """Importing `simulator.simulate` makes that name the module, so its function can not be public under it."""
    found = {name: getattr(simulator, name) for name in simulator.__all__}  # imports every room
    assert [name for name in found if isinstance(getattr(simulator, name), ModuleType)] == []
