"""The README is run: every console block prints what it shows, and its Python works. `pytest --refresh` rewrites it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"```console\n\$ (infercast [^\n]*)\n(.*?)```", re.DOTALL)
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
