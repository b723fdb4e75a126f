"""`infercast simulate`: latencies and throughput of a deployment under a load."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

from simulator.cli.explain import ExplainOptions, queue_note, split_row, split_view, sweep_of
from simulator.cli.fitted import FittedOption, with_fitted
from simulator.cli.intervals import IntervalColumn, IntervalOptions, interval_notes, intervals_by_metric, intervals_view
from simulator.cli.options import DeploymentOptions, Format, OutputFormat, ReportFile, grouped, technique_notes
from simulator.cli.output import Column, Result, Row, View, common, count, emit, evidence, known, number, percent, sweep
from simulator.cli.run_columns import TOTALS, asked_columns, loads, rejection_notes
from simulator.cli.workload_options import RunOptions, SloOptions, WorkloadOptions, progress_bar
from simulator.cost.bounds import bounds
from simulator.cost.limiter import limiter
from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError
from simulator.html.page import refuse_ending
from simulator.questions.deployment_question import Choice
from simulator.questions.load_rows import METRICS, STATS, load_row
from simulator.reports.latency_breakdown import PARTS, saved_prefill_s
from simulator.reports.report import Report
from simulator.reports.vllm_result import GROWING
from simulator.workloads.arrivals import ClosedLoop
from simulator.workloads.workload import Workload

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
    fitted: FittedOption = False,
    page: ReportFile = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Simulate requests on one replica of a model, step by step, with the engine's own scheduling rules.

    Comma lists of deployments, settings, lengths, rates and requests in flight make every combination.
    """
    slo = accepted.value()
    refuse_ending(page)
    choices = asked.choices()  # first: it opens the user's own profiles, of workloads too
    asked_loads = [
        (served, *load)
        for one in users.each()
        for served in (run.serving(one),)
        for load in one.workloads(served.replicas)
    ]
    explain_options.check(len(choices) * len(asked_loads))

    def case(choice: Choice, run: RunOptions, rate: float | None, workload: Workload) -> Found:
        deployment = choice()
        scenario = run.scenario(deployment, workload, slo)
        with progress_bar(str(deployment)) as progress:
            report = run.report(scenario, progress)
        explain_options.write(scenario, report)
        return scenario, rate, report

    found, refused = sweep([partial(case, choice, *load) for choice in choices for load in asked_loads])
    rows = _rows(found, interval_options.interval, explain=explain_options.explain)
    if len(rows) == 1:
        explain_options.save(rows[0])
        explain_options.draw(found[0][0], found[0][2], rows[0])
    else:
        title, varying = common(rows)
        explain_options.draw_sweep(rows, [*varying, *loads(rows)], title, slo)
    result = _result(found, rows, refused, explain_options, interval_options.interval)
    of_loads = dict.fromkeys(each for scenario, _, _ in found for each in run.basis(scenario))
    result = replace(result, rests_on=[*result.rests_on, *of_loads])
    if page is not None:
        _save_page(page, result, found, rows)
    emit(with_fitted(result, (scenario.deployment for scenario, _, _ in found)) if fitted else result, form)


Found = tuple[Scenario, float | None, Report]


def _save_page(path: Path, result: Result, found: list[Found], rows: list[Row]) -> None:
    from simulator.cli.pages.load_page import save_load_page  # noqa: PLC0415  matplotlib takes half a second
    from simulator.cli.pages.sections import Ran  # noqa: PLC0415

    ran = [Ran(scenario, report, row) for (scenario, _, report), row in zip(found, rows, strict=True)]
    over = sweep_of(rows, [*common(rows)[1], *loads(rows)], "", ran[0].scenario.slo) if len(rows) > 1 else None
    save_load_page(path, result, ran, over)


def _rows(found: list[Found], level: float, *, explain: bool) -> list[Row]:
    return [
        {
            **asked_columns(scenario, rate, report),
            **load_row(scenario, report, level),
            **(split_row(report) if explain else {}),
        }
        for scenario, rate, report in found
    ]


def _result(
    found: list[Found], rows: list[Row], refused: list[InfercastError], explain_options: ExplainOptions, level: float
) -> Result:
    views = (
        [_latency_view(*found[0]), intervals_by_metric(list(METRICS), STATS, TOTALS, rows[0], level)]
        if len(found) == 1
        else [_summary_view(rows), _intervals_view(rows, level)]
    )
    deployments = [scenario.deployment for scenario, _, _ in found]
    labels = [_label(each, row, rows) for each, row in zip(found, rows, strict=True)]
    notes = [note for each, label in zip(found, labels, strict=True) for note in _notes(label, *each)]
    notes += [DEFINITIONS, *interval_notes(rows)]
    notes += technique_notes(deployments)
    if explain_options.explain:
        views += [split_view(report) for _, _, report in found]
        notes += [queue_note(report) for _, _, report in found] + [PARTS_TOLD]
    once = list(dict.fromkeys(notes))
    return Result({"simulations": rows}, views, once, evidence(deployments), refused)


