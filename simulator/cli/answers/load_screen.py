"""The first screens of `infercast simulate` and `fleet`: whether the SLO is kept, and one table of latencies."""

import math
from collections.abc import Sequence

from simulator.cli.answers.deployment_columns import common
from simulator.cli.answers.interval_columns import IntervalColumn, RangedColumn
from simulator.cli.answers.load_columns import loads
from simulator.cli.numbers import count, number, percent
from simulator.cli.output import Column, Row, View
from simulator.cost.scenario import Scenario
from simulator.questions.load_rows import STATS
from simulator.reports.slo import Slo

LATENCIES = ("ttft", "tpot", "e2el")
TAIL = "p95"
ENOUGH = "`infercast cost` says how many replicas are enough."
RUN_AT = "request_rate_within_slo"  # where it is not the asked one


def sent_load(scenario: Scenario, row: Row) -> str:
    """Return what was sent, at the rate that was run; with --within-slo also the rate that was asked."""
    if RUN_AT not in row:
        return scenario.workload.describe()
    run_per_s, asked_per_s = (row[key] / scenario.shares for key in (RUN_AT, "request_rate"))
    return f"{scenario.workload.at_rate(float(f'{run_per_s:.3g}')).describe()}; {asked_per_s:g}/s were asked"


def verdict(row: Row, slo: Slo) -> list[str]:
    """Return whether a load keeps the SLO and how sure that is; without an SLO the latencies and the throughput."""
    if row["p95_ttft_ms"] is None:
        rate_per_s, served_per_s = row["request_rate"], number(3)(row["request_throughput"])
        come = f"{rate_per_s:g} requests/s come, {served_per_s} are served; " if isinstance(rate_per_s, float) else ""
        return [f"Overloaded: {come}the queue grows without end. {ENOUGH}"]
    if row["slo_attainment"] is None:
        tails = {name.upper(): _tail(row, name) for name in ("ttft", "tpot")}
        said = [f"{name} {TAIL} {number()(value)} ms" for name, value in tails.items() if value is not None]
        return [f"{', '.join(said)}; {number()(row['output_throughput'])} output tokens/s."]
    kept = row["slo_attainment"] >= slo.share
    shown = row["slo_attainment"] if kept else math.floor(1e3 * row["slo_attainment"]) / 1e3  # never the asked one
    share = f"{shown:.1%} of requests keep every bound, {slo.asked} are asked for"
    return [f"{'Keeps' if kept else 'Breaks'} the SLO: {share}.", *_doubts(row, slo)]


def _tail(row: Row, name: str, end: str = "", tail: str = TAIL) -> float | None:
    value: float | None = row.get(f"{tail}_{name}_ms{end}")
    return value


def _doubts(row: Row, slo: Slo) -> list[str]:
    """Say which bounds lie inside the interval of the latency that they bound, so that the verdict may be wrong."""
    doubted = []
    for name, bound_s in slo.bounds_s.items():
        low, high = (_tail(row, name, end, slo.tail) for end in ("_low", "_high"))
        if low is None or not low <= bound_s * 1e3 <= (high or bound_s * 1e3):
            continue
        ends = f"{number(2)(low)} to {number(2)(high)} ms" if high else f"{number(2)(low)} ms or any more"
        doubted.append(f"{name.upper()} {slo.tail} may be {ends} ({bound_s * 1e3:g} allowed)")
    return [f"Not for sure: {', '.join(doubted)}."] if doubted else []


def verdict_of_several(rows: Sequence[Row], slo: Slo) -> list[str]:
    """Return how many loads keep the SLO and which of these serves most; without an SLO the fastest and the most.

    Then how many are overloaded, which are none of them.
    """
    good = _good(rows, slo)
    if not good:
        none = f"None of {len(rows)} keeps the SLO ({slo})."
        return [none if slo.bounds_s else "All are overloaded: their queues grow without end."]
    first, most = min(good, key=lambda row: float(row["p95_ttft_ms"])), rows[busiest(rows, slo)]
    kept = f"{len(good)} of {len(rows)} keep{'s' if len(good) == 1 else ''} the SLO ({slo})"
    kept = kept if slo.bounds_s else f"First token soonest: {load_label(first, rows)}"
    told = f"{kept}. Most tokens: {load_label(most, rows)}, {number()(most['output_throughput'])} output tokens/s."
    return [told, *_overloads(rows)]


