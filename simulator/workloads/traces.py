"""Request traces from files: arrival times and numbers of tokens, under the names that people use (trace_columns.py).

This module imports pandas; import it where a trace is read, not at start-up.
"""

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from simulator.arrays import Bools, Floats, Ints
from simulator.errors import Setting, WorkloadError, reason
from simulator.files import MAX_TRACE_MB, open_text, parse_json_lines
from simulator.workloads.lengths import MAX_TOKENS
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.trace_columns import AskedColumns, TraceColumns, columns_of

MAX_TIME_S = 1e10  # 300 years
MAX_LINE = 1_000_000  # characters of a header
JSON_ROWS = 20_000  # that are Python objects at a time, which take ten times the room of columns
EPOCH_S = 1e9  # times from here on count from 1970: the first of them becomes 0
_SURPLUS = "a field beyond the header"
_REMEDY = "Correct or remove such rows"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A recorded workload of n requests, in order of arrival.

    `arrival_s` (float64, seconds), `prompt_tokens` and `output_tokens` (int64, at least 1) have shape (n,). `prefixes`
    are the prefix blocks of the prompts, whole blocks only, empty where the file has none.
    """

    name: str
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    prefixes: Prefixes = field(default_factory=lambda: Prefixes.of([]))

    def __len__(self) -> int:
        return len(self.arrival_s)


# Mooncake: "hash_ids" of blocks of 512 tokens, each a hash of the block and of all before it; a last partial block too.
PREFIX_COLUMNS = {"prefix_block_ids_512tok": 512, "hash_ids": 512}


def read_trace(path: str | Path, asked: AskedColumns | None = None) -> Trace:
    r"""Return a trace from a CSV or JSON-lines file, plain or .gz; `asked` names columns and the unit of time.

    Columns that are not asked for are found by their names, as is the unit (arrival_s, start_ms; BurstGPT's and
    Mooncake's own). Dates, and times since 1970, count from the first row, other times stay as they are. Shared
    prefixes are read where the file has ids of prefix blocks (Mooncake's `hash_ids`; in CSV, numbers separated by
    spaces); other columns are only named. Rows are counted from 1, below the header.

    Raises WorkloadError, with file, row and value, for a missing or unreadable file, no rows, columns that are missing
    or ambiguous, times of an unknown unit, a row of the wrong size, text or NaN for a number, times that are negative
    or go back, and lengths that are zero, negative or not whole. (The two Azure 2023 traces have no such row; BurstGPT
    logs failed requests with 0 output tokens and publishes `*_without_fails_*` files too.)

    Sources: github.com/Azure/AzurePublicDataset, github.com/HPMLL/BurstGPT, github.com/kvcache-ai/Mooncake.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".csv") as file:
    ...     print("arrival_ms,prompt_tokens,output_tokens\n0,1000,200\n500,800,100", file=file, flush=True)
    ...     read_trace(file.name).arrival_s
    array([0. , 0.5])
    """
    path, asked = Path(path), asked or AskedColumns()
    try:
        with open_text(path, MAX_TRACE_MB) as file:
            first_line = _first_line(file)
            read = _read_json_lines if first_line.startswith("{") else _read_csv
            header, table = read(path.name, first_line, file, asked)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        because = f"it cannot be read ({reason(error)})"
        raise WorkloadError(Setting("trace", path), because, "Give a .csv or .jsonl file, or its .gz") from error
    if len(table) == 0:
        raise WorkloadError(Setting("trace", path), "it has no rows", "Give a trace with requests in it")
    columns, rows = columns_of(path.name, header, asked), _Rows(path.name, table)
    arrival_s = rows.dates_s(columns.time) if rows.has_dates(columns) else rows.times_s(columns)
    prompt_tokens, ids = rows.lengths(columns.prompt), _prefix_column(header)
    prefixes = rows.prefixes(ids, prompt_tokens) if ids else Prefixes.of([])
    return Trace(path.name, arrival_s, prompt_tokens, rows.lengths(columns.output), prefixes)


def _prefix_column(header: Sequence[str]) -> str | None:
    return next((column for column in header if column in PREFIX_COLUMNS), None)


def _first_line(file: TextIO) -> str:
    line = file.readline(MAX_LINE)
    if len(line) == MAX_LINE:
        raise csv.Error(f"its first line has more than {MAX_LINE:,} characters")
    return line


def _read_csv(name: str, first_line: str, file: TextIO, asked: AskedColumns) -> tuple[list[str], pd.DataFrame]:
    header = [column.strip() for column in next(csv.reader([first_line]), [])]
    if len(header) == 1 or first_line.startswith("["):
        because = f"it is neither CSV with commas nor JSON lines: it begins with {first_line.strip()[:40]!r}"
        remedy = "Put commas between columns, or one JSON object on each line"
        raise WorkloadError(Setting("trace", name), because, remedy)
    known = (*columns_of(name, header, asked).names, _prefix_column(header))
    # One name more than there are columns catches a row with a field too many, which pandas would cut off silently.
    names = [column if column in known else index for index, column in enumerate(header)] + [_SURPLUS]
    options: Any = {"header": None, "names": names, "index_col": False, "keep_default_na": False, "low_memory": False}
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            table = pd.read_csv(file, skipinitialspace=True, **options)
    except pd.errors.EmptyDataError:
        table = pd.DataFrame(columns=names)
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise WorkloadError(
            Setting("trace", name), f"it is not CSV ({str(error).strip()})", "Write one row per request"
        ) from error
    surplus = table.pop(_SURPLUS)
    filled = (surplus.notna() & (surplus != "")).to_numpy()
    _Rows(name, table).refuse(filled, surplus, f"the header has {len(header)} columns")
    return header, table


def _read_json_lines(name: str, first_line: str, file: TextIO, asked: AskedColumns) -> tuple[list[str], pd.DataFrame]:
    header = list(_json_object(name, 1, first_line))
    ids = _prefix_column(header)
    columns = [*columns_of(name, header, asked).names, *([ids] if ids else [])]
    lines, parts, before = filter(str.strip, chain([first_line], file)), [], 0
    while part := list(islice(lines, JSON_ROWS)):
        parts.append(_json_rows(name, columns, part, before))
        before += len(part)
    return header, pd.concat(parts, ignore_index=True)


def _json_rows(name: str, columns: list[str], lines: Sequence[str], before: int) -> pd.DataFrame:
    """Return rows as columns; `before`: rows above them. Values of several kinds are read again one by one."""
    try:
        values = list(chain.from_iterable(map(itemgetter(*columns), parse_json_lines(lines))))
        found: Any = {column: _plain(values[at :: len(columns)]) for at, column in enumerate(columns)}
        return pd.DataFrame(found)
    except (ValueError, TypeError, KeyError):
        rows = [_json_row(name, columns, number, line) for number, line in enumerate(lines, start=before + 1)]
        return pd.DataFrame(rows, columns=columns)


def _plain(values: list[Any]) -> pd.Series:
    """Return values of one kind as a column: numbers, texts or lists. Raises ValueError for others."""
    kinds = set(map(type, values))
    if kinds in ({str}, {list}):
        return pd.Series(values)
    found = np.array(values) if kinds <= {int, float} else np.empty(0)
    if found.dtype.kind not in "if" or len(found) != len(values):
        raise ValueError("values of several kinds")
    return pd.Series(found)


def _json_row(name: str, columns: Sequence[str], number: int, line: str) -> list[Any]:
    entry = _json_object(name, number, line)
    missing = [column for column in columns if column not in entry]
    if missing:
        raise WorkloadError(f"{name}, row {number}", f"missing {', '.join(missing)}", "Mend or remove this row")
    return [entry[column] for column in columns]


def _json_object(name: str, row: int, line: str) -> dict[str, Any]:
    try:
        (entry,) = parse_json_lines([line])
    except ValueError as error:
        raise WorkloadError(f"{name}, row {row}", f"it is not JSON ({error})", "Write one object per line") from error
    if not isinstance(entry, dict):
        raise WorkloadError(f"{name}, row {row}", "it is not a JSON object", "Write one object per line")
    return entry


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one file, read column by column; unusable values raise WorkloadError with row and value."""

    name: str
    table: pd.DataFrame

    def refuse(self, bad: Bools, values: pd.Series, because: str, remedy: str = _REMEDY) -> None:
        if not bad.any():
            return
        first, others = int(bad.argmax()), int(bad.sum()) - 1
        given = f"{self.name}, row {first + 1}: {values.name} {str(values.iloc[first])!r}"
        raise WorkloadError(given + (f" ({others:,} more rows like it)" if others else ""), because, remedy)

    def numbers(self, column: str) -> Floats:
        values = self.table[column]
        if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
            values = values.astype(str)
        numbers: Floats = pd.to_numeric(values, errors="coerce").to_numpy(np.float64)
        self.refuse(~np.isfinite(numbers), values, "it is not a finite number")
        return numbers

    def has_dates(self, columns: TraceColumns) -> bool:
        """Return whether the times are dates: no unit is known, and the first is not a number."""
        first = pd.to_numeric(str(self.table[columns.time].iloc[0]), errors="coerce")
        return not columns.units_per_s and bool(np.isnan(first))

    def times_s(self, columns: TraceColumns) -> Floats:
        numbers = self.numbers(columns.time)
        if not columns.units_per_s:
            raise self._unknown_unit(numbers, columns.time)
        arrival_s: Floats = numbers / columns.units_per_s
        outside = (arrival_s < 0) | (arrival_s > MAX_TIME_S)
        self.refuse(outside, self.table[columns.time], f"time runs from 0 to {MAX_TIME_S:g} s", "Shift the times")
        return self._sorted(arrival_s - (arrival_s[0] if arrival_s[0] >= EPOCH_S else 0.0), columns.time)

    def _unknown_unit(self, numbers: Floats, column: str) -> WorkloadError:
        """Return the error of times whose unit nothing says, with the rates that s and ms would mean."""
        span, more = float(np.ptp(numbers)), len(numbers) - 1
        per_s = more / span if span else 0.0
        rates = f"{per_s:.4g} requests/s in s, {1e3 * per_s:,.0f} in ms" if span else "all at once"
        because = f"neither the name nor a known publisher says the unit ({len(numbers):,} rows: {rates})"
        remedy = f"Give --trace-columns time={column}:s, or {column}:ms, or name the column arrival_s"
        return WorkloadError(f"{self.name}, times in column {column!r}", because, remedy)

    def dates_s(self, column: str) -> Floats:
        text = self.table[column].astype(str)
        dates = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
        self.refuse(dates.isna().to_numpy(), text, "it is neither a number nor a date like 2023-11-16 18:15:46.68")
        since_first = (dates - dates.iloc[0]) / pd.Timedelta(seconds=1)
        return self._sorted(np.asarray(since_first, dtype=np.float64), column)

    def lengths(self, column: str) -> Ints:
        numbers, values = self.numbers(column), self.table[column]
        self.refuse(numbers < 1, values, "a request has at least one token each way (0 often logs a failure)")
        self.refuse(numbers != np.floor(numbers), values, "it must be a whole number of tokens")
        self.refuse(numbers > MAX_TOKENS, values, f"no context has more than {MAX_TOKENS} tokens")
        return numbers.astype(np.int64)

    def prefixes(self, column: str, prompt_tokens: Ints) -> Prefixes:
        """Return the prefix blocks of the prompts, whole blocks only."""
        values, prefix_block_tokens, lists = self.table[column], PREFIX_COLUMNS[column], []
        for row, (value, tokens) in enumerate(zip(values.tolist(), prompt_tokens.tolist(), strict=True)):
            given = value if isinstance(value, list) else str(value).split()
            try:
                lists.append([int(np.int64(each)) for each in given[: tokens // prefix_block_tokens]])
            except (TypeError, ValueError, OverflowError):
                bad = np.arange(len(values)) == row
                self.refuse(bad, values.astype(str), "it is not a list of whole numbers", "Put spaces between them")
        return Prefixes.of(lists, prefix_block_tokens)

    def _sorted(self, arrival_s: Floats, column: str) -> Floats:
        back = np.diff(arrival_s, prepend=arrival_s[0]) < 0
        self.refuse(back, self.table[column], "it is earlier than the row before", "Sort the rows by time")
        return arrival_s
