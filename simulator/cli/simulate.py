"""`infercast simulate`: what users of a deployment see under a load."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from simulator.cli.options import DeploymentOptions, Format, OutputFormat, grouped
from simulator.cli.output import (
    Column,
    Result,
    Row,
    View,
    common,
    count,
    emit,
    evidence,
    identity,
    number,
    percent,
    sweep,
)
from simulator.cli.users import SloOptions, WorkloadOptions, progress_bar
from simulator.deployment import Deployment
from simulator.plan import Scenario, binding
from simulator.report import QUANTILES, Report
from simulator.workload import ClosedLoop, Workload

DEFINITIONS = (
    "TTFT: request sent to first token; E2EL: to last token. TPOT: (E2EL - TTFT) / (n - 1) per request. ITL: every gap "
    "between tokens, pooled over requests. ± is the half-width of a 95 % interval (batch means), "
    "none where a section of the run has too few values."
)


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    keep_warm_up: Annotated[
        bool, typer.Option("--keep-warm-up", help="Count the first requests too, that found an empty engine.")
    ] = False,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Simulate requests on one copy of a model, step by step, with the engine's own scheduling rules.

    Comma lists of deployments and rates make every combination.
    """
    slo = accepted.value()
    choices = asked.choices()  # first: it opens the user's own profiles, of workloads too
    workloads = users.workloads()

    def case(choice: Any, rate: float | None, workload: Workload) -> tuple[Scenario, float | None, Report]:
        deployment: Deployment = choice()
        scenario = Scenario(deployment, workload, slo)
        with progress_bar(str(deployment)) as progress:
            report = scenario.report(workload, progress)
        return scenario, rate, replace(report, skipped=0) if keep_warm_up else report

    found, refused = sweep([partial(case, choice, rate, load) for choice in choices for rate, load in workloads])
    rows = [load_row(*each) for each in found]
    views = [_latencies(*found[0])] if len(found) == 1 else [_summary(rows)]
    notes = [note for each in found for note in _notes(*each)] + [DEFINITIONS]
    used = evidence(scenario.deployment for scenario, _, _ in found)
    emit(Result({"simulations": rows}, views, list(dict.fromkeys(notes)), used, refused, flat=True), form)


def load_row(scenario: Scenario, rate: float | None, report: Report) -> Row:
    """Return one run under the keys of a result file of `vllm bench serve`, and ours beside them."""
    workload = scenario.workload
    return {
        **identity(scenario.deployment),
        "endpoint_type": "infercast",
        "backend": scenario.deployment.engine.engine,
        "label": workload.name or None,
        "model_id": scenario.deployment.model.id,
        "tokenizer_id": scenario.deployment.model.id,
        "num_prompts": len(report.run.requests),
        "request_rate": "inf" if rate is None else rate,
        "burstiness": getattr(workload.arrivals, "burstiness", None),
        "max_concurrency": workload.arrivals.concurrency or None,
        **report.as_vllm(),
    }


def _latencies(scenario: Scenario, _rate: float | None, report: Report) -> View:
    rows = []
    for name, stat in report.metrics.items():
        values = {key: stat.values[key] * 1e3 for key in ("mean", *QUANTILES)}
        halves = {f"{key}_half": stat.half_widths[key] * 1e3 for key in values}
        bound = report.slo.bounds_s.get(name)
        kept = f"{report.within[name]:.1%} <= {bound * 1e3:g}" if bound else ""
        rows.append({"metric": f"{name.upper()} ms", **values, **halves, "within": kept})
    columns = [Column("metric", "", left=True)]
    for key in ("mean", *QUANTILES):
        columns += [Column(key, key, number(3)), Column(f"{key}_half", "±", number(2))]
    if report.slo.bounds_s:
        columns.append(Column("within", "within SLO", left=True))
    return View(
        f"{scenario.deployment}, {scenario.deployment.engine.id}: {scenario.workload.describe()}", columns, rows
    )


def _summary(rows: list[Row]) -> View:
    title, varying = common(rows)
    loads = Column("request_rate", "rate /s", lambda rate: rate if isinstance(rate, str) else f"{rate:g}", left=True)
    metrics = [
        Column(f"{measure}_{name}_ms", f"{name.upper()} {measure} ms", number(3))
        for name in ("ttft", "tpot", "e2el")
        for measure in ("median", "p95")
    ]
    columns = [
        *varying,
        loads,
        *metrics,
        Column("output_throughput", "out tok/s", number(3)),
        Column("request_throughput", "req/s", number(3)),
        Column("mean_num_requests_running", "at once", number(3)),
        Column("mean_kv_cache_usage", "cache", percent),
        Column("num_preemptions", "preempted", count),
    ]
    if any(row["slo_attainment"] is not None for row in rows):
        columns.append(Column("slo_attainment", "in SLO", percent))
    return View(f"Under load: {title}", columns, rows)


def _notes(scenario: Scenario, rate: float | None, report: Report) -> list[str]:
    mean_use, peak_use = report.cache_use
    at = f"{scenario.deployment}" + (f" at {rate:g}/s" if rate is not None else "")
    if report.overloaded:
        grows = f"the queue grows by {report.queue_growth_per_s:.3g} requests per second"
        return [f"{at}: OVERLOADED, {grows}; percentiles depend on how long it lasts."]
    said = [
        f"{at}: {report.output_tokens_per_s:,.0f} output and {report.total_tokens_per_s:,.0f} total tokens/s, "
        f"{report.requests_per_s:.3g} requests/s over {report.duration_s:,.0f} s; busy {report.utilisation:.0%}, "
        f"prompts {report.prompt_share:.0%} of this; cache {mean_use:.0%} full, {peak_use:.0%} at its peak; "
        f"{int(report.run.preemptions.sum())} preemptions; {binding(scenario.deployment, report)}."
    ]
    if report.slo.bounds_s:
        goodput = report.requests_per_s * report.within["all"]
        said.append(f"{at}: {report.within['all']:.1%} keep every bound: goodput {goodput:.3g} requests/s.")
    if report.skipped:
        said.append(f"{at}: the first {report.skipped} requests are left out as warm-up (MSER-5).")
    if isinstance(scenario.workload.arrivals, ClosedLoop):
        said.append(f"{at}: a closed loop; its rate is an outcome.")
    return said
