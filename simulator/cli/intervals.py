"""An interval on every predicted number: its columns for json and csv, and a table for people."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from typer import Option

from simulator.cli.output import Column, Row, View, number
from simulator.reports.intervals import PredictionRange


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


def regime_of(concurrency: int, requests: int) -> str:
    """Return the regime of measurements that a load belongs to: 0 in flight is an open loop, all of them offline.

    >>> regime_of(0, 100), regime_of(8, 100), regime_of(100, 100)
    ('open_loop', 'closed_loop', 'offline')
    """
    if not concurrency:
        return "open_loop"
    return "offline" if concurrency >= requests else "closed_loop"


def intervals(of: PredictionRange[Row], metrics: Mapping[str, str]) -> Row:
    """Return `<key>_low` and `<key>_high` of a row's values, and what they rest on; a high of None has no upper end.

    `metrics` gives each key the metric of measurements whose errors it has, as `PredictionRange.ends` takes it.
    """
    found: dict[str, float | None] = {}
    for key, metric in metrics.items():
        known = of.found[key] is not None
        low, high = of.ends(metric, partial(_endless_as_inf, key)) if known else (None, None)
        found |= {f"{key}_low": low, f"{key}_high": None if high == math.inf else high}
    return {**found, "interval": of.level, "interval_basis": of.basis}


def _endless_as_inf(key: str, row: Row) -> float:
    return math.inf if row[key] is None else float(row[key])


ENDS = ("low", "high")
BASIS = Column("interval_basis", "rests on", left=True)


def spans(columns: Sequence[Column], rows: Sequence[Row], level: float) -> View:
    """Return the table of intervals: what tells the rows apart, then spans, then what they rest on."""
    return View(f"Intervals: {level:.0%} of measurements lie within", [*columns, BASIS], rows)


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
    "without end, or no number of copies keeps the SLO."
)
RESTS = (
    "Intervals hold that share of published measurements of such a metric and load, none seen by the fit; they rest on "
    "your own (measured), on this device family and engine (fitted), on others (family) or on a guess. At a rate they "
    "also hold the same load with the shortest and the longest steps that measurements of throughput allow."
)
