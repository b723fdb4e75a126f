"""The README is run: every console block prints what it shows, and its Python works. `pytest --refresh` rewrites it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```console\n\$ (infercast [^\n]*)\n(.*?)```", re.DOTALL)
ACCURACY = README.parent / "docs" / "accuracy.md"
ROW = re.compile(r"^\| ([^|]+) \| (\d+ %) \| (\d+ %) \|$", re.MULTILINE)
COMMANDS = [match[1] for match in BLOCK.finditer(README.read_text())]


def run(command: str) -> str:
    arguments = [sys.executable, "-m", "simulator.cli", *shlex.split(command)[1:]]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(arguments, timeout=120, cwd=README.parent, check=False, **streams).stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, request):
    printed = run(command)
    if request.config.getoption("--refresh"):
        text = README.read_text()
        README.write_text(BLOCK.sub(lambda m: f"```console\n$ {m[1]}\n{printed}```" if m[1] == command else m[0], text))
        return
    shown = next(match[2] for match in BLOCK.finditer(README.read_text()) if match[1] == command)
    assert printed == shown


@pytest.mark.slow
def test_python():
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "one copy carries" in done.stdout


def test_accuracy(request):
    """The README's errors and aims are those of docs/accuracy.md without the row's device and model."""
    cells = [line.strip("| ").split(" | ") for line in ACCURACY.read_text().splitlines() if line.startswith("| ")]
    known = {row[0]: f"| {row[0]} | {row[3].strip('*')} | {row[1]} |" for row in cells if len(row) == 9}
    if request.config.getoption("--refresh"):
        README.write_text(ROW.sub(lambda match: known[match[1]], README.read_text()))
    shown = [match[0] for match in ROW.finditer(README.read_text())]
    assert len(shown) > 9
    assert shown == [known[ROW.match(row)[1]] for row in shown]


def test_counts():
    """The library is as large as the README says."""
    root = README.parent
    kinds = ("hardware_profiles", "model_profiles", "simulator/engines")
    counts = [len(list((root / kind).glob("*.yaml"))) for kind in kinds]
    assert "**{} devices, {} models, {} engine presets**".format(*counts) in README.read_text()
    prices = list((root / "hardware_profiles" / "prices").glob("*.yaml"))
    assert f"prices of {len(prices)} providers" in README.read_text()
