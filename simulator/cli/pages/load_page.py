"""The page of simulated loads: what users see, up to which load the SLO is kept, and why."""

from collections.abc import Sequence
from pathlib import Path

from simulator.cli.output import Result, Row, labels_of, number, percent
from simulator.cli.pages.blocks import evidence_section, repeat_section, table_of, write
from simulator.cli.pages.sections import Ran, load_section, memory_section, request_section, step_section
from simulator.deployment.deployment import Deployment
from simulator.html.page import KeyFigure, KeyFigures, PageSection
from simulator.plots.sweep_plots import Sweep

three = number(3)


def save_load_page(path: Path, result: Result, shown: Ran, every: Sequence[Deployment], sweep: Sweep | None) -> None:
    """Write the page of one simulation, or of several that a sweep orders. Raises as `write` does.

    `shown`: the simulation that it looks into (`looked_into`); `every`: the deployment of each.
    """
    deployments = [each for place, each in enumerate(every) if each not in every[:place]]
    scenario, views = shown.scenario, list(result.views)
    asked = scenario.workload.describe() + (f". Asked: {scenario.slo}." if scenario.slo.bounds_s else ".")
    asked = asked if sweep is None else f"{len(every)} simulations, of which one is looked into: {asked}"
    tables = [PageSection("figures", "Every figure", [*map(table_of, views)])]
    tables = tables if sweep is None else [load_section(sweep, views, f"Latency against {sweep.x_label}")]
    of = "" if sweep is None else f" at {_named(sweep, looked_into(sweep))}"
    sections = [
        PageSection("summary", "In figures" + of, [KeyFigures(_key_figures(shown))]),
        *tables,
        request_section(shown),
        step_section(shown),
        memory_section(deployments, labels_of(deployments)),
        evidence_section(deployments, result.rests_on),
        repeat_section([*(f"Left out: {error}" for error in result.refused), *result.notes, *result.details]),
    ]
    answer = _single(shown) if sweep is None else "; ".join(_kept(sweep, name) for name in sweep.curves) + "."
    names = [dict.fromkeys(each) for each in zip(*((d.model.id, d.hardware.id) for d in deployments), strict=True)]
    write(path, " on ".join(map(", ".join, names)) + " under load", asked, answer, sections)


def looked_into(sweep: Sweep) -> int:
    """Return the place of the run that the page looks into: the knee of the first curve, or else its first load."""
    places = next(iter(sweep.curves.values()))
    return (sweep.kept(places) or places)[-1 if sweep.kept(places) else 0]


def _named(sweep: Sweep, place: int) -> str:
    x, series = sweep.x[place], sweep.series[place]
    return f"{x if isinstance(x, str) else three(x)} {sweep.x_label}" + (f", {series}" if series else "")


def _kept(sweep: Sweep, name: str) -> str:
    """Say up to which load a curve keeps the SLO; without one, over which loads it is shown."""
    places = sweep.curves[name]
    of = f"{name}: " if name else ""
    if not sweep.slo.bounds_s:
        first, last = (sweep.rows[place]["p95_ttft_ms"] for place in (places[0], places[-1]))
        ends = [f"TTFT p95 {three(first)} ms at {sweep.x[places[0]]}"] if first else []
        ends.append(f"{three(last)} ms at {sweep.x[places[-1]]} {sweep.x_label}" if last else "then the queue grows")
        return of + ", ".join(ends)
    kept = [sweep.x[place] for place in sweep.kept(places)]
    if not kept:
        return f"{of}the SLO is kept at none of these loads"
    upto = ", ".join(each if isinstance(each, str) else three(each) for each in kept)
    return f"{of}the SLO is kept {'up to' if sweep.of_load else 'at'} {upto} {sweep.x_label}"


def _single(ran: Ran) -> str:
    """Return the answer for one load: whether it keeps up, the p95 of TTFT and TPOT with their intervals."""
    report, row = ran.report, ran.row
    if report.endless:
        served = f"it serves {three(row['request_throughput'])} requests/s"
        return f"Overloaded: {served}, and the queue grows by {report.queue_growth_per_s:.3g} per second without end."
    kept = f"{report.within['all']:.1%} of requests keep the SLO" if report.slo.bounds_s else ""
    kept = kept or f"{three(row['output_throughput'])} output tokens/s"
    said = [f"{name.upper()} p95 {_with_interval(row, f'p95_{name}_ms', 'ms')}" for name in ("ttft", "tpot")]
    return f"{kept}: {', '.join(said)}. The brackets hold {row['interval']:.0%} of measurements."


def _with_interval(row: Row, key: str, unit: str) -> str:
    if row[key] is None:
        return "none"
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    ends = "" if low is None else f" ({three(low)} to {'no end' if high is None else three(high)})"
    return f"{three(row[key])} {unit}{ends}"


def _key_figures(ran: Ran) -> list[KeyFigure]:
    row, report = ran.row, ran.report
    found = []
    for name in ("ttft", "tpot", "e2el"):
        p95, median = row[f"p95_{name}_ms"], row[f"median_{name}_ms"]
        known = f"median {three(median)} ms" if median is not None else "grows with the run" if report.endless else ""
        found.append(KeyFigure(f"{name.upper()}, p95", "-" if p95 is None else f"{three(p95)} ms", known))
    per_s = f"{three(row['request_throughput'])} requests/s"
    found.append(KeyFigure("Output tokens/s", three(row["output_throughput"]), per_s))
    if report.slo.bounds_s and not report.endless:
        goodput = f"goodput {three(report.goodput_per_s)} requests/s"
        found.append(KeyFigure("Within the SLO", f"{report.within['all']:.1%}", goodput))
    return [*found, KeyFigure("KV cache", percent(report.cache_use[0]), f"{report.cache_use[1]:.0%} at its peak")]
