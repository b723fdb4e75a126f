"""Option values as text: lists, numbers, times, shares; and a question written out as options again.

`option` is always the flag that an error names.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from simulator.errors import InfercastError, Setting
from simulator.limits import MOST_WHOLE, in_range
from simulator.units import parse

Question = TypeVar("Question")

FLAGS = {"changes": "--set"}  # fields whose flag is not their name
FIELDS = {  # by option, the fields of classes that it fills under another name; a time also as `timeout_s`
    "autoscale": ("metric", "target"),
    "context": ("context_tokens",),
    "cpu_offload_gb": ("weight_bytes",),
    "gpu_memory_utilization": ("memory_fraction",),
    "growth": ("growth_per_month",),
    "host": ("hardware",),
    "interval": ("level",),
    "num_prompts": ("request_count",),
    "prefill_autoscale": ("metric", "target"),
    "random_range_ratio": ("range_ratio",),
    "release_period": ("period_s",),
    "report": ("page",),
    "request_rate": ("rate_per_s",),
    "slo_share": ("share",),
    "speculative_model": ("model",),
    "sync_period": ("interval_s",),
    "training_tokens": ("tokens",),
}
UNITS = {"k": (1000, 1024), "m": (1000**2, 1024**2), "": (1,)}  # what a letter after a number may mean
LENGTHS = ("--input-len", "--output-len", "--isl", "--osl", "--context")  # options of tokens
MOST_SHARE = 100.0  # of a growth or a headroom: 10,000 %
TIMES_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}  # by the first letter of their names
PER_TIME = re.compile(r"(\d+\.?\d*) ?(?:/|per|rp|qp|req/|requests/) ?([smhd])[a-z]*")  # 30/min, 2rps, 100 per hour
THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")  # 1,024 is no list of 1 and 24


def comma_list(text: object, option: str) -> list[str]:
    """Return the parts of a comma list, without spaces around them; in Python, a number is a list of one.

    Raises InfercastError where one is empty, and for 1,000.

    >>> comma_list("h100-sxm, h200-sxm", "--hardware")
    ['h100-sxm', 'h200-sxm']
    """
    text = str(text)
    parts = [each.strip() for each in text.split(",")]
    if not all(parts):
        raise InfercastError(f"{option} {text!r}", "a part of the list is empty", "Give values with commas between")
    if THOUSANDS.fullmatch(text) and any(each.startswith("0") for each in parts):
        raise InfercastError(f"{option} {text}", "a comma makes a list", f"Give {option} {text.replace(',', '')}")
    return parts


def whole_numbers(text: str, option: str) -> list[int]:
    """Return the whole numbers of a comma list, each once. Raises InfercastError for anything but those above 0.

    >>> whole_numbers("1,8,64,8", "--batch")
    [1, 8, 64]
    """
    return list(dict.fromkeys(_whole(each, option) for each in comma_list(text, option)))


def _whole(text: str, option: str) -> int:
    if not (text.isascii() and text.isdecimal() and text.strip("0")):
        raise InfercastError(f"{option} {text}", "it is not a whole number above 0", example(text, option))
    return int(in_range(float(text), f"{option} {text}", MOST_WHOLE))


def example(text: str, option: str) -> str:
    """Return what to write instead of a text that is no whole number; "1k" may be 1,000 or 1,024.

    >>> example("8k", "--input-len"), example("many", "--batch")
    ('Write it out, --input-len 8000 or 8192', 'Give, say, --batch 8')
    >>> example("1.5M", "--num-prompts"), example("1e6", "--num-prompts")
    ('Write it out, --num-prompts 1500000 or 1572864', 'Write it out, --num-prompts 1000000')
    """
    digits, unit = (text[:-1], text[-1:].lower()) if text[-1:].lower() in UNITS else (text, "")
    with contextlib.suppress(ValueError):
        sizes = [float(digits) * each for each in UNITS[unit]]
        if all(1 <= size <= MOST_WHOLE and size.is_integer() for size in sizes):
            return f"Write it out, {option} {' or '.join(f'{size:.0f}' for size in sizes)}"
    return f"Give, say, {option} {512 if option in LENGTHS else 8}"


def distinct_parts(text: str, option: str) -> list[str]:
    """Return the parts of a comma list, each once, or the empty text alone where nothing is given.

    >>> distinct_parts("8,16", "--max-num-seqs"), distinct_parts("", "--max-num-seqs")
    (['8', '16'], [''])
    """
    return list(dict.fromkeys(comma_list(text, option))) if text else [""]


def whole(text: str, option: str) -> int | None:
    """Return a whole number above 0, None for an empty text. Raises InfercastError for anything else.

    >>> whole("8", "--max-num-seqs"), whole("", "--max-num-seqs")
    (8, None)
    """
    return whole_numbers(text, option)[0] if text else None


def probability(text: str, option: str) -> float:
    """Return a number from 0 to 1. Raises InfercastError for anything else.

    >>> probability("0.7", "--acceptance-rate")
    0.7
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1:
        raise InfercastError(f"{option} {text}", "it is not a probability", f"Give, say, {option} 0.7")
    return value


def typed_number(text: str, option: str, example: str = "2") -> float:
    """Return a number, infinity too. Raises InfercastError for a text that is none, NaN, and what is out of range.

    `example`: what the error says to write, say.
    """
    try:
        value = float(text)
    except ValueError:
        raise _no_number(text, option, example) from None
    return value if math.isinf(value) else in_range(value, f"{option} {text}")


