"""Shell completion, asked for as shells do: by environment variables, in a process of its own."""

import json
import os
import subprocess
import sys
from functools import cache

from simulator.cli import COMMANDS
from simulator.cli.completion import TABLE, WHAT, last_of_list
from tests.support.commands import infercast
from tests.support.for_each import for_each
from tests.support.paths import ROOT
from tools.write_options import options_table

TABLE_OF_COMMANDS = cache(options_table)
SHELLS = ("bash", "zsh", "fish")
IMPORTED = "import sys; from simulator.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"


def question(shell: str, line: str) -> dict[str, str]:
    """The environment by which a shell asks what completes the last word of a command line."""
    words = line.split(" ")
    return {
        "_INFERCAST_COMPLETE": f"complete_{shell}",
        **({"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)} if shell == "bash" else {}),
        **({"_TYPER_COMPLETE_ARGS": line} if shell != "bash" else {}),
        **({"_TYPER_COMPLETE_FISH_ACTION": "get-args"} if shell == "fish" else {}),
    }


def completed(line: str) -> list[str]:
    return infercast(**question("bash", line)).stdout.split()


@for_each("shell", SHELLS)
def test_the_last_item_of_a_list_is_completed_and_nothing_heavy_imported(shell):
    asks = question(shell, "infercast cost --hardware l4,h100-s")
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **asks}, capture_output=True, text=True, check=True)
    assert "l4,h100-sxm" in done.stdout
    assert "h100-pcie" not in done.stdout
    heavy = {"numba", "numpy", "pandas", "matplotlib", "scipy", "yaml"}
    assert not set(done.stderr.split()) & heavy
    assert "simulator.cli.commands.cost" not in done.stderr.split()


def test_what_each_place_takes():
    """Commands, options, and the values of options and arguments."""
    for line, first in (
        ("infercast si", "simulate"),
        ("infercast plan --rate-c", "--rate-curve"),
        ("infercast estimate --model qwen3-3", "qwen3-30b-a3b"),
        ("infercast compare --hardware cl", "cloud"),
        ("infercast profiles mod", "models"),
        ("infercast profiles models llama-3.1-7", "llama-3.1-70b"),
        ("infercast cost --format ", "text"),
    ):
        assert completed(line)[0] == first, line


def test_own_profiles_are_names_too(tmp_path):
    (tmp_path / "hardware_profiles").mkdir()
    (tmp_path / "hardware_profiles" / "my-own.yaml").touch()
    assert completed(f"infercast cost --profiles {tmp_path} --hardware my") == ["my-own"]


def test_an_item_is_offered_once():
    assert list(last_of_list(["a1", "a2"], "a1,a")) == ["a1,a2"]


def test_the_table_is_the_commands():
    """After a change of options: `python -m tools.write_options`."""
    assert json.loads(TABLE.read_text(encoding="utf-8")) == TABLE_OF_COMMANDS()


def test_whatever_is_completed_is_an_option_or_argument():
    commands = [each for name in COMMANDS for each in TABLE_OF_COMMANDS()["commands"][name].items()]
    known = {flag for name, stated in commands for flag in (name, *stated.get("flags", []))}
    assert known >= WHAT.keys()
