"""The tables of the text screen as blocks of a page, and what every page says of itself."""

import math
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import simulator
from simulator.cli.answers.deployment_columns import evidence
from simulator.cli.answers.fitted import fitted_view
from simulator.cli.answers.interval_columns import IntervalColumn
from simulator.cli.output import Column, Result, Row, View
from simulator.day import TODAY, today
from simulator.deployment.deployment import Deployment
from simulator.html.page import Block, CommandBlock, Folded, HeadCell, Page, PageSection, Prose, TableBlock, TableCell
from simulator.reports.provenance import Provenance, readable

WEAK = {"guess": "Guesses", "family": "Figures of the device's family"}


def table_of(view: View) -> TableBlock:
    """Return a table of the text screen as a block; a row that begins with "sum" stays at the foot."""
    if view.upright:
        return _upright(view)
    rows = [[_cell(column, row) for column in view.columns] for row in view.rows]
    body, totals = ([row for row in rows if (row[0].text == "sum") is is_sum] for is_sum in (False, True))
    return TableBlock(view.title, [HeadCell(each.heading, each.left) for each in view.columns], body, totals)


def _upright(view: View) -> TableBlock:
    """Return a table with a column for each row of the view; a leading space of its headings becomes a wide one."""
    head, *others = view.columns
    heads = [HeadCell(head.heading, left=True), *(HeadCell(head.cell(row)) for row in view.rows)]
    names = [each.heading.replace("  ", "\u2003") for each in others]
    cells = [[TableCell(each.cell(row)) for row in view.rows] for each in others]
    return TableBlock(view.title, heads, [[TableCell(a), *b] for a, b in zip(names, cells, strict=True)], fixed=True)


def _cell(column: Column, row: Row) -> TableCell:
    value: Any = row[f"{column.key}_low"] if isinstance(column, IntervalColumn) else row[column.key]
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return TableCell(column.cell(row), float(value) if is_number else None)


def bullets(*sentences: str) -> list[Block]:
    """Return sentences as points; no block for none."""
    said = [each for each in sentences if each]
    return [Prose(said, listed=True)] if said else []


def evidence_section(deployments: Sequence[Deployment], more: Iterable[Provenance] = ()) -> PageSection:
    """Return what an answer rests on: guesses first, then figures of a family, fitted multipliers, and all sources."""
    used = list(dict.fromkeys([*evidence(deployments), *more]))
    blocks: list[Block] = []
    for kind, title in WEAK.items():
        weak = [each for each in used if each.source.evidence == kind]
        said = f"{title}: {len(weak)}." if weak else f"{title}: none."
        blocks += [table_of(sources_view(weak, title))] if weak else [Prose([said])]
    fitted = fitted_view(deployments)
    blocks += [table_of(fitted)] if fitted.rows else []
    all_of_it = table_of(sources_view(used, "Every figure with its source"))
    blocks.append(Folded(f"All {len(used)} figures that the answer uses, with their sources", [all_of_it]))
    return PageSection("evidence", "What this rests on", blocks)


def sources_view(used: Iterable[Provenance], title: str) -> View:
    """Return a table of figures, in the unit that each ends in, with the evidence for it, its date and its source."""
    rows = [
        {
            "profile": each.profile,
            "figure": each.figure,
            "value": each.value,
            "shown": "-" if each.value is None else readable(each.figure, each.value),
            "evidence": each.source.evidence,
            "date": each.source.date or "-",
            "source": each.source.text,
        }
        for each in used
    ]
    columns = [
        Column("profile", "of", left=True),
        Column("figure", "figure", left=True),
        Column("shown", "value"),
        Column("evidence", "evidence", left=True),
        Column("date", "date", left=True),
        Column("source", "source", left=True),
    ]
    return View(title, columns, rows)


def repeat_section(notes: Sequence[str]) -> PageSection:
    """Return the command that makes the page again, the day of its prices, and what its words mean."""
    same = f"Prices age with the day: {TODAY}={today()} gives the same bytes again."
    return PageSection("repeat", "How to repeat it", [_command("This page"), Prose([same]), *bullets(*notes)])


def below(result: Result) -> list[str]:
    """Return what a page says at its foot: what was left out, and what the words mean."""
    return [*(f"Left out: {error}" for error in result.refused), *result.details]


def _command(caption: str) -> Block:
    return CommandBlock(caption, shlex.join(["infercast", *sys.argv[1:]]))


def made() -> str:
    """Return of when a page is, and by what."""
    return f"infercast {simulator.__version__} · {today()}"


def write(path: Path, title: str, asked: str, answer: str, sections: Sequence[PageSection]) -> None:
    """Write a page. Raises InfercastError where its file cannot be written."""
    Page(title, asked[:1].upper() + asked[1:], answer, sections, made()).save(path)
