"""A result in three forms from the same rows: tables for people, csv and json; written in one piece."""

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.cli.options import Format
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.reports.provenance import Provenance, basis, rests_on

Row = Mapping[str, Any]
Value = TypeVar("Value")
UNLIMITED = 100_000  # columns: nothing is cut or folded where the output is no terminal


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the key of its value in a row, its heading, how to print a value, and left alignment."""

    key: str
    heading: str
    show: Callable[[Any], str] = str
    left: bool = False

    def cell(self, row: Row) -> str:
        """Return the printed value of a row; a dash for None."""
        value = row[self.key]
        return "-" if value is None else self.show(value)


@dataclass(frozen=True, slots=True)
class View:
    """A table for people; `upright` prints each row as a column, for few rows of many figures; `tight`: narrow gaps."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    upright: bool = False
    tight: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """All that a command prints.

    `sections`: rows by name, numbers in SI units under keys that end in the unit; json has all sections, csv only the
    last, most detailed one. `views` and `notes` are for people; json has the notes too. `rests_on`: guesses and fits
    behind the answer. `refused`: errors of the cases of a sweep that are impossible, always printed (on stderr with
    csv). `flat`: where the first section has one row, json has its keys at the top too, as benchmarks' result files do.
    """

    sections: Mapping[str, Sequence[Row]]
    views: Sequence[View]
    notes: Sequence[str] = ()
    rests_on: Sequence[Provenance] = ()
    refused: Sequence[InfercastError] = ()
    flat: bool = False

    def render(self, form: Format, width: int | None = None) -> str:
        """Return the result as text that ends in a newline; `width`: columns of the terminal, None for no terminal."""
        if form is Format.JSON:
            return _json(self)
        if form is Format.CSV:
            return _csv(list(self.sections.values())[-1])
        return _text(self, width)


def emit(result: Result, form: Format) -> None:
    """Write a result to stdout in one piece, and with csv the refused cases to stderr."""
    terminal = sys.stdout.isatty()
    sys.stdout.write(result.render(form, Console().width if terminal else None))
    sys.stdout.flush()
    if form is Format.CSV:
        sys.stderr.writelines(f"infercast: left out: {error}\n" for error in result.refused)


def sweep(calls: Iterable[Callable[[], Value]]) -> tuple[list[Value], list[InfercastError]]:
    """Return the values of the calls that succeed, and the errors of the others.

    Raises the first InfercastError where no call succeeds.
    """
    values, refused = [], []
    for call in calls:
        try:
            values.append(call())
        except InfercastError as error:
            refused.append(error)
    if refused and not values:
        raise refused[0]
    return values, refused


IDENTITY = (
    Column("model", "model", left=True),
    Column("hardware", "hardware", left=True),
    Column("engine", "engine", left=True),
    Column("tp", "TP"),
    Column("pp", "PP"),
    Column("ep", "EP"),
    Column("dp", "DP"),
    Column("weight_dtype", "weights", left=True),
    Column("cache_dtype", "cache", left=True),
)


SETTINGS = (  # that a user gave: columns where they vary, never part of a title
    Column("max_num_seqs", "max seqs"),
    Column("max_num_batched_tokens", "max tokens"),
    Column("gpu_memory_utilization", "GPU memory"),
    Column("settings", "settings", left=True),
)


def common(rows: Sequence[Row]) -> tuple[str, list[Column]]:
    """Return what the deployments of all rows share, as text for a title, and columns for what varies among them."""
    varying = [each for each in IDENTITY if len({row[each.key] for row in rows}) > 1]
    degrees = ("tp", "pp", "ep", "dp")
    form = {"weight_dtype": "{} weights", "cache_dtype": "{} cache", **{name: name.upper() + " {}" for name in degrees}}
    words = [
        form.get(each.key, "{}").format(rows[0][each.key])
        for each in IDENTITY
        if each not in varying and not (each.key in degrees and rows[0][each.key] == 1)
    ]
    return ", ".join(words), [*varying, *(each for each in SETTINGS if len({row[each.key] for row in rows}) > 1)]


def evidence(
    deployments: Iterable[Deployment], of: Callable[[Deployment], Iterable[Provenance]] = basis
) -> list[Provenance]:
    """Return the figures on which the answers for some deployments rest (`of` each), without repetition."""
    return list(dict.fromkeys(each for deployment in deployments for each in of(deployment)))


def _json(result: Result) -> str:
    whole: dict[str, Any] = {name: [_finite(row) for row in rows] for name, rows in result.sections.items()}
    if result.flat and len(first := next(iter(whole.values()))) == 1:
        whole = {**first[0], **whole}
    whole["refused"] = [{"given": e.given, "because": e.because, "remedy": e.remedy} for e in result.refused]
    whole["notes"] = list(result.notes)
    whole["rests_on"] = [
        {"profile": each.profile, "figure": each.figure, "value": each.value, **each.source.model_dump()}
        for each in result.rests_on
    ]
    return json.dumps(whole, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _finite(row: Row) -> dict[str, Any]:
    """Return a row with None for the numbers that json lacks: infinity and NaN."""
    return {key: None if isinstance(each, float) and not math.isfinite(each) else each for key, each in row.items()}


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _text(result: Result, width: int | None) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width or UNLIMITED,
        force_terminal=width is not None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for index, view in enumerate(result.views):
        if index:
            console.print()
        console.print(Text(view.title, style="bold"), soft_wrap=True)
        console.print(_table(view), crop=False)
    guesses, general = (rests_on(result.rests_on, kind) for kind in ("guess", "family"))
    notes = [*(f"Left out: {error}" for error in result.refused), *result.notes]
    notes += [f"Rests on guesses: {guesses}."] if guesses else []
    notes += [f"Rests on figures of the family: {general}."] if general else []
    if result.views and notes:
        console.print()
    for note in notes:
        console.print(Text(note))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _table(view: View) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0) if view.tight else (0, 1))
    if view.upright:
        head, *others = view.columns
        table.add_column(head.heading, overflow="fold")
        for row in view.rows:
            table.add_column(head.cell(row), justify="right", overflow="fold")
        for column in others:
            table.add_row(column.heading, *(column.cell(row) for row in view.rows))
        return table
    for column in view.columns:
        words = " ".join([column.heading, *(column.cell(row) for row in view.rows)]).split()
        longest = max(map(len, words), default=0)  # a narrow terminal breaks between words, never inside a figure
        table.add_column(column.heading, justify="left" if column.left else "right", min_width=longest)
    for row in view.rows:
        table.add_row(*(column.cell(row) for column in view.columns))
    return table


def number(digits: int = 3, factor: float = 1.0) -> Callable[[float], str]:
    """Return a function that prints a value times `factor` with so many significant digits, all before the point.

    >>> number(3, 1e3)(0.0123456), number()(123456.7)
    ('12.3', '123,457')
    """

    def show(value: float) -> str:
        scaled = value * factor
        if scaled == 0 or not math.isfinite(scaled):
            return "0" if scaled == 0 else "-"
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(scaled)) + 1e-9))
        return f"{scaled:,.{decimals}f}"

    return show


milliseconds = number(3, 1e3)
seconds = number(3)


def percent(value: float) -> str:
    """Return a share (0 to 1) in per cent.

    >>> percent(0.4142)
    '41 %'
    """
    return f"{100 * value:.0f} %"


def count(value: float) -> str:
    """Return a number rounded to a whole one, with commas between thousands.

    >>> count(28298)
    '28,298'
    """
    return f"{value:,.0f}"
