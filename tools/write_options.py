"""Write simulator/cli/options.json, what shells complete, from the commands: `python -m tools.write_options`."""

import inspect
import json
from enum import EnumType
from typing import Any, get_args, get_origin

from typer.main import get_command

from simulator.cli import COMMANDS, build
from simulator.cli.answers.profile_lint import KINDS
from simulator.cli.completion import TABLE
from simulator.deployment.launch_files import KINDS as LAUNCH_FILES
from simulator.models.number_formats import FORMATS
from simulator.questions.compare_question import CLASSES
from simulator.questions.price_question import COMMITMENTS
from simulator.questions.workload_question import SPREADS
from simulator.simulation.routers import ROUTERS

LINES = (*((name,) for name in COMMANDS), ("calibrate", "--measured"))  # two commands of one name


def options_table() -> dict[str, Any]:
    """Return the parameters of every command, and the names that no folder of profiles has."""
    commands: dict[str, dict[str, Any]] = {name: {} for name in COMMANDS}
    for words in LINES:
        command = get_command(build(words)).commands[words[0]]  # type: ignore[attr-defined]
        hints = {name: each.annotation for name, each in inspect.signature(command.callback).parameters.items()}
        for each in command.params:
            if not getattr(each, "hidden", False):
                commands[words[0]].setdefault(each.name, _parameter(each, hints[each.name]))
    return {"values": _values(), "commands": commands}


def _values() -> dict[str, Any]:
    return {
        "compare devices": ["all", *CLASSES],
        "compare engines": ["auto", "all"],
        "compare number_formats": ["auto"],
        "drafts": ["ngram", "mtp", "eagle", "medusa"],
        "number_formats": list(FORMATS),
        "commitments": list(COMMITMENTS),
        "routers": list(ROUTERS),
        "clients": list(SPREADS),
        "launch_files": ["command", *LAUNCH_FILES],
        "kinds": {name: each.folder for name, each in KINDS.items()},
    }


def _parameter(parameter: Any, hint: Any) -> dict[str, Any]:
    """Return the flags, the help and the choices of a parameter; `switch` takes no value, `many` may be repeated."""
    kind = get_args(hint)[0] if get_origin(hint) is not None else hint
    found: dict[str, Any] = {"help": parameter.help or ""}
    if parameter.param_type_name == "option":
        found["flags"] = [*parameter.opts, *parameter.secondary_opts]
    if getattr(parameter, "is_flag", False):
        found["switch"] = True
    if getattr(parameter, "multiple", False) or parameter.nargs == -1:
        found["many"] = True
    if isinstance(kind, EnumType):
        found["choices"] = [each.value for each in list[Any](kind)]
    return found


def main() -> None:
    """Write the table, one parameter a line."""
    found = options_table()
    commands = [
        f'  "{name}": {{\n'
        + ",\n".join(f'   "{each}": {json.dumps(stated, ensure_ascii=False)}' for each, stated in parameters.items())
        + "\n  }"
        for name, parameters in found["commands"].items()
    ]
    values = json.dumps(found["values"], ensure_ascii=False)
    TABLE.write_text(
        f'{{\n "values": {values},\n "commands": {{\n' + ",\n".join(commands) + "\n }\n}\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
