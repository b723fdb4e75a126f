"""An interval on every predicted number: its columns for json and csv, and a table for people."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from typer import Option

from simulator.cli.output import Column, Row, View, number
from simulator.questions.row_intervals import ENDS


@dataclass(frozen=True)
class IntervalOptions:
    """How much an interval holds."""

    interval: Annotated[
        float, Option("--interval", min=0.5, max=0.95, help="Share of measurements that intervals hold.")
    ] = 0.8


@dataclass(frozen=True, slots=True)
class Span(Column):
    """A column that prints the interval of a value: its ends without repeating their sign or unit."""

    def cell(self, row: Row) -> str:
        """Print both ends; a dash for none, inf for no upper end."""
        low, high = row[f"{self.key}_low"], row[f"{self.key}_high"]
        return "-" if low is None else f"{self.show(low)}-{'inf' if high is None else self.show(high)}"


BASIS = Column("interval_basis", "rests on", left=True)


def spans(columns: Sequence[Column], rows: Sequence[Row], level: float) -> View:
    """Return the table of intervals: what tells the rows apart, then spans, then what they rest on."""
    return View(f"Held-out {level:.0%} intervals", [*columns, BASIS], rows)


def by_metric(names: Sequence[str], stats: Sequence[str], totals: Mapping[str, str], row: Row, level: float) -> View:
    """Return the intervals of one run: a line per latency, its statistics side by side, and one per predicted total."""
    basis = {"interval_basis": row["interval_basis"]}
    lines: list[Row] = [
        {"metric": f"{name.upper()} ms", **basis}
        | {f"{stat}_{end}": row[f"{stat}_{name}_ms_{end}"] for stat in stats for end in ENDS}
        for name in names
    ]
    blank = dict.fromkeys(f"{stat}_{end}" for stat in stats for end in ENDS)
    for key, heading in totals.items():
        if row[f"{key}_low"] is not None:
            lines.append({"metric": heading, **basis, **blank} | {f"mean_{end}": row[f"{key}_{end}"] for end in ENDS})
    return spans([Column("metric", "", left=True), *(Span(stat, stat, number(3)) for stat in stats)], lines, level)


def explained(rows: Iterable[Row]) -> list[str]:
    """Say what intervals mean, and where one has no upper end."""
    lows = ((row, key) for row in rows for key, value in row.items() if key.endswith("_low") and value is not None)
    return [RESTS, *([ENDLESS] if any(row[f"{key.removesuffix('low')}high"] is None for row, key in lows) else [])]


ENDLESS = (
    "inf (null in json): with the longest steps that measurements of throughput allow at this level the queue grows "
    "without end, or no number of replicas keeps the SLO."
)
RESTS = "Held-out intervals; docs/accuracy.md says what they rest on: measured, fitted, family or guess."
