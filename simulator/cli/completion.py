"""Shell completion: options from a table, names from folders. No command is imported, so that TAB answers at once.

`python -m tools.write_options` writes the table, options.json, from the commands themselves; a test holds it to them.
"""

import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from simulator.profile_folders import names

VARIABLE = "_INFERCAST_COMPLETE"  # typer's: what the shell asks for, as complete_bash
TABLE = Path(__file__).with_name("options.json")
WHAT = {  # completes the value of an option, by its first flag, or an argument, by its name
    "--model": "models",
    "--hardware": "devices",
    "--engine": "engines",
    "--like": "devices",
    "--host": "devices",
    "--speculative-model": "drafts",
    "--draft": "drafts",
    "--workload": "workloads",
    "--site": "sites",
    "--provider": "providers",
    "--weight-dtype": "number_formats",
    "--cache-dtype": "number_formats",
    "--price": "commitments",
    "--router": "routers",
    "--client": "clients",
    "--as": "launch_files",
    "kind_name": "kinds",
    "name": "profiles",
}
FOLDERS = {
    "models": "model_profiles",
    "drafts": "model_profiles",
    "devices": "hardware_profiles",
    "engines": "engines",
    "workloads": "workloads",
    "sites": "hardware_profiles/sites",
    "providers": "hardware_profiles/prices",
}


def asked_for() -> list[str] | None:
    """Return the words of the command line that a shell wants completed; None where no shell asks."""
    if VARIABLE not in os.environ:
        return None
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


@cache
def table() -> dict[str, Any]:
    """Return options.json: `commands`, the parameters of each by name, and `values`, names that no folder has."""
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def stand_in(command: str) -> Callable[..., None]:
    """Return a function with the options of a command, which does nothing: enough for a shell to complete them."""

    def call(**_: Any) -> None:
        """Do nothing."""

    parameters = [_parameter(name, each) for name, each in table()["commands"][command].items()]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _parameter(name: str, stated: dict[str, Any]) -> inspect.Parameter:
    flags = stated.get("flags", [])
    kind: Any = bool if stated.get("switch") else list[str] if stated.get("many") else str
    info = Option if flags else Argument
    completed = {"autocompletion": _completer(flags, name, stated.get("choices", []))} if kind is not bool else {}
    annotation = Annotated[kind, info(*flags, help=stated["help"], **completed)]
    default = False if kind is bool else [] if stated.get("many") else ""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _completer(flags: list[str], name: str, choices: list[str]) -> Callable[[Context, str], list[str]]:
    what = WHAT.get(flags[0] if flags else name, "")

    def complete(ctx: Context, incomplete: str) -> list[str]:
        if own := ctx.params.get("profiles") or ctx.params.get("own"):
            os.environ["INFERCAST_PROFILES"] = own
        return choices or list(last_of_list(_known(what, ctx), incomplete))

    return complete


def last_of_list(known: Iterable[str], incomplete: str) -> Iterator[str]:
    """Yield a comma list with its last item completed, by names that it does not hold yet.

    >>> list(last_of_list(["l4", "l40s", "h100-sxm"], "l4,l"))
    ['l4,l40s']
    """
    before, comma, last = incomplete.rpartition(",")
    held = before.split(",")
    for each in known:
        if each.startswith(last) and each not in held:
            yield f"{before}{comma}{each}"


def _known(what: str, ctx: Context) -> list[str]:
    """Return all names of a kind, with the words that only this command takes; none of an unknown kind."""
    values = table()["values"]
    folder = values["kinds"].get(ctx.params.get("kind_name")) if what == "profiles" else FOLDERS.get(what)
    found = names(folder) if folder else []
    if what == "engines":
        found = [*dict.fromkeys(each.rpartition("-")[0] or each for each in found), *found]
    return [*found, *values.get(what, ()), *values.get(f"{ctx.info_name} {what}", ())]
