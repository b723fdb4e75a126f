"""What `infercast estimate` prints: how fast for a user and in all, one table, then the details and what binds."""

from collections.abc import Iterator, Sequence
from typing import Any

from simulator.cli.answers.deployment_columns import common, label
from simulator.cli.answers.interval_columns import IntervalColumn, RangedColumn, intervals_view
from simulator.cli.numbers import count, milliseconds, number, percent, seconds
from simulator.cli.output import Column, Row, View
from simulator.units import per_second

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


def table(rows: Sequence[Row], replicas: int = 1) -> View:
    """Return the one table of the first screen; intervals stand in brackets. `replicas` share each batch."""
    (title, varying), (lengths, sized) = common(rows), sizes(rows)
    alone = f"One batch alone on {replicas} replicas" if replicas > 1 else "One batch alone"
    columns = (
        *varying,
        *sized,
        RangedColumn("ttft_s", "TTFT ms", factor=1e3),
        RangedColumn("tpot_s", "TPOT ms", factor=1e3),
        *([] if varying else [Column("tokens_per_s_user", "tok/s/user", number())]),  # as much as fits 80 columns
        RangedColumn("output_tokens_per_s", "tok/s"),
        *([SPEEDUP] if any(row["speculation_speedup"] for row in rows) else []),
    )
    return View(", ".join(filter(None, (f"{alone}: {title}", lengths))), columns, rows)


def _alone(row: Row) -> str:
    waits = f"The first token after {milliseconds(row['ttft_s'])} ms"
    in_all = f"{_per_s(row['output_tokens_per_s'])} in all"
    if row["tokens_per_s_user"] is None:
        return f"{waits}; {in_all}."
    return f"{waits}, then {_per_s(row['tokens_per_s_user'])} to each user; {in_all}."


def _per_s(tokens_per_s: float) -> str:
    return per_second(tokens_per_s, "token")


def _label(row: Row, rows: Sequence[Row]) -> str:
    """Return what tells a row from the others."""
    varying = (each for each in (SIZE, *LENGTHS) if len({row[each.key] for row in rows}) > 1)
    return label([*common(rows)[1], *varying], row)


def _binds(rows: Sequence[Row]) -> str:
    """Say what binds most of the prefill and, where there are any, of the decode steps, of all rows."""
    phases = {"prefill": rows, "decode": [row for row in rows if row["tokens_per_s_user"] is not None]}
    found = {
        phase: " or ".join(dict.fromkeys(row[f"{phase}_mostly"] for row in of_phase if row[f"{phase}_mostly"]))
        for phase, of_phase in phases.items()
    }
    return f"Bound by: {', '.join(f'{phase} {resource}' for phase, resource in found.items() if resource)}."


def details(rows: list[Row], level: float) -> list[View]:
    """Return the tables of all figures: beside the speed of light, with intervals at `level`, and what binds."""
    return [_latency_view(rows), _intervals_view(rows, level), _binding_view(rows)]


def _with_light(key: str, heading: str, show: Any) -> tuple[Column, Column, Column]:
    """Return columns for a prediction, its speed of light, and the ratio of the two."""
    return Column(key, heading, show), Column(f"light_{key}", "light", show), Column(f"{key}_ratio", "ratio", number(3))


def _latency_view(rows: list[Row]) -> View:
    columns = (
        *common(rows)[1],
        *sizes(rows)[1],
        *_with_light("ttft_s", "TTFT ms", milliseconds),
        *_with_light("tpot_s", "TPOT ms", milliseconds),
        Column("e2el_s", "E2EL s", seconds),
        Column("tokens_per_s_user", "tok/s/user", number()),
        Column("output_tokens_per_s", "tok/s", number()),
        *([SPEEDUP] if any(row["speculation_speedup"] for row in rows) else []),
    )
    ratios = [{f"{key}_ratio": _ratio(row, key) for key in ("ttft_s", "tpot_s")} for row in rows]
    shown = [{**a, **b} for a, b in zip(rows, ratios, strict=True)]
    return View("Beside the speed of light", columns, shown, is_detail=True)


def _intervals_view(rows: list[Row], level: float) -> View:
    shown = (
        IntervalColumn("ttft_s", "TTFT ms", milliseconds),
        IntervalColumn("tpot_s", "TPOT ms", milliseconds),
        IntervalColumn("e2el_s", "E2EL s", seconds),
        IntervalColumn("tokens_per_s_user", "tok/s/user", number()),
        IntervalColumn("output_tokens_per_s", "tok/s", number()),
    )
    return intervals_view([*common(rows)[1], *sizes(rows)[1], *shown], rows, level)


def _ratio(row: Row, key: str) -> float | None:
    value: float | None = row[key]
    return None if value is None else value / float(row[f"light_{key}"])


def _binding_view(rows: list[Row]) -> View:
    columns = (
        *common(rows)[1],
        *sizes(rows)[1],
        Column("phase", "phase", left=True),
        *_with_light("s", "ms", milliseconds),
        Column("mostly", "bound by", left=True),
        Column("op", "longest op", left=True),
        Column("op_share", "share", percent),
        Column("bound", "its bound", left=True),
    )
    return View("What binds", columns, [bound for row in rows for bound in _phase_rows(row)], is_detail=True)


def _phase_rows(row: Row) -> Iterator[Row]:
    """Yield a row for each part of the TTFT (what a request takes outside the steps, prefill) and for a decode step."""
    if row["request_s"]:
        longest = {"op": row["request_op"], "op_share": row["request_op_share"], "bound": "overhead"}
        host = {"phase": "per request", "s": row["request_s"], "mostly": "overhead", **longest}
        yield {**row, **host, "light_s": 0.0, "s_ratio": None}
    steps = f"prefill, {row['prefill_steps']} steps" if row["prefill_steps"] > 1 else "prefill"
    for name, phase in (("prefill", steps), ("decode", f"decode step at {row['decode_context_tokens']:,}")):
        own = {key.replace(f"{name}_", ""): value for key, value in row.items() if f"{name}_" in key}
        mostly = f"{own['mostly']} {percent(own['mostly_share'])}"
        by = f", {number(2)(own['margin'])} x {own['runner_up']}" if own["margin"] else ""
        yield {**row, **own, "phase": phase, "s_ratio": _ratio(own, "s"), "mostly": mostly, "bound": own["bound"] + by}
