"""All that `infercast simulate` prints of one load, or of a sweep: the first screen, all figures, their intervals."""

import re

from simulator.cli.answers.deployment_columns import common, evidence
from simulator.cli.answers.interval_columns import (
    IntervalColumn,
    held_out,
    interval_notes,
    intervals_by_metric,
    intervals_view,
)
from simulator.cli.answers.load_columns import TOTALS, varying_loads
from simulator.cli.answers.load_screen import (
    LATENCIES,
    latency_view,
    load_label,
    rejections,
    sent_load,
    statistics,
    summary,
    verdict,
    verdict_of_several,
)
from simulator.cli.answers.run_details import split_view
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.numbers import count, number, percent
from simulator.cli.output import Column, Result, Row, View
from simulator.cost.scenario import Scenario
from simulator.questions.load_question import LoadQuestion
from simulator.questions.load_rows import METRICS, STATS
from simulator.questions.sweep import SweepAnswers
from simulator.reports.latency_breakdown import PARTS

DEFINITIONS = (
    "TTFT: request sent to first token; E2EL: to last token. TPOT: (E2EL - TTFT) / (n - 1) per request. ITL: every gap "
    "between tokens, pooled over requests. ± is the half-width of a 95 % interval (batch means; docs/trust.md), "
    "none where the run is too short for one."
)
PARTS_TOLD = "; ".join(f"{part}: {meaning}" for part, meaning in PARTS.items()) + "."


def load_result(found: SweepAnswers[LoadQuestion], scenarios: list[Scenario], level: float, *, explain: bool) -> Result:
    """Return verdict, tables and sentences of some loads, with intervals at `level`; without `scenarios` rows alone.

    `explain`: with a table for each load of where the time of its requests went.
    """
    rows = found.rows
    if not scenarios:
        return Result({"simulations": rows}, [], [], [], found.refused)
    slo, deployments = scenarios[0].slo, [each.deployment for each in scenarios]
    given = [answer for _, answer in found.answered]
    if len(rows) == 1:
        views = _views_of_one(scenarios[0], rows[0], level)
        said = [*verdict(rows[0], slo), *rejections(rows[0]["failed"], rows[0]["num_prompts"])]
        notes, details = [*given[0].notes, held_out(rows, level)], list(given[0].remarks)
    else:
        views = [summary(rows), _summary_view(rows), _intervals_view(rows, level)]
        said, notes = verdict_of_several(rows, slo), [held_out(rows, level)]
        told = zip(rows, given, strict=True)
        details = [f"{load_label(row, rows)}: {note}" for row, of in told for note in (*of.notes, *of.remarks)]
    notes += technique_notes(deployments)
    if explain:
        views += [split_view(row) for row in rows]
        notes, details = [*notes, *details, PARTS_TOLD], []
    details += [DEFINITIONS, *interval_notes(rows)]
    return Result({"simulations": rows}, views, notes, evidence(deployments), found.refused, said, details)


def _views_of_one(scenario: Scenario, row: Row, level: float) -> list[View]:
    title = f"{scenario.describe()}: {sent_load(scenario, row)}"
    first = latency_view(title, row, LATENCIES, scenario.slo)
    return [first, _latency_view(scenario, row), intervals_by_metric(list(METRICS), STATS, TOTALS, row, level)]


def _latency_view(scenario: Scenario, row: Row) -> View:
    """Return the statistics of one run: a line per latency, with half-widths and the share within the SLO."""
    lines, bounds_s = list[Row](), scenario.slo.bounds_s
    for name in re.findall(r"\bmean_([a-z0-9]+)_ms\b", " ".join(row)):
        halves = {f"{key}_half": row[f"{key}_{name}_ms_half_width"] for key in STATS}
        lines.append({**statistics(row, name, bounds_s.get(name)), **halves})
    columns = [Column("metric", "", left=True)]
    for key in STATS:
        half = [Column(f"{key}_half", "±", number(2))] if any(line[f"{key}_half"] for line in lines) else []
        columns += [Column(key, key, number(3)), *half]
    if bounds_s:
        columns.append(Column("within", "within SLO", left=True))
    return View("All latencies of this run", columns, lines, is_detail=True)


def _intervals_view(rows: list[Row], level: float) -> View:
    named = {
        f"{stat}_{name}_ms": f"{name.upper()} {stat} ms" for name in ("ttft", "tpot") for stat in ("median", "p95")
    }
    if any(row["output_throughput_low"] for row in rows):
        named["output_throughput"] = "out tok/s"
    shown = [IntervalColumn(key, heading, number(3)) for key, heading in named.items()]
    return intervals_view([*common(rows)[1], *varying_loads(rows), *shown], rows, level)


def _summary_view(rows: list[Row]) -> View:
    """Return all that one line per run holds, for a sweep of deployments or rates."""
    metrics = [
        Column(f"{measure}_{name}_ms", f"{name.upper()} {measure} ms", number(3))
        for name in ("ttft", "tpot", "e2el")
        for measure in ("median", "p95")
    ]
    columns = [
        *common(rows)[1],
        *varying_loads(rows),
        *metrics,
        Column("tokens_per_s_user", "tok/s/user", number(3)),
        Column("output_throughput", "out tok/s", number(3)),
        Column("request_throughput", "req/s", number(3)),
        Column("mean_num_requests_running", "at once", number(3)),
        Column("mean_kv_cache_usage", "cache", percent),
        *([Column("num_preemptions", "preempted", count)] if any(row["num_preemptions"] for row in rows) else []),
        *([Column("failed", "rejected", count)] if any(row["failed"] for row in rows) else []),
    ]
    if any(row["slo_attainment"] is not None for row in rows):
        columns.append(Column("slo_attainment", "in SLO", percent))
    return View("All figures", columns, rows, is_detail=True)
