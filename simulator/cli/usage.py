"""What was typed and is no command line of ours, as an error in three parts: options, values and commands."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from typer import BadParameter

from simulator.cli.completion import table
from simulator.cli.other_tools_options import COMMANDS, FROM_SAME, SENTENCES
from simulator.errors import InfercastError, nearest
from simulator.questions.words import example

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "ollama", "tgi")  # whose settings users know by name
TIMES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}  # by a letter after a number
LIKE = 0.7  # of difflib: options share many letters by chance
UsageError: type[Exception] = BadParameter.__bases__[0]  # typer has no name for it


def in_three_parts(error: Any, command: Any, words: Sequence[str]) -> InfercastError | None:
    """Return typer's error about a command line as ours; None for what is no mistake, as a call for help.

    `words`: those after the name of the command.
    """
    kind, name = type(error).__name__, f"infercast {command.name or ''}".strip()
    flags = [flag for each in command.params for flag in (*each.opts, *each.secondary_opts) if flag.startswith("-")]
    if kind == "NoSuchOption":
        return _unknown(error.option_name, name, flags, words)
    if kind == "MissingParameter":
        return _missing(error.param, name)
    if kind == "BadOptionUsage":
        takes_none = "does not take" in error.message
        because = "it is a switch and takes no value" if takes_none else "its value is missing"
        remedy = f"Write {error.option_name} alone" if takes_none else f"`{name} --help` says what it takes"
        return InfercastError(error.option_name, because, remedy)
    if isinstance(error, BadParameter):
        return _bad_value(error, name)
    if extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message):
        remedy = "Put a value with spaces in quotes, and commas without spaces between values"
        return InfercastError(extra[1], "it belongs to no option", remedy)
    return None


def no_such_command(word: str, known: Iterable[str]) -> InfercastError:
    """Return the error about a word that is no command.

    >>> print(no_such_command("bench", ["simulate", "cost"]))
    bench: infercast has no such command. Nearest: simulate. `infercast --help` lists all.
    """
    hint = f"Nearest: {COMMANDS[word]}" if word in COMMANDS else nearest(word, known)
    return InfercastError(word, "infercast has no such command", f"{hint}. `infercast --help` lists all")


def _unknown(flag: str, command: str, flags: Sequence[str], words: Sequence[str]) -> InfercastError:
    """Return the error about an option that a command lacks: what it is called here, or what is like it."""
    typed = next((each for each in words if each.startswith(flag)), flag)
    option, _, value = typed.partition("=") if flag.startswith("--") else (typed, "", "")
    after = list(words[words.index(typed) + 1 :]) if typed in words else []
    if not value and after and not after[0].startswith("-"):
        value = after[0]
    remedy = _meant(option, value, flags, words) or f"{_like(option, flags)}`{command} --help` lists its options"
    return InfercastError(f"{option} {value}".strip(), f"{command} has no such option", remedy)


def _meant(option: str, value: str, flags: Sequence[str], words: Sequence[str]) -> str:
    """Return what to write for an option of another tool; "" where none is known."""
    ours = FROM_SAME.get(option, option)
    if ours in flags:
        return f"Write {ours} {value}".strip()
    if ours in SENTENCES:
        people = int(value) if value.isascii() and value.isdecimal() and len(value) < len("1000000000") else 500
        return SENTENCES[ours].format(value=people, each_minute=f"{people / 60:.2g}")
    return _setting(option, value, words) if "--set" in flags else ""


def _setting(option: str, value: str, words: Sequence[str]) -> str:
    """Return how a setting of an engine is given that is no option of its own; "" for what no engine has."""
    from simulator.deployment.setting_names import known_names  # a tenth of a second
    from simulator.engines.engine import load_engine

    word = option.lstrip("-").replace("-", "_")
    name = word.removeprefix("no_")
    for engine in ENGINES:
        if name in known_names(load_engine(engine)):
            written = f"{option.lstrip('-').removeprefix('no-')}={'false' if name != word else value or 'true'}"
            return f"Write --set {written}" + ("" if engine in (ENGINES[0], *words) else f" with --engine {engine}")
    return ""


def _like(option: str, flags: Sequence[str]) -> str:
    """Return what an option is, as a beginning of what to do: almost one of these, or another command's; "" for none.

    >>> _like("--hardwere", ["--hardware", "--tp"]), _like("--duration", ["--model"])
    ('Nearest: --hardware. ', 'It is an option of infercast fleet. ')
    """
    if others := [name for name, each in table()["commands"].items() if _has(each, option)]:
        return f"It is an option of infercast {', '.join(others)}. "
    close = get_close_matches(option, [each for each in flags if each.startswith("--")], cutoff=LIKE)
    return f"Nearest: {', '.join(close)}. " if close else ""


def _has(parameters: Mapping[str, Any], option: str) -> bool:
    return any(option in each.get("flags", ()) for each in parameters.values())


def _missing(param: Any, command: str) -> InfercastError:
    option = param.opts[0] if param.param_type_name == "option" else (param.metavar or param.name).upper()
    remedy = {
        "--model": "Give, say, --model llama-3.1-8b; `infercast profiles models` lists them",
        "--hardware": "Give, say, --hardware h100-sxm; `infercast profiles hardware` lists them, and infercast compare "
        "searches all",
    }
    told = remedy.get(option, f"`{command} --help` says what it takes")
    return InfercastError(f"no {option}", f"{command} needs it", told)


def _bad_value(error: Any, command: str) -> InfercastError:
    """Return the error about the value of an option or of an argument."""
    param, errors = error.param, getattr(error.__cause__, "errors", None)  # of pydantic, which newer typers read with
    name = command if param is None or param.param_type_name == "argument" else param.opts[0]
    name, told = name.removeprefix("infercast "), f"`{command} --help` says what it takes"
    if "is not one of" in error.message:
        given, _, known = error.message.removeprefix("Value error, ").partition(" is not one of ")
        return InfercastError(f"{name} {given}", "it has no such value", f"Give one of {known}")
    if errors is None:
        return InfercastError(name, error.message, told)
    [found, *_] = errors()
    text, kind = str(found["input"]), found["type"]
    if kind.startswith("int_"):
        return InfercastError(f"{name} {text}", "it is not a whole number", example(text, name))
    if kind.startswith("float_"):
        return InfercastError(f"{name} {text}", "it is not a number", _in_digits(name, text))
    [(least_or_most, bound), *_] = (found.get("ctx") or {"": ""}).items()
    words = {"le": ("above", "less"), "ge": ("below", "more")}.get(least_or_most)
    if words is None:
        return InfercastError(f"{name} {text}", found["msg"].replace("Input", "it", 1), told)
    return InfercastError(f"{name} {text}", f"it is {words[0]} {bound:g}", f"Give {bound:g} or {words[1]}")


def _in_digits(option: str, text: str) -> str:
    """Return what to write instead of a text that holds a number, without its letters.

    >>> _in_digits("--training-tokens", "15T"), _in_digits("--cpu-offload-gb", "10GB"), _in_digits("--pue", "low")
    ('Write --training-tokens 1.5e+13', 'Write --cpu-offload-gb 10', 'Write it in digits, as 0.5, 1500 or 1.5e12')
    """
    held = re.fullmatch(r"[^\d.-]*(-?\d+(?:\.\d+)?) ?(.*)", text)
    if held is None:
        return "Write it in digits, as 0.5, 1500 or 1.5e12"
    return f"Write {option} {float(held[1]) * TIMES.get(held[2].lower(), 1.0):g}"
