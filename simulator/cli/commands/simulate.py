"""`infercast simulate`: latencies and throughput of a deployment under a load."""

import re
from dataclasses import replace
from pathlib import Path

from simulator.cli.answers import load_screen
from simulator.cli.answers.fitted import FittedOption, with_fitted
from simulator.cli.answers.interval_columns import (
    IntervalColumn,
    IntervalOptions,
    held_out,
    interval_notes,
    intervals_by_metric,
    intervals_view,
)
from simulator.cli.answers.run_columns import TOTALS, loads
from simulator.cli.answers.run_details import ExplainOptions, split_view, sweep_of
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.layout import Format
from simulator.cli.options.deployment_options import DeploymentOptions, Details, OutputFormat, ReportFile, grouped
from simulator.cli.options.executor_options import ExecutorOptions
from simulator.cli.options.workload_options import RunOptions, SloOptions, WorkloadOptions
from simulator.cli.output import Column, Result, Row, View, common, count, emit, evidence, number, percent
from simulator.cli.progress import progress_bar
from simulator.cost.scenario import Scenario
from simulator.html.page import refuse_ending
from simulator.questions.load_question import LoadQuestion, SimulatedLoad
from simulator.questions.load_rows import METRICS, STATS
from simulator.questions.sweep import SweepAnswers, SweepCase
from simulator.reports.latency_breakdown import PARTS
from simulator.reports.slo import Slo