def _latency_view(scenario: Scenario, _rate: float | None, report: Report) -> View:
    """Return the statistics of one run: a row per latency, with half-widths and the share within the SLO."""
    rows = []
    for name, stat in report.metrics.items():
        unknown = report.endless and name in GROWING
        values = {key: None if unknown else known(stat.values[key] * 1e3) for key in STATS}
        halves = {f"{key}_half": None if unknown else known(stat.half_widths[key] * 1e3) for key in values}
        bound = report.slo.bounds_s.get(name)
        kept = f"{report.within[name]:.1%} <= {bound * 1e3:g}" if bound and not unknown else None if bound else ""
        rows.append({"metric": f"{name.upper()} ms", **values, **halves, "within": kept})
    columns = [Column("metric", "", left=True)]
    for key in STATS:
        columns += [Column(key, key, number(3)), Column(f"{key}_half", "±", number(2))]
    if report.slo.bounds_s:
        columns.append(Column("within", "within SLO", left=True))
    return View(
        f"{scenario.deployment}, {scenario.deployment.engine.id}: {scenario.workload.describe()}", columns, rows
    )


def _intervals_view(rows: list[Row], level: float) -> View:
    named = {
        f"{stat}_{name}_ms": f"{name.upper()} {stat} ms" for name in ("ttft", "tpot") for stat in ("median", "p95")
    }
    if any(row["output_throughput_low"] for row in rows):
        named["output_throughput"] = "out tok/s"
    shown = [IntervalColumn(key, heading, number(3)) for key, heading in named.items()]
    return intervals_view([*common(rows)[1], *loads(rows), *shown], rows, level)


def _summary_view(rows: list[Row]) -> View:
    """Return one line per run, for a sweep of deployments or rates."""
    title, varying = common(rows)
    metrics = [
        Column(f"{measure}_{name}_ms", f"{name.upper()} {measure} ms", number(3))
        for name in ("ttft", "tpot", "e2el")
        for measure in ("median", "p95")
    ]
    columns = [
        *varying,
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
    return View(f"Under load: {title}", columns, rows)


def _cache_in_words(scenario: Scenario, report: Report) -> str:
    waste, hits = report.cache_waste, report.prefix_hit_rate
    empty = f", {waste:.1%} of the held blocks wasted" if waste is not None else ""
    if not hits:
        return empty
    saved_s = saved_prefill_s(report.run, scenario.table)
    return f"{empty}, {hits:.0%} of the prompts' tokens cached before, which saved {saved_s:,.3g} s of prefill"


def _too_short(report: Report) -> str:
    """Return why a run states no half-widths, and what would."""
    if report.requests_needed == math.inf:
        return "no ±: the requests come faster than full steps would serve them."
    needed = 10 ** math.floor(math.log10(report.requests_needed) - 1)
    enough = math.ceil(report.requests_needed / needed) * needed
    return f"no ±: at this load it takes {enough:,} requests to tell how far a run is off (--num-prompts)."


def _used(scenario: Scenario, report: Report) -> float:
    """Return the share of a replica's capacity that a load uses: seconds that it takes at least, in full steps."""
    counted = report.completed / len(report.run.requests)
    return min(1.0, bounds(scenario).busy_s * counted / report.duration_s / report.run.engines)


def _label(found: Found, row: Row, rows: list[Row]) -> str:
    """Return what tells a row of a sweep from the others; of a single one its deployment and rate."""
    scenario, rate, _ = found
    if len(rows) > 1:
        return ", ".join(f"{each.heading} {each.cell(row)}" for each in (*common(rows)[1], *loads(rows)))
    return f"{scenario.deployment}" + (f" at {rate:g}/s" if rate is not None else "")


def _notes(at: str, scenario: Scenario, _rate: float | None, report: Report) -> list[str]:
    mean_use, peak_use = report.cache_use
    rejected = [f"{at}: {note}" for note in rejection_notes(each.run for each in (report, *report.draws))]
    if report.endless:
        grows = f"the queue grows by {report.queue_growth_per_s:.3g} requests per second"
        grown = "TTFT, E2EL and queue time grow with it, and a p95 of them does not exist"
        return [f"{at}: OVERLOADED, {grows}: {grown}.", *rejected]
    said = [
        f"{at}: {report.output_tokens_per_s:,.0f} output and {report.total_tokens_per_s:,.0f} total tokens/s, "
        f"{report.requests_per_s:.3g} requests/s over {report.duration_s:,.0f} s; busy {report.utilisation:.0%} of the "
        f"time, where full steps would take {_used(scenario, report):.0%}, prompts {report.prompt_share:.0%} of that; "
        f"cache {mean_use:.0%} full, {peak_use:.0%} at its peak"
        f"{_cache_in_words(scenario, report)}; {int(report.run.preemptions.sum())} preemptions; "
        f"{limiter(bounds(scenario), report).sentence}.",
        *rejected,
    ]
    if report.overloaded:
        grew = f"in the second half of the trace the queue grew by {report.queue_growth_per_s:.3g} requests per second"
        said.append(f"{at}: OVERLOADED, {grew}; a longer trace would have other percentiles.")
    if report.slo.bounds_s:
        kept = f"{report.within['all']:.1%} keep every bound"
        said.append(f"{at}: {kept}: goodput {report.goodput_per_s:.3g} requests/s.")
    if not report.has_intervals():
        said.append(f"{at}: {_too_short(report)}")
    if report.skipped:
        said.append(f"{at}: the first {report.skipped} requests are left out as warm-up (MSER-5).")
    if isinstance(scenario.workload.arrivals, ClosedLoop):
        said.append(f"{at}: a closed loop; its rate is an outcome.")
    return said
