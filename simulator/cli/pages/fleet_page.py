"""The page of simulated fleets: what users see, and replicas over time."""

from collections.abc import Sequence
from pathlib import Path

from simulator.cli.output import Result, labels_of
from simulator.cli.pages.blocks import evidence_section, repeat_section, table_of, write
from simulator.cli.pages.sections import drawn, memory_section
from simulator.cost.service import ServiceReport
from simulator.html.page import PageSection
from simulator.plots.fleet_plots import plot_service


def save_fleet_page(path: Path, asked: str, result: Result, services: Sequence[ServiceReport]) -> None:
    """Write the page of some fleets, of what the text screen has in `result`. Raises as `write` does."""
    deployments = [each.service.deployment for each in services]
    timelines = [
        drawn(plot_service(each), f"time-{place}", f"{each.describe()}: {_TIME}", wide=True)
        for place, each in enumerate(services)
    ]
    sections = [
        PageSection("users", "What users see, and the replicas", [table_of(view) for view in result.views]),
        PageSection("time", "Over time", timelines),
        memory_section(deployments, labels_of(deployments)),
        evidence_section(deployments, result.rests_on),
        repeat_section([*(f"Left out: {error}" for error in result.refused), *result.notes, *result.details]),
    ]
    title = "A fleet of " + ", ".join(dict.fromkeys(map(str, deployments)))
    write(path, title, asked, " ".join(map(_answer, services)), sections)


def _answer(found: ServiceReport) -> str:
    """Say what users of a service get: overload, or the p95 of TTFT and the share of requests within the SLO."""
    if found.report.overloaded:
        return f"{found.describe()}: overloaded, the queue grows by {found.report.queue_growth_per_s:.3g} per second."
    kept = f"; {found.within_share:.1%} of requests keep the SLO" if found.report.slo.bounds_s else ""
    return f"{found.describe()}: TTFT p95 {found.metrics['ttft']['p95'] * 1e3:,.3g} ms{kept}."


_TIME = "requests/s, requests in the service, replicas paid and up, and TTFT over the time of the run"
