"""The first screens of `infercast simulate` and `fleet`: whether the SLO is kept, and one table of latencies."""

import math
from collections.abc import Sequence

from simulator.cli.answers.deployment_columns import common
from simulator.cli.answers.interval_columns import IntervalColumn, RangedColumn
from simulator.cli.answers.load_columns import varying_loads
from simulator.cli.numbers import count, number, percent
from simulator.cli.output import Column, Row, View
from simulator.cost.scenario import Scenario
from simulator.cost.slo_rate import MOST_OF_ASKED
from simulator.questions.load_rows import STATS
from simulator.reports.overload import QUEUES
from simulator.reports.slo import Slo
from simulator.units import per_second

LATENCIES = ("ttft", "tpot", "e2el")
TAIL = "p95"
ENOUGH = {
    "requests": "`infercast cost` says how many replicas are enough.",
    "decoding": "Give the decode pool more replicas.",
    "links": "Give faster links (--link-bandwidth), or more replicas that prefill.",
}
REJECTED_SHARE = 0.01  # of the requests, from which on the first line says so
RUN_AT = "request_rate_within_slo"  # where it is not the asked one


def sent_load(scenario: Scenario, row: Row) -> str:
    """Return what was sent, at the rate that was run; with --within-slo also the rate that was asked."""
    if RUN_AT not in row:
        return scenario.workload.describe()
    run_per_s, asked_per_s = (row[key] / scenario.shares for key in (RUN_AT, "request_rate"))
    is_capped = math.isclose(run_per_s, MOST_OF_ASKED * asked_per_s)
    most = f", and no more than {MOST_OF_ASKED:g} times as many are tried" if is_capped else ""
    return f"{scenario.workload.at_rate(float(f'{run_per_s:.3g}')).describe()}; {asked_per_s:g}/s were asked{most}"


def verdict(row: Row, slo: Slo) -> list[str]:
    """Return whether a load keeps the SLO and how sure that is; without an SLO the latencies and the throughput."""
    if _is_endless(row):
        served_per_s, queue = number(3)(row["request_throughput"]), QUEUES[row["overload"]]
        come = f"{_come(row)}, {served_per_s} are served; " if _come(row) else ""
        return [f"Overloaded: {come}{queue} grows without end. {ENOUGH[row['overload']]}"]
    if row["slo_attainment"] is None:
        tails = {name.upper(): _tail(row, name) for name in ("ttft", "tpot")}
        said = [f"{name} {TAIL} {number()(value)} ms" for name, value in tails.items() if value is not None]
        return [f"{', '.join(said)}; {per_second(row['output_throughput'], 'output token')}.", *_overload(row)]
    kept = row["slo_attainment"] >= slo.share
    shown = row["slo_attainment"] if kept else math.floor(1e3 * row["slo_attainment"]) / 1e3  # never the asked one
    share = f"{shown:.1%} of requests keep every bound, {slo.asked} are asked for"
    alone = f" for these {row['num_prompts']:,} requests alone" if kept and row["overload"] else ""
    return [f"{'Keeps' if kept else 'Breaks'} the SLO{alone}: {share}.", *_overload(row), *_doubts(row, slo)]


def rejections(rejected: int, sent: int) -> list[str]:
    """Say how many of the sent requests were rejected, where these are many: the verdict is of the others."""
    if rejected < REJECTED_SHARE * sent:
        return []
    return [f"{rejected:,} of {sent:,} requests are rejected; latencies and throughput are those of the others."]


def _is_endless(row: Row) -> bool:
    """Whether a queue grows without end, so that its latencies have no value."""
    return bool(row["overload"]) and row["p95_e2el_ms"] is None


def _come(row: Row) -> str:
    """Return at which rate requests come, "" where they have none."""
    per_s = row["request_rate"]
    if not isinstance(per_s, float):
        return ""
    return "1 request/s comes" if per_s == 1 else f"{per_s:g} requests/s come"


def _overload(row: Row) -> list[str]:
    """Say that more requests than were sent overload what serves these."""
    if not row["overload"]:
        return []
    grows_per_s = row["queue_growth_per_s"]
    if row["overloaded"]:
        grew = f"in the second half {QUEUES[row['overload']]} grew by {per_second(grows_per_s, 'request')}"
        return [f"Overloaded: {grew}; more requests would have other latencies."]
    full = "full steps of the decode pool" if row["overload"] == "decoding" else "full steps"
    if _come(row):
        per_s = number(3)(row["request_rate"] - grows_per_s)
        return [f"A longer run is overloaded: {_come(row)}, {full} serve {per_s} at most."]
    return [f"A longer run is overloaded: requests come faster than {full} serve them."]


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

    Then how many are overloaded, in the run or in a longer one, which are none of them.
    """
    good = _good(rows, slo)
    if not good:
        none = f"None of {len(rows)} keeps the SLO ({slo})."
        return [*([none] if slo.bounds_s else []), *_overloads(rows)]
    first, most = min(good, key=lambda row: float(row["p95_ttft_ms"])), rows[busiest(rows, slo)]
    kept = f"{len(good)} of {len(rows)} keep{'s' if len(good) == 1 else ''} the SLO ({slo})"
    kept = kept if slo.bounds_s else f"First token soonest: {load_label(first, rows)}"
    told = f"{kept}. Most tokens: {load_label(most, rows)}, {per_second(most['output_throughput'], 'output token')}."
    return [told, *_overloads(rows)]


def _overloads(rows: Sequence[Row]) -> list[str]:
    """Say how many loads are overloaded, which the verdict leaves out; those whose queues grow have no TTFT."""
    said, many = [], sum(_is_endless(row) for row in rows)
    if many == 1:
        said.append(f"1 of {len(rows)} is overloaded: its queue grows without end, so its TTFT is '-'.")
    elif many:
        said.append(f"{many} of {len(rows)} are overloaded: queues grow without end, so their TTFT is '-'.")
    if more := sum(bool(row["overload"]) for row in rows) - many:
        said.append(f"{more} of {len(rows)} would be, if more were sent: requests come faster than they are served.")
    return said


def busiest(rows: Sequence[Row], slo: Slo) -> int:
    """Return the place of the load that the verdict names, with most tokens; the first row where it names none."""
    return rows.index(max(_good(rows, slo), key=lambda row: float(row["output_throughput"]), default=rows[0]))


def _good(rows: Sequence[Row], slo: Slo) -> list[Row]:
    """Return the loads that keep the SLO; without one those that keep up."""
    return [row for row in rows if (row["meets_slo"] if slo.bounds_s else not row["overload"])]


def load_label(row: Row, rows: Sequence[Row]) -> str:
    """Return what tells a row of a sweep from the others."""
    return ", ".join(_named(each, row) for each in (*common(rows)[1], *varying_loads(rows)))


def _named(column: Column, row: Row) -> str:
    """Return a cell under its heading, a rate as "rate 2/s"."""
    name, per_s, _ = column.heading.partition(" /s")
    return f"{name} {column.cell(row)}{per_s.strip()}"


def latency_view(title: str, row: Row, names: Sequence[str], slo: Slo) -> View:
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
        *varying_loads(rows),
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
