"""A result in three forms from the same rows: tables for people, csv and json; written in one piece."""

import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text
from typer import Exit

from simulator.cli.complaint import complain
from simulator.cli.help import INTERRUPTED, RUNNING
from simulator.cli.tables import Cells, tables
from simulator.cli.text_layout import Format, columns, wrapped
from simulator.errors import InfercastError, InterruptedSweepError, printable, reason
from simulator.frames import Row as Row  # noqa: PLC0414  the commands take it from here, with columns and views
from simulator.reports.provenance import Provenance, rests_on, rests_on_in_short
from simulator.schema_versions import KEY, VERSIONS

Value = TypeVar("Value")
SCHEMA = Path(__file__).with_name("result.schema.json")
MORE = "--details: every figure and its interval, reasons, guesses, what the words mean."
FORMULA = ("=", "+", "-", "@")  # what the formulas of spreadsheets begin with


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
        return "-" if value is None else "\n".join(map(printable, str(self.show(value)).split("\n")))


@dataclass(frozen=True, slots=True)
class View:
    """A table for people; `upright` prints each row as a column, for few rows of many figures.

    `is_detail`: printed where details are asked for.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    upright: bool = False
    is_detail: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """All that a command prints.

    `sections`: rows by name, numbers in SI units under keys that end in the unit; json has all sections, csv only the
    last, most detailed one. `verdict` (the answer in sentences), `views` and `notes` are for people, `details` for
    those who ask for them; json has all sentences too. `rests_on`: guesses and fits behind the answer. `refused`:
    errors of the cases of a sweep that are impossible, always printed (on stderr with csv). json is as
    result.schema.json says, with the same shape for one case and for many.
    """

    sections: Mapping[str, Sequence[Row]]
    views: Sequence[View]
    notes: Sequence[str] = ()
    rests_on: Sequence[Provenance] = ()
    refused: Sequence[InfercastError] = ()
    verdict: Sequence[str] = ()
    details: Sequence[str] = ()

    @property
    def told(self) -> list[str]:
        """All sentences."""
        return [*self.verdict, *self.notes, *self.details]

    def first_screen(self) -> "Result":
        """Return the result without its details, guesses only counted, and where to find them."""
        views = [each for each in self.views if not each.is_detail]
        counted = rests_on_in_short(self.rests_on)
        more = [MORE] if self.details or counted or len(views) < len(self.views) else []
        return replace(self, views=views, notes=[*self.notes, *counted, *more], details=(), rests_on=())

    def render(self, form: Format, width: int, *, bold: bool = False) -> str:
        """Return the result as text that ends in a newline; `width`: columns that text has; `bold`: its titles."""
        if form is Format.JSON:
            return _json(self)
        if form is Format.CSV:
            return as_csv(list(self.sections.values())[-1])
        return _text(self, width, bold=bold)


def emit(result: Result, form: Format, *, details: bool = True) -> None:
    """Write a result to stdout in one piece, text with or without its details; with csv refused cases to stderr.

    Raises InfercastError for a result that is not finite, typer.Exit with code 130 where Ctrl-C ended the sweep.
    """
    refuse_not_finite(row for rows in result.sections.values() for row in rows)
    refuse_not_finite(row for view in result.views for row in view.rows)
    shown = result if details or form is not Format.TEXT else result.first_screen()
    put(shown.render(form, columns(), bold=sys.stdout is not None and sys.stdout.isatty()))
    if form is Format.CSV:
        for error in result.refused:
            complain(f"left out: {error}")
    exit_if_interrupted(result.refused)


def exit_if_interrupted(refused: Iterable[InfercastError]) -> None:
    """Raise typer.Exit with code 130 where one of the errors says that Ctrl-C ended a sweep."""
    if any(isinstance(each, InterruptedSweepError) for each in refused):
        raise Exit(INTERRUPTED)


def refuse_not_finite(rows: Iterable[Row]) -> None:
    """Raise InfercastError for a number of a result that is NaN or infinite."""
    for row in rows:
        for key, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                because = "a result is a finite number, so this is a bug of infercast, or an input beyond all measure"
                raise InfercastError(f"{key} is {value}", because, "Report it with the whole command line")


def put(text: str) -> None:
    """Write text to stdout; characters that its encoding lacks become question marks.

    Raises InfercastError where stdout is closed or cannot be written, BrokenPipeError where its reader is gone, which
    typer makes exit code 1.
    """
    if sys.stdout is None:
        raise InfercastError("stdout", "it is closed", "Send it to a file or to /dev/null")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still in its buffer when the process ends
        raise InfercastError("stdout", f"it cannot be written ({reason(error)})", "Send it elsewhere") from error


def as_csv(rows: Sequence[Row]) -> str:
    """Return rows as CSV with a header; what a spreadsheet would run is text."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: as_text(value) for key, value in row.items()} for row in rows)
    return buffer.getvalue()


