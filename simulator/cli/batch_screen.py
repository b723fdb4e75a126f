"""The first screen of `infercast estimate`: how fast for a user and in all, one table, what binds."""

from collections.abc import Sequence

from simulator.cli.intervals import RangedColumn
from simulator.cli.output import Column, Row, View, common, count, milliseconds, number

SPEEDUP = Column("speculation_speedup", "by drafts", lambda value: f"{value:.2f} x")
SIZE = Column("batch", "batch", count)
LENGTHS = (Column("input_tokens", "ISL", count), Column("output_tokens", "OSL", count))


def sizes(rows: Sequence[Row]) -> tuple[str, list[Column]]:
    """Return the lengths that all rows share, as text for a title, and columns for the batch and lengths that vary."""
    varying = [each for each in LENGTHS if len({row[each.key] for row in rows}) > 1]
    words = [f"{each.heading} {each.cell(rows[0])}" for each in LENGTHS if each not in varying]
    return ", ".join(words), [SIZE, *varying]


def verdict(rows: Sequence[Row]) -> list[str]:
    """Return how long a user waits and how fast text comes, the best of several batches, and what binds the steps."""
    if len(rows) == 1:
        return [_alone(rows[0]), _binds(rows)]
    first = min(rows, key=lambda row: float(row["ttft_s"]))
    most = max(rows, key=lambda row: float(row["output_tokens_per_s"]))
    said = [f"First token soonest: {_label(first, rows)}, {milliseconds(first['ttft_s'])} ms."]
    said.append(f"Most tokens in all: {_label(most, rows)}, {_per_s(most['output_tokens_per_s'])}.")
    return [" ".join(said), _binds(rows)]


def table(rows: Sequence[Row]) -> View:
    """Return the one table of the first screen; intervals stand in brackets."""
    (title, varying), (lengths, sized) = common(rows), sizes(rows)
    columns = (
        *varying,
        *sized,
        RangedColumn("ttft_s", "TTFT ms", factor=1e3),
        RangedColumn("tpot_s", "TPOT ms", factor=1e3),
        Column("tokens_per_s_user", "tok/s/user", number()),
        RangedColumn("output_tokens_per_s", "tok/s"),
        *([SPEEDUP] if any(row["speculation_speedup"] for row in rows) else []),
    )
    return View(", ".join(filter(None, (f"One batch alone: {title}", lengths))), columns, rows)


def _alone(row: Row) -> str:
    waits = f"The first token after {milliseconds(row['ttft_s'])} ms"
    in_all = f"{_per_s(row['output_tokens_per_s'])} in all"
    if row["tokens_per_s_user"] is None:
        return f"{waits}; {in_all}."
    return f"{waits}, then {_per_s(row['tokens_per_s_user'])} to each user; {in_all}."


def _per_s(tokens_per_s: float) -> str:
    return f"{number()(tokens_per_s)} tokens/s"


def _label(row: Row, rows: Sequence[Row]) -> str:
    """Return what tells a row from the others."""
    columns = [*common(rows)[1], *(each for each in (SIZE, *LENGTHS) if len({row[each.key] for row in rows}) > 1)]
    return " ".join(each.cell(row) if each.left else f"{each.heading} {each.cell(row)}" for each in columns)


def _binds(rows: Sequence[Row]) -> str:
    """Say what binds most of the prefill and of the decode steps, of all rows."""
    found = {
        phase: " or ".join(dict.fromkeys(row[f"{phase}_mostly"] for row in rows if row[f"{phase}_mostly"]))
        for phase in ("prefill", "decode")
    }
    return f"Bound by: {', '.join(f'{phase} {resource}' for phase, resource in found.items() if resource)}."
