"""Which columns of a trace hold what: by the names that people use, or as the user says; and the unit of the times."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulator.errors import Setting, WorkloadError, nearest

ROLES = {"prompt": "prompt tokens", "output": "output tokens", "time": "arrival times"}
NAMES = {  # as `_words` writes them: lower case, joined by underscores
    "prompt": (
        *("prompt_tokens", "input_tokens", "input", "input_length", "context_tokens", "request_tokens"),
        *("prompt_length", "prompt_len", "input_len", "num_prompt_tokens", "num_input_tokens", "n_prompt_tokens"),
        *("num_prefill_tokens", "prompt_token_count", "input_token_count", "isl"),
    ),
    "output": (
        *("output_tokens", "completion_tokens", "output", "output_length", "generated_tokens", "response_tokens"),
        *("completion_length", "output_len", "response_length", "num_output_tokens", "num_completion_tokens"),
        *("num_generated_tokens", "n_completion_tokens", "generation_tokens", "num_decode_tokens"),
        *("completion_token_count", "output_token_count", "osl"),
    ),
    "time": (
        *("arrival", "arrival_time", "arrived_at", "arrival_timestamp", "timestamp", "time", "ts", "date", "datetime"),
        *("start_time", "request_time", "request_start_time", "sent_at", "send_time", "created", "created_at"),
    ),
}
UNITS = {  # units of time per second
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("ms", "msec", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("us", "usec", "micros", "microsecond", "microseconds"), 1_000_000),
    **dict.fromkeys(("ns", "nsec", "nanos", "nanosecond", "nanoseconds"), 1_000_000_000),
}
# Publishers whose times have no unit in their name. Sources: github.com/HPMLL/BurstGPT, github.com/kvcache-ai/Mooncake.
PUBLISHED_UNITS = {
    ("Timestamp", "Request tokens", "Response tokens"): 1,  # BurstGPT: seconds
    ("timestamp", "input_length", "output_length", "hash_ids"): 1_000,  # Mooncake: milliseconds
}


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """Names of a trace's three columns, and units of its times per second; 0 where nothing says them."""

    prompt: str
    output: str
    time: str
    units_per_s: int

    @property
    def names(self) -> tuple[str, str, str]:
        """The three names."""
        return self.prompt, self.output, self.time


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """What the user says about the columns: a name for some of `ROLES`, and the units of time per second (0: nothing).

    >>> AskedColumns.of("prompt=tokens in,time=at:ms")
    AskedColumns(names={'prompt': 'tokens in', 'time': 'at'}, units_per_s=1000)
    """

    names: Mapping[str, str] = field(default_factory=dict)
    units_per_s: int = 0

    @classmethod
    def of(cls, text: str) -> "AskedColumns":
        """Return what a text like "prompt=NAME,output=NAME,time=NAME:ms" says; each part may be left out.

        Raises WorkloadError for a part of another form, an unknown role or unit, and a role given twice.
        """
        names, units_per_s = dict[str, str](), 0
        for part in filter(None, (each.strip() for each in text.split(","))):
            role, equals, name = (each.strip() for each in part.partition("="))
            if not equals or not name or role in names:
                because = f"{role} is named twice" if role in names else "it is not ROLE=NAME"
                raise WorkloadError(f"--trace-columns {part!r}", because, EXAMPLE)
            if role not in ROLES:
                because = f"a trace has no column for that; {nearest(role, ROLES)}"
                raise WorkloadError(f"--trace-columns {part!r}", because, EXAMPLE)
            if role == "time" and ":" in name:
                name, _, unit = name.rpartition(":")
                if unit not in UNITS:
                    raise WorkloadError(f"--trace-columns {part!r}", f"{unit!r} is no unit of time", EXAMPLE)
                units_per_s = UNITS[unit]
            names[role] = name
        return cls(names, units_per_s)


EXAMPLE = "Write, say, --trace-columns prompt=NAME,output=NAME,time=NAME:ms, with the unit s, ms, us or ns"


def columns_of(trace: str, header: Sequence[str], asked: AskedColumns) -> TraceColumns:
    """Return the columns of a trace by their names, with what the user asked for instead of them.

    The unit of time is the asked one, else the end of the column's name (arrival_s, timeMs), else that of the publisher
    whose columns these are. `trace` is the name that errors give.

    Raises WorkloadError for a column that is not there, is there twice, or has several candidates.
    """
    found = {role: asked.names.get(role) or _named(trace, header, role) for role in ROLES}
    for role, column in found.items():
        if header.count(column) != 1:
            because = "it occurs twice" if column in header else f"there is no such column; {nearest(column, header)}"
            given = Setting("trace", trace), f"with {ROLES[role]} in column {column!r}"
            raise WorkloadError(given, because, _remedy(role))
    units = asked.units_per_s or _split(found["time"])[1] or _published_units(header)
    return TraceColumns(**found, units_per_s=units)


def _named(trace: str, header: Sequence[str], role: str) -> str:
    """Return the only column whose name stands for a role."""
    candidates = dict.fromkeys(each for each in header if _stands_for(each, role))
    if len(candidates) == 1:
        return next(iter(candidates))
    if candidates:
        given = Setting("trace", trace), f"with columns {' and '.join(candidates)}"
        raise WorkloadError(given, f"each may hold the {ROLES[role]}", _remedy(role))
    if not header:
        raise WorkloadError(
            Setting("trace", trace), "it is empty", "Give a file with a line of column names and one request a line"
        )
    given = Setting("trace", trace), f"with columns {', '.join(header)[:200]}"
    raise WorkloadError(given, f"none of them is known to hold the {ROLES[role]}", _remedy(role))


def _remedy(role: str) -> str:
    unit = ":s" if role == "time" else ""
    return f"Give --trace-columns {role}=NAME{unit}, or name the column {', '.join(NAMES[role][:4])} or so"


def _stands_for(column: str, role: str) -> bool:
    words, _ = _split(column) if role == "time" else ("_".join(_words(column)), 0)
    return words in NAMES[role]


def _split(column: str) -> tuple[str, int]:
    """Return the words of a name without the unit of time at its end, and units per second (0: it has none).

    >>> _split("arrival_s"), _split("Start time [ms]"), _split("timestamp")
    (('arrival', 1), ('start_time', 1000), ('timestamp', 0))
    """
    *words, last = _words(column) or [""]
    if words and last in UNITS:
        return "_".join(words), UNITS[last]
    return "_".join([*words, last]), 0


def _words(column: str) -> list[str]:
    """Return the words of a column's name in lower case.

    >>> _words("promptTokens"), _words("TIMESTAMP"), _words("Request tokens")
    (['prompt', 'tokens'], ['timestamp'], ['request', 'tokens'])
    """
    return [each.lower() for each in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", column)]


def _published_units(header: Sequence[str]) -> int:
    return next((units for columns, units in PUBLISHED_UNITS.items() if set(columns) <= set(header)), 0)