def as_text(value: object) -> object:
    """Return the value of a CSV cell: one line, with an apostrophe before what a spreadsheet would run as a formula.

    >>> as_text("=1+1"), as_text("l40s"), as_text(-1.5)
    ("'=1+1", 'l40s', -1.5)
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULA) and text != "-" else text


def tried(
    calls: Iterable[Callable[[], Value]], *, may_all_fail: bool = False
) -> tuple[list[Value], list[InfercastError]]:
    """Return the values of the calls that succeed, and the errors of the others.

    Ctrl-C ends it early: what is finished is kept, and the last error says what is not. Raises the first InfercastError
    where no call succeeds, unless `may_all_fail`; KeyboardInterrupt where none has when it comes.
    """
    every = list(calls)
    values, refused = list[Value](), list[InfercastError]()
    for index, call in enumerate(every):
        try:
            values.append(call())
        except InfercastError as error:
            refused.append(error)
        except KeyboardInterrupt:
            if not values:
                raise
            remedy = "Let it run on, or ask for these alone"
            refused.append(InterruptedSweepError.of(len(every) - index, len(every), remedy))
            break
    if refused and not (values or may_all_fail):
        raise refused[0]
    return values, refused


def _json(result: Result) -> str:
    whole: dict[str, Any] = {KEY: VERSIONS["Result"], "command": RUNNING.get()}
    whole |= {name: [dict(row) for row in rows] for name, rows in result.sections.items()}
    whole["refused"] = [{"given": e.given, "because": e.because, "remedy": e.remedy} for e in result.refused]
    whole["notes"] = result.told
    whole["rests_on"] = [
        {"profile": each.profile, "figure": each.figure, "value": each.value, **each.source.model_dump()}
        for each in result.rests_on
    ]
    return json.dumps(whole, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _text(result: Result, width: int, *, bold: bool) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, force_terminal=bold, highlight=False, markup=False, emoji=False, legacy_windows=False
    )
    for sentence in result.verdict:
        console.print(Text("\n".join(wrapped(sentence, width)), style="bold"), soft_wrap=True)
    for index, view in enumerate(result.views):
        if index or (result.verdict and view.title):
            console.print()
        if view.title or not result.verdict:
            console.print(Text("\n".join(wrapped(view.title, width)), style="bold"), soft_wrap=True)
        for index_of_part, part in enumerate(tables(_cells(view), width)):
            if index_of_part:
                console.print()
            console.print(part, crop=False)
    guesses, general = (rests_on(result.rests_on, kind) for kind in ("guess", "family"))
    notes = [*(f"Left out: {error}" for error in result.refused), *result.notes, *result.details]
    notes += [f"Rests on guesses: {guesses}."] if guesses else []
    notes += [f"Rests on figures of the family: {general}."] if general else []
    below = [line for note in notes for line in wrapped(note, width)]
    text = buffer.getvalue() + ("\n" if result.views and below else "") + "\n".join(below)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _cells(view: View) -> list[Cells]:
    """Return what each column of a table prints; `upright` swaps rows and columns."""
    found = [(each.heading, *(each.cell(row) for row in view.rows)) for each in view.columns]
    if not view.upright:
        return [Cells(each[0], each[1:], column.left) for each, column in zip(found, view.columns, strict=True)]
    return [Cells(each[0], each[1:], not index) for index, each in enumerate(zip(*found, strict=True))]
