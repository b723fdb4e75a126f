"""The command line, called as a user calls it."""

import contextlib
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from simulator.cli import main, progress
from tests.support.paths import ROOT

WIDE = "100000"  # columns


def infercast(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, in a folder (the checkout): a new one takes a second to import.

    Lines are as long as they need, so that tests find sentences in them.
    """
    out, err, words, before, code = io.StringIO(), io.StringIO(), sys.argv, dict(os.environ), 0
    os.environ.pop("INFERCAST_PROFILES", None)
    os.environ.update({"COLUMNS": WIDE, **environment})
    sys.argv = ["infercast", *arguments]
    try:
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with contextlib.chdir(folder), streams[0], streams[1], patch.object(progress, "FIRST_LINE_S", math.inf):
            main()
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        sys.argv = words
        os.environ.clear()
        os.environ.update(before)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


SEVERAL = """
import contextlib, io, json, sys
{before}
from simulator.cli import main
found = []
for words in json.loads(sys.argv[1]):
    out, err, code, sys.argv = io.StringIO(), io.StringIO(), 0, ["infercast", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
    found.append([code, out.getvalue(), err.getvalue(), list(sys.modules)])
print(json.dumps(found))
"""


class Done(NamedTuple):
    """What came of a command, and what is imported after it."""

    returncode: int
    stdout: str
    stderr: str
    modules: list[str]


def in_a_process_of_their_own(*commands: Sequence[str], before: str = "", folder: Path = ROOT) -> list[Done]:
    """Run commands one after the other in one new process, in a folder: to start it takes longer than most of them."""
    program = [sys.executable, "-c", SEVERAL.format(before=before), json.dumps(commands)]
    paths = {**os.environ, "COLUMNS": WIDE, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, cwd=folder, env=paths, capture_output=True, text=True, check=True)
    return [Done(*each) for each in json.loads(done.stdout)]


def printed(*arguments: str, **environment: str) -> str:
    done = infercast(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def answer(*arguments: str) -> dict:
    return json.loads(printed(*arguments, "--format", "json"))


def refused(*arguments: str, **environment: str) -> str:
    """The one line that a mistake comes to."""
    done = infercast(*arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("infercast: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr
