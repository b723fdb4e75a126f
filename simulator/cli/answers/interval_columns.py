"""Tables of the intervals of predicted numbers, and the option that sets their level."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from typer import Option

from simulator.cli.numbers import ends, number, ranged
from simulator.cli.output import Column, Row, View
from simulator.questions.row_intervals import ENDS


@dataclass(frozen=True)
class IntervalOptions:
    """Option for the share of published measurements that an interval contains."""

    interval: Annotated[
        float, Option("--interval", min=0.5, max=0.95, help="Share of measurements that intervals hold.")
    ] = 0.8


@dataclass(frozen=True, slots=True)
class IntervalColumn(Column):
    """A column that prints the interval of a value, from `<key>_low` and `<key>_high` of a row.

    >>> IntervalColumn("ttft_ms", "TTFT ms", number(3)).cell({"ttft_ms_low": 10.0, "ttft_ms_high": None})
    '10.0 up'
    """

    def cell(self, row: Row) -> str:
        """Return both ends as text; a dash for no interval, "up" for no upper end."""
        low, high = row[f"{self.key}_low"], row[f"{self.key}_high"]
        return "-" if low is None else ends(low, high, self.show)


@dataclass(frozen=True, slots=True)
class RangedColumn(Column):
    """A column that prints a value times `factor` and, in brackets, its interval with two digits at each end.

    >>> RangedColumn("ttft_s", "TTFT ms", factor=1e3).cell({"ttft_s": 0.01234, "ttft_s_low": 0.01, "ttft_s_high": None})
    '12.3 (10 up)'
    """

    factor: float = 1.0

    def cell(self, row: Row) -> str:
        """Return the value and its interval as text, as `ranged` does."""
        return ranged(row[self.key], row[f"{self.key}_low"], row[f"{self.key}_high"], self.factor)


BASIS = Column("interval_basis", "rests on", left=True)


def intervals_view(columns: Sequence[Column], rows: Sequence[Row], level: float) -> View:
    """Return the table of intervals at `level` (0 to 1): the given columns, then the evidence on which they rest."""
    return View(f"Held-out {level:.0%} intervals", [*columns, BASIS], rows, is_detail=True)


def intervals_by_metric(
    names: Sequence[str], stats: Sequence[str], totals: Mapping[str, str], row: Row, level: float
) -> View:
    """Return the intervals of one run: a line per latency in `names` with its `stats` side by side, in milliseconds.

    `totals` (key to heading) get a line each where they have an interval.
    """
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
    columns = [Column("metric", "", left=True), *(IntervalColumn(stat, stat, number(3)) for stat in stats)]
    return intervals_view(columns, lines, level)


def interval_notes(rows: Iterable[Row]) -> list[str]:
    """Return the notes under tables of intervals: what they rest on, and why one has no upper end."""
    return [RESTS, *([ENDLESS] if _has_endless(rows) else [])]


def _has_endless(rows: Iterable[Row]) -> bool:
    """Tell whether an interval of some rows has no upper end."""
    lows = ((row, key) for row in rows for key, value in row.items() if key.endswith("_low") and value is not None)
    return any(row[f"{key.removesuffix('low')}high"] is None for row, key in lows)


ENDLESS = (
    '"up" (null in json): with the longest steps that measurements of throughput allow at this level the queue grows '
    "without end, or no number of replicas keeps the SLO."
)
RESTS = "Held-out intervals; docs/accuracy.md says what they rest on: measured, fitted, family or guess."


BASES = {
    "measured": "your own measurements",
    "fitted": "fits on such devices",
    "family": "rates of the device's family",
    "guess": "rates of its class, a guess",
}


def held_out(rows: Sequence[Row], level: float) -> str:
    """Return the note that says what the intervals of a first screen hold and what they rest on."""
    devices: dict[str, list[str]] = {}
    for row in rows:
        devices.setdefault(row["interval_basis"], []).append(row["hardware"])
    named = len(devices) > 1
    bases = (f"{BASES[b]} ({', '.join(dict.fromkeys(of))})" if named else BASES[b] for b, of in devices.items() if b)
    up = (
        ' "up": with the longest steps the queue grows without end, or no replicas keep the SLO.'
        if _has_endless(rows)
        else ""
    )
    return f"Intervals hold {level:.0%} of measurements that no fit saw; they rest on {'; '.join(bases)}.{up}"
