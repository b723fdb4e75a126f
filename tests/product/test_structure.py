"""The house rules that a machine can check: imports go down, files and functions stay small, tests stand alone."""

import ast
import gzip
import inspect
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import simulator
from simulator.roofline.step_model import StepTable
from simulator.scheduler.jit import COMPILED
from tests.support.for_each import for_each
from tests.support.paths import ROOT

PACKAGE = ROOT / "simulator"
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 350, 50, 6


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def named_by(path: Path) -> set[str]:
    """The dotted names of all that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def folder(path: Path, of: Path = PACKAGE) -> str:
    """The folder of `of` that a file belongs to; `root` for a file that lies in none."""
    parts = path.relative_to(of).parts
    return parts[0] if len(parts) > 1 else "root"


MODULES = {dotted(path): path for path in FILES}


def imported(path: Path) -> set[Path]:
    """The files of the package that a file imports."""
    return {MODULES[name] for name in named_by(path) & MODULES.keys()} - {path}


@cache
def arrows() -> dict[Path, set[Path]]:
    return {path: imported(path) for path in FILES}


def may_import(of: Path = PACKAGE) -> dict[str, set[str]]:
    """A table of docs/structure.md, of the package or of the command line: each folder and those that it may import."""
    picture = (ROOT / "docs" / "structure.md").read_text().split("```")[1 if of == PACKAGE else 3]
    rows = (line.partition("|")[0].partition("->") for line in picture.splitlines() if "->" in line)
    return {name.strip(): set(re.findall(r"[a-z]+", below)) for name, _, below in rows}


def arrows_of_folders(of: Path = PACKAGE) -> dict[str, set[str]]:
    inside = {path: below for path, below in arrows().items() if of in path.parents}
    found: dict[str, set[str]] = {folder(path, of): set() for path in inside}
    for path, below in inside.items():
        if path != PACKAGE / "__init__.py":  # the public API names everything, and imports it on first use
            others = {each for each in below & inside.keys() if each != PACKAGE / "__init__.py"}
            found[folder(path, of)] |= {folder(each, of) for each in others} - {folder(path, of)}
    return found


@pytest.mark.parametrize("of", [PACKAGE, PACKAGE / "cli"], ids=["package", "command line"])
def test_the_table_of_folders_is_the_code(of):
    assert arrows_of_folders(of) == may_import(of)


def order(edges: dict[Any, set[Any]]) -> None:
    """Take away whatever imports nothing that is left; what stays is a circle."""
    while edges:
        free = {name for name, needs in edges.items() if not needs & edges.keys()}
        assert free, f"a circle among {sorted(map(str, edges))}"
        edges = {name: needs for name, needs in edges.items() if name not in free}


@pytest.mark.parametrize("of", [PACKAGE, PACKAGE / "cli"], ids=["package", "command line"])
def test_folders_have_no_circle(of):
    order(may_import(of))


def test_files_have_no_circle():
    order(arrows())


def test_the_scheduler_imports_nothing():
    assert may_import()["scheduler"] == set()


@for_each("path", FILES)
def test_sizes(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, node.name
            names = [each.arg for each in (*node.args.args, *node.args.kwonlyargs) if each.arg not in ("self", "cls")]
            command = folder(path) == "cli" and node.name == "command"
            assert command or len(names) <= MAX_PARAMETERS, f"{node.name}: a seventh name asks for a noun"


def test_only_the_command_line_prints():
    for path in FILES:
        if folder(path) != "cli":
            calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
            assert not [call for call in calls if getattr(call.func, "id", "") == "print"], path.name


def test_no_public_name_is_a_module():
    """`from simulator import simulate` is a function: no file at the root of the package has a public name."""
    found = {name: getattr(simulator, name) for name in simulator.__all__}
    assert [name for name, value in found.items() if isinstance(value, ModuleType)] == []


def test_whatever_is_compiled_keys_the_cache_of_machine_code():
    """A compiled function that is not hashed could be edited while stale machine code runs; so could its types."""
    taken = {Path(inspect.getfile(each)) for each in (StepTable, type(StepTable._field_defaults["prompts"]))}
    compiled = {path for path in FILES if re.search(r"^@(compiled|inlined)", path.read_text(), re.MULTILINE)}
    assert compiled
    assert compiled | taken <= {path for pattern in COMPILED for path in PACKAGE.glob(pattern)}


TESTS = sorted((ROOT / "tests").rglob("*.py"))


def test_tests_do_not_import_each_other():
    """What several tests use lies in tests/support/, the slow simulators that they compare with in tests/oracle/."""
    for path in TESTS:
        of_tests = re.findall(r"^\s*(?:from|import) tests\.(\w+)", path.read_text(), re.MULTILINE)
        assert {*of_tests} <= {"support", "oracle"}, path.relative_to(ROOT)


def test_oracles_share_no_code_with_what_they_judge():
    for path in TESTS:
        if path.parent.name == "oracle":
            assert not [name for name in named_by(path) if name.startswith("simulator")], path.name


def test_every_class_has_a_name_of_its_own():
    """Two classes of one name in the package are two meanings of one word."""
    names = Counter(node.name for path in FILES for node in nodes(path) if isinstance(node, ast.ClassDef))
    assert [name for name, many in names.items() if many > 1] == []


# A path upwards, in a home folder or in another place of one machine. What is cached on the user's machine is not ours.
OUTSIDE = re.compile(r"(?<![\w.])(?:\.\./|/(?:work|home|root|Users|mnt|media)/|~[/](?!\.cache/))[\w./-]*")
HOSTILE = {"evil", "up"}  # names that tests offer, upwards, to be refused


def text_of(path: Path) -> str:
    """The text of a file, unpacked if need be; none of what is no text."""
    try:
        return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    except UnicodeDecodeError:
        return ""


def is_outside(name: str, path: Path) -> bool:
    """Whether a name in a file is not of something in the repository."""
    if not name.startswith("."):
        return True
    target = (path.parent / name).resolve()
    return not (target.is_relative_to(ROOT.resolve()) and target.exists()) and target.name not in HOSTILE


def test_no_line_names_a_path_outside_of_the_repository():
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in tracked.split("\0") if name]
    assert len(paths) > 500
    named = {str(path.relative_to(ROOT)): OUTSIDE.findall(text_of(path)) for path in paths if path.is_file()}
    found = {file: [name for name in names if is_outside(name, ROOT / file)] for file, names in named.items()}
    assert {file: names for file, names in found.items() if names} == {}


READS = re.compile(r"json\.loads?\(|\.read_(?:text|bytes)\(|gzip\.|yaml\.(?:safe_)?load\(|(?<!os\.)\bopen\(")
WRITES = re.compile(r"\.write_(?:text|bytes)\(|savefig\((?!buffer)|open\([^)]*[\"']w")
OF_THE_SYSTEM = {"cores.py", "device.py", "limits.py", "doctor.py"}  # /proc and /sys
OF_OUR_OWN = {"jit.py", "timing.py", "profile_lint.py"}  # the package's text, a child's output, first lines of schemas
OF_OUR_OWN |= {"program.py", "page.py", "completion.py"}  # what is digested, a page's parts, the table of options
GATE = {"files.py", "gguf_file.py", "gguf_header.py", "checkpoint.py"}  # weights have formats of their own


def test_files_come_in_and_go_out_by_one_gate():
    """Readers take files from simulator/files.py, which bounds them, and writers write by it, whole or not at all."""
    reading = {path.name for path in FILES if READS.search(path.read_text())}
    assert reading <= GATE | OF_THE_SYSTEM | OF_OUR_OWN
    writing = {path.name for path in FILES if WRITES.search(path.read_text())}
    assert writing <= {"files.py", "gguf_file.py"}