def _overloads(rows: Sequence[Row]) -> list[str]:
    """Say how many loads are overloaded, which the verdict leaves out, and that they have no TTFT."""
    if not (many := sum(row["p95_ttft_ms"] is None for row in rows)):
        return []
    if many == 1:
        return [f"1 of {len(rows)} is overloaded: its queue grows without end, so its TTFT is '-'."]
    return [f"{many} of {len(rows)} are overloaded: queues grow without end, so their TTFT is '-'."]


def busiest(rows: Sequence[Row], slo: Slo) -> int:
    """Return the place of the load that the verdict names, with most tokens; the first row where it names none."""
    return rows.index(max(_good(rows, slo), key=lambda row: float(row["output_throughput"]), default=rows[0]))


def _good(rows: Sequence[Row], slo: Slo) -> list[Row]:
    """Return the loads that keep the SLO; without one those that keep up."""
    steady = [row for row in rows if row["p95_ttft_ms"] is not None]
    return [row for row in steady if not slo.bounds_s or (row["slo_attainment"] or 0.0) >= slo.share]


def load_label(row: Row, rows: Sequence[Row]) -> str:
    """Return what tells a row of a sweep from the others."""
    return ", ".join(_named(each, row) for each in (*common(rows)[1], *loads(rows)))


def _named(column: Column, row: Row) -> str:
    """Return a cell under its heading, a rate as "rate 2/s"."""
    name, per_s, _ = column.heading.partition(" /s")
    return f"{name} {column.cell(row)}{per_s.strip()}"


def latencies(title: str, row: Row, names: Sequence[str], slo: Slo) -> View:
    """Return the statistics of one run: a line per latency in `names`, with the interval of its tail."""
    tail = slo.tail if slo.bounds_s else TAIL
    lines = [_latency(row, name, slo.bounds_s.get(name), tail) for name in names]
    columns = [Column("metric", "", left=True), *(Column(stat, stat, number(3)) for stat in STATS)]
    columns.append(IntervalColumn("tail", f"{tail} interval", number(2)))
    return View(title, [*columns, Column("within", "within SLO", left=True)] if slo.bounds_s else columns, lines)


def _latency(row: Row, name: str, bound_s: float | None, tail: str) -> Row:
    ends = {f"tail_{end}": _tail(row, name, f"_{end}", tail) for end in ("low", "high")}
    return {**statistics(row, name, bound_s), **ends}


def statistics(row: Row, name: str, bound_s: float | None) -> Row:
    """Return the statistics of a latency and the share of requests within its bound, if it has one, as `within`."""
    share = row.get(f"slo_attainment_{name}")
    kept = f"{share:.1%} <= {bound_s * 1e3:g}" if bound_s and share is not None else None if bound_s else ""
    values = {stat: row[f"{stat}_{name}_ms"] for stat in STATS}
    return {"metric": f"{name.upper()} ms", **values, "within": kept}


def summary(rows: Sequence[Row]) -> View:
    """Return one line per run, for a sweep of deployments or loads, of what 80 columns have room for."""
    title, varying = common(rows)
    columns = [
        *varying,
        *loads(rows),
        *([Column(RUN_AT, "run at /s", number(3))] if RUN_AT in rows[0] else []),
        RangedColumn(f"{TAIL}_ttft_ms", f"TTFT {TAIL} ms"),
        RangedColumn(f"{TAIL}_tpot_ms", f"TPOT {TAIL} ms"),
        Column("output_throughput", "out tok/s", number(3))
        if varying
        else RangedColumn("output_throughput", "out tok/s"),
    ]
    if any(row["failed"] for row in rows):
        columns.append(Column("failed", "rejected", count))
    if any(row["slo_attainment"] is not None for row in rows):
        columns.append(Column("slo_attainment", "in SLO", percent))
    return View(f"Under load: {title}", columns, rows)