def _no_number(text: str, option: str, example: str) -> InfercastError:
    """Return the error about a text that is no number; a rate per minute is said per second.

    >>> print(_no_number("30/min", "--request-rate", "2"))
    --request-rate '30/min': it is a number of requests per second. Give --request-rate 0.5.
    """
    per = PER_TIME.fullmatch(text.strip().lower()) if option == "--request-rate" else None
    if per is None:
        return InfercastError(f"{option} {text!r}", "it is not a number", f"Give, say, {option} {example}")
    per_s = f"{float(per[1]) / TIMES_S[per[2]]:.3g}"
    return InfercastError(f"{option} {text!r}", "it is a number of requests per second", f"Give {option} {per_s}")


def seconds(text: str, option: str) -> float:
    """Return a time in seconds; a bare number is in seconds. Raises InfercastError for a text that is not a time.

    >>> seconds("5min", "--down-delay"), seconds("90", "--timeout")
    (300.0, 90.0)
    """
    with named(f"{option} {text}"):
        return parse(f"{text} s" if re.fullmatch(r"-?[\d.]+", text) else text, "s")


def share(text: str, option: str) -> float:
    """Return a share that was written as 10% or as 0.1. Raises InfercastError for anything else.

    A bare number above 1 is refused: 10 may mean 10 % or 1,000 %.

    >>> share("12.5%", "--growth"), share("0.2", "--growth")
    (0.125, 0.2)
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InfercastError(f"{option} {text}", "it is not a share", f"Give, say, {option} 10%")
    value = in_range(value, f"{option} {text}", MOST_SHARE)
    if value > 1 and not text.endswith("%"):
        as_percent = f"Write {text}% or {value / 100:g}, or {100 * value:g}% if it is meant"
        raise InfercastError(f"{option} {text}", f"as a share it is {100 * value:g} %", as_percent)
    return value


@contextlib.contextmanager
def named(given: str) -> Iterator[None]:
    """Say of an InfercastError that is raised meanwhile that it is about `given`, an option with its value."""
    try:
        yield
    except InfercastError as error:
        raise error.about(given) from error


@contextlib.contextmanager
def as_typed(options: Mapping[str, Any]) -> Iterator[None]:
    """Let an InfercastError that is raised meanwhile name options and values that were given, by name of the field."""
    try:
        yield
    except InfercastError as error:
        told = error.spelled(lambda setting: typed(setting, options))
        if told.given == error.given:
            raise
        raise told from error


def typed(setting: Setting, options: Mapping[str, Any]) -> str:
    """Return the option that filled a field and what was given to it, "" for none; of a list the value of the field.

    Of options that may fill it, such as --hardware and --host, the one that was given this value, else the first.

    >>> typed(Setting("ep", 2), {"ep": 2}), typed(Setting("rate_per_s", -1.0), {"request_rate": "-1"})
    ('--ep 2', '--request-rate -1')
    >>> typed(Setting("timeout_s", 0.0), {"timeout": "0min"}), typed(Setting("tp", 3), {"tp": "2,3"})
    ('--timeout 0min', '--tp 3')
    >>> typed(Setting("hardware", "abc"), {"hardware": "l4", "host": "abc"}), typed(Setting("seed", -1), {"tp": "2"})
    ('--host abc', '')
    """
    filling = [each for each in options if setting.name in (each, f"{each}_s", *FIELDS.get(each, ()))]
    if not filling:
        return ""
    name = next((each for each in filling if str(setting.value) in str(options[each]).split(",")), filling[0])
    given = options[name]
    shown = f"{given:g}" if isinstance(given, float) else str(given)
    return f"{option_of(name)} {setting.shown if ',' in shown else shown}"


def option_of(field: str) -> str:
    """Return the option of a field.

    >>> option_of("max_num_seqs"), option_of("changes")
    ('--max-num-seqs', '--set')
    """
    return FLAGS.get(field, f"--{field.replace('_', '-')}")


def said(question: Any) -> dict[str, Any]:
    """Return the fields of a question (a dataclass) that are not at their defaults, by name."""
    values = {each.name: (getattr(question, each.name), each.default) for each in fields(question)}
    return {name: value for name, (value, default) in values.items() if default is MISSING or value != default}


def defaults(question: Any) -> dict[str, Any]:
    """Return the defaults of the fields of a question (a dataclass), by name."""
    return {each.name: each.default for each in fields(question)}


def refuse_idle(question: Any, dependents: Mapping[str, Sequence[str]]) -> None:
    """Raise InfercastError for an option that changes nothing without another; `dependents[other]` are such options."""
    default = defaults(question)
    for needed, names in dependents.items():
        for name in names:
            if getattr(question, needed) == default[needed] and getattr(question, name) != default[name]:
                given, other = option_of(name), option_of(needed)
                raise InfercastError(f"{given} without {other}", "it would change nothing", f"Give {other} too")


def plain(kind: type[Question], question: Question) -> Question:
    """Return the fields of a question as `kind`, without what the options of a command add to it."""
    return kind(**{each.name: getattr(question, each.name) for each in fields(kind)})  # type: ignore[arg-type]


def arguments(question: Any) -> list[str]:
    """Return a question (a dataclass) as command-line arguments: a flag for each field that is not at its default.

    Field `max_num_seqs` is `--max-num-seqs`; a tuple repeats its flag, True is the flag alone.
    """
    return [word for name, value in said(question).items() for word in _flag_and_value(option_of(name), value)]


def _flag_and_value(flag: str, value: Any) -> Iterator[str]:
    if value is True:
        yield flag
    elif isinstance(value, tuple | list):
        for each in value:
            yield from (flag, str(each))
    else:
        yield from (flag, f"{value!r}" if isinstance(value, float) else str(value))