DEFINITIONS = (
    "TTFT: request sent to first token; E2EL: to last token. TPOT: (E2EL - TTFT) / (n - 1) per request. ITL: every gap "
    "between tokens, pooled over requests. ± is the half-width of a 95 % interval (batch means; docs/trust.md), "
    "none where the run is too short for one."
)
PARTS_TOLD = "; ".join(f"{part}: {meaning}" for part, meaning in PARTS.items()) + "."


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    explain_options: ExplainOptions,
    run: RunOptions,
    interval_options: IntervalOptions,
    run_on: ExecutorOptions,
    fitted: FittedOption = False,
    with_details: Details = False,
    page: ReportFile = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Simulate requests on one replica of a model, step by step, with the engine's own scheduling rules.

    Comma lists of deployments, settings, lengths, rates and requests in flight make every combination. With --router,
    all --replicas are simulated, behind it.
    """
    refuse_ending(page)
    question, level = LoadQuestion(asked, users, accepted, run), interval_options.interval
    cases = [SweepCase(each, level, explain_options.explain) for each in question.each()]
    explain_options.check(len(cases))
    wants_runs = page is not None or explain_options.needs_run
    if len(cases) == 1 and (wants_runs or run_on.store is None):
        done = [_simulated(cases[0].question)]
        found = SweepAnswers(cases, {0: done[0].answer(level, explain=explain_options.explain)})
    else:
        found = run_on.answers(cases, "simulations")
        again = explain_options.needs_run and len(found.rows) == 1
        done = [_simulated(each.question) for each, _ in found.answered] if again else []
    _write_files(found.rows, done, explain_options, accepted.value())
    told = form is not Format.CSV or fitted or page is not None  # csv has rows alone, of which there may be many
    scenarios = [each.question.scenario()[0] for each, _ in found.answered] if told else []
    result = _result(found, scenarios, explain_options, level)
    of_loads = dict.fromkeys(each for scenario in scenarios for each in run.basis(scenario))
    result = replace(result, rests_on=[*result.rests_on, *of_loads])
    if page is not None:
        _save_page(page, result, found, done)
    emit(with_fitted(result, (each.deployment for each in scenarios)) if fitted else result, form, details=with_details)


def _simulated(question: LoadQuestion) -> SimulatedLoad:
    """Simulate a load in this process, with a bar of its requests."""
    with progress_bar(str(question.scenario()[0].deployment)) as progress:
        return question.simulated(progress)


def _write_files(rows: list[Row], done: list[SimulatedLoad], explain_options: ExplainOptions, slo: Slo) -> None:
    """Write the files about the only simulation, or the drawing of several, that were asked for."""
    if len(rows) > 1:
        title, varying = common(rows)
        explain_options.draw_sweep(rows, [*varying, *loads(rows)], title, slo)
        return
    explain_options.save(rows[0])
    for each in done:
        explain_options.write(each.scenario, each.report)
        explain_options.draw(each.scenario, each.report, rows[0])


def _save_page(path: Path, result: Result, found: SweepAnswers[LoadQuestion], done: list[SimulatedLoad]) -> None:
    """Write the page; of a sweep only the load that it looks into is simulated again, for what no row has."""
    from simulator.cli.pages.load_page import save_load_page  # noqa: PLC0415  matplotlib: half a second
    from simulator.cli.pages.sections import Ran  # noqa: PLC0415

    rows, scenarios = found.rows, [case.question.scenario()[0] for case, _ in found.answered]
    over = sweep_of(rows, [*common(rows)[1], *loads(rows)], "", scenarios[0].slo) if len(rows) > 1 else None
    place = load_screen.busiest(rows, scenarios[0].slo)
    shown = done[place] if done else _simulated(found.answered[place][0].question)
    deployments = [each.deployment for each in scenarios]
    save_load_page(path, result, Ran(shown.scenario, shown.report, rows[place]), deployments, over)


def _result(
    found: SweepAnswers[LoadQuestion], scenarios: list[Scenario], explain_options: ExplainOptions, level: float
) -> Result:
    rows = found.rows
    if not scenarios:
        return Result({"simulations": rows}, [], [], [], found.refused)
    slo, deployments = scenarios[0].slo, [each.deployment for each in scenarios]
    given = [answer for _, answer in found.answered]
    if len(rows) == 1:
        views, said = _views_of_one(scenarios[0], rows[0], level), load_screen.verdict(rows[0], slo)
        notes, details = [*given[0].notes, held_out(rows, level)], list(given[0].remarks)
    else:
        views = [load_screen.summary(rows), _summary_view(rows), _intervals_view(rows, level)]
        said, notes = load_screen.verdict_of_several(rows, slo), [held_out(rows, level)]
        told = zip(rows, given, strict=True)
        details = [f"{load_screen.label(row, rows)}: {note}" for row, of in told for note in (*of.notes, *of.remarks)]
    notes += technique_notes(deployments)
    if explain_options.explain:
        views += [split_view(row) for row in rows]
        notes, details = [*notes, *details, PARTS_TOLD], []
    details += [DEFINITIONS, *interval_notes(rows)]
    return Result({"simulations": rows}, views, notes, evidence(deployments), found.refused, said, details)


def _views_of_one(scenario: Scenario, row: Row, level: float) -> list[View]:
    title = f"{scenario.describe()}: {scenario.workload.describe()}"
    latencies = load_screen.latencies(title, row, load_screen.LATENCIES, scenario.slo.bounds_s)
    return [latencies, _latency_view(scenario, row), intervals_by_metric(list(METRICS), STATS, TOTALS, row, level)]


def _latency_view(scenario: Scenario, row: Row) -> View:
    """Return the statistics of one run: a line per latency, with half-widths and the share within the SLO."""
    lines, bounds_s = list[Row](), scenario.slo.bounds_s
    for name in re.findall(r"\bmean_([a-z0-9]+)_ms\b", " ".join(row)):
        halves = {f"{key}_half": row[f"{key}_{name}_ms_half_width"] for key in STATS}
        lines.append({**load_screen.statistics(row, name, bounds_s.get(name)), **halves})
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
    return intervals_view([*common(rows)[1], *loads(rows), *shown], rows, level)


def _summary_view(rows: list[Row]) -> View:
    """Return all that one line per run holds, for a sweep of deployments or rates."""
    metrics = [
        Column(f"{measure}_{name}_ms", f"{name.upper()} {measure} ms", number(3))
        for name in ("ttft", "tpot", "e2el")
        for measure in ("median", "p95")
    ]
    columns = [
        *common(rows)[1],
        *loads(rows),
        *metrics,
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
