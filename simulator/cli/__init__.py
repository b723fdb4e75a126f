"""The command line: flags in, text, csv or json out. Only the command that is asked for is imported."""

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

import simulator
from simulator.cli.complaint import complain
from simulator.cli.completion import asked_for, stand_in
from simulator.cli.help import INTERRUPTED, Commands, GroupedCommand
from simulator.errors import InfercastError

GARBAGE = 100_000  # objects between two looks for cycles: Python's own 700 cost a tenth of a short command
COMMANDS = {
    "estimate": "Predict the latency and throughput of one batch alone, and say what binds.",
    "memory": "Show where the memory goes, how many blocks, tokens and sequences the cache holds.",
    "simulate": "Simulate requests on one replica of a model, step by step, with the engine's own scheduling rules.",
    "fleet": "Simulate replicas behind a router: autoscaling, failures, prefill and decode pools, clients that wait.",
    "compare": "Search devices, layouts, formats and engines for the cheapest that keeps the SLO at a load.",
    "cost": "Compare what deployments cost per million tokens at a load, and at the highest load within the SLO.",
    "report": "Write one web page to hand on: what to rent of the deployments that are asked about, and why.",
    "plan": "Plan a fleet by the month as the load grows: always on, by the hour or autoscaled; the cheapest, checked.",
    "training": "Say what training a model costs, and after how many served tokens inference has cost as much.",
    "claims": "Compute what introductory texts teach about inference, and say what holds.",
    "tune": "Search the settings that serve most within the SLO, and say by how much they beat the default.",
    "launch": "Print what starts a deployment: its command, or a file for Docker Compose, Kubernetes, llm-d or Dynamo.",
    "validate": "Predict every measurement of a file by what its load calls for, and show the errors.",
    "reference": "Generate text with the reference engine: greedy, paged cache, continuous batching.",
    "calibrate": (
        "Measure ceilings, single ops and host overheads of this machine with the engine's kernels; write profiles."
    ),
    "check": "Calibrate, predict steps and a Poisson load, then run both on the reference engine and compare.",
    "check-log": "Predict the load that another engine has logged, from its own small loads, and compare.",
    "profiles": "List, show and check the profiles of devices, models, engines, prices, sites and workloads.",
    "doctor": "Check this installation: versions, caches, folders of profiles, and which extras are missing.",
    "import-model": "Write a model profile from a Hugging Face config.json.",
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """Return the typer application for a command line: every command by name, options only of the one it calls.

    Importing one command keeps start-up fast; `arguments` are the words after `infercast`.
    """
    app = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)
    app.callback()(_group)
    completed = asked_for()  # words that a shell wants completed
    words = arguments if completed is None else completed
    asked = next((each for each in words if not each.startswith("-")), "")
    for name, summary in COMMANDS.items():
        called = _not_asked
        if name == asked:
            called = _command(_module(name, arguments)) if completed is None else stand_in(name)
        app.command(name, cls=GroupedCommand, short_help=summary)(called)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"infercast {simulator.__version__}")
        raise typer.Exit


def _group(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Forecast the speed, capacity and cost of LLM inference before renting a GPU."""


def _not_asked() -> None:
    """Stand in for a command that this run does not call, so that `infercast --help` lists it."""


def _module(name: str, arguments: Sequence[str]) -> str:
    """Return the module of a command; `calibrate --measured` has its own, without the reference engine and torch."""
    measured = any(each.partition("=")[0] == "--measured" for each in arguments)
    return "calibrate_measured" if name == "calibrate" and measured else name


def _help_first(words: list[str]) -> list[str]:
    """Return the words of a command line; of one that asks for help anywhere, the command and that alone.

    >>> _help_first(["calibrate", "--measured", "--help"])
    ['calibrate', '--help']
    """
    if "--help" not in words:
        return words
    return [*dict.fromkeys([words[0], "--help"])]


def _command(name: str) -> Callable[..., None]:
    command: Callable[..., None] = import_module(f"simulator.cli.commands.{name.replace('-', '_')}").command
    return command


def main() -> None:
    """Run the command line; an InfercastError is a sentence on stderr and exit code 2, without a traceback."""
    gc.set_threshold(GARBAGE)
    try:
        words = sys.argv[1:]
        build(words)(_help_first(words), prog_name="infercast")
    except InfercastError as error:
        complain(f"error: {error}")
        sys.exit(2)
    except MemoryError as error:  # what no estimate foresaw
        given = f"memory: the answer takes more than is free here ({error or 'no more'})"
        complain(f"error: {given}. Ask for fewer or shorter requests.")
        sys.exit(2)
    except KeyboardInterrupt:  # while a command is imported; later typer and the commands themselves take it
        sys.exit(INTERRUPTED)
