"""The page of simulated loads: what users see, up to which load the SLO is kept, and why."""

from collections.abc import Sequence
from pathlib import Path

from simulator.cli.answers.deployment_columns import labels_of
from simulator.cli.answers.load_screen import busiest, sent_load
from simulator.cli.numbers import percent
from simulator.cli.output import Result
from simulator.cli.pages.blocks import below, bullets, evidence_section, repeat_section, table_of, write
from simulator.cli.pages.sections import SimulatedRun, load_section, memory_section, request_section, step_section
from simulator.deployment.deployment import Deployment
from simulator.html.page import KeyFigure, KeyFigures, PageSection
from simulator.plots.sweep_plots import Sweep
from simulator.units import significant


def save_load_page(
    path: Path, result: Result, shown: SimulatedRun, every: Sequence[Deployment], sweep: Sweep | None
) -> None:
    """Write the page of one simulation, or of several that a sweep orders. Raises as `write` does.

    `shown`: the simulation that it looks into (`busiest` of a sweep); `every`: the deployment of each.
    """
    deployments = [each for place, each in enumerate(every) if each not in every[:place]]
    scenario, views = shown.scenario, list(result.views)
    asked = sent_load(scenario, shown.row) + (f". Asked: {scenario.slo}." if scenario.slo.bounds_s else ".")
    asked = asked if sweep is None else f"{len(every)} simulations, of which one is looked into: {asked}"
    tables = [PageSection("figures", "Every figure", [*map(table_of, views)])]
    tables = tables if sweep is None else [load_section(sweep, views, f"Latency against {sweep.x_label}")]
    of = "" if sweep is None else f" at {_named(sweep, busiest(sweep.rows, sweep.slo))}"
    sections = [
        PageSection("summary", "In figures" + of, [KeyFigures(_key_figures(shown)), *bullets(*result.notes)]),
        *tables,
        request_section(shown),
        step_section(shown),
        memory_section(deployments, labels_of(deployments)),
        evidence_section(deployments, result.rests_on),
        repeat_section(below(result)),
    ]
    names = [dict.fromkeys(each) for each in zip(*((d.model.id, d.hardware.label) for d in deployments), strict=True)]
    write(path, " on ".join(map(", ".join, names)) + " under load", asked, " ".join(result.verdict), sections)


def _named(sweep: Sweep, place: int) -> str:
    x, series = sweep.x[place], sweep.series[place]
    at = x if isinstance(x, str) else f"{x:g}"
    return f"{at} {sweep.x_label}" + (f", {series}" if series else "")


def _key_figures(ran: SimulatedRun) -> list[KeyFigure]:
    row, report = ran.row, ran.report
    found = []
    for name in ("ttft", "tpot", "e2el"):
        p95, median = row[f"p95_{name}_ms"], row[f"median_{name}_ms"]
        known = (
            f"median {significant(median)} ms" if median is not None else "grows with the run" if report.endless else ""
        )
        found.append(KeyFigure(f"{name.upper()}, p95", "-" if p95 is None else f"{significant(p95)} ms", known))
    per_s = f"{significant(row['request_throughput'])} requests/s"
    found.append(KeyFigure("Output tokens/s", significant(row["output_throughput"]), per_s))
    if report.slo.bounds_s and not report.endless:
        goodput = f"goodput {significant(report.goodput_per_s)} requests/s"
        found.append(KeyFigure("Within the SLO", f"{report.within['all']:.1%}", goodput))
    return [*found, KeyFigure("KV cache", percent(report.cache_use[0]), f"{percent(report.cache_use[1])} at its peak")]
