"""The page of simulated fleets: what users see, and replicas over time."""

from collections.abc import Sequence
from pathlib import Path

from simulator.cli.answers.deployment_columns import labels_of
from simulator.cli.output import Result
from simulator.cli.pages.blocks import below, bullets, evidence_section, repeat_section, table_of, write
from simulator.cli.pages.sections import memory_section, picture_of
from simulator.cost.service import ServiceReport
from simulator.html.page import PageSection
from simulator.plots.fleet_plots import plot_service


def save_fleet_page(path: Path, asked: str, result: Result, services: Sequence[ServiceReport]) -> None:
    """Write the page of some fleets, of what the text screen has in `result`. Raises as `write` does."""
    deployments = [each.service.deployment for each in services]
    timelines = [
        picture_of(plot_service(each), f"time-{place}", f"{each.describe()}: {_TIME}", wide=True)
        for place, each in enumerate(services)
    ]
    users = [table_of(view) for view in result.views]
    sections = [
        PageSection("users", "What users see, and the replicas", [*users, *bullets(*result.notes)]),
        PageSection("time", "Over time", timelines),
        memory_section(deployments, labels_of(deployments)),
        evidence_section(deployments, result.rests_on),
        repeat_section(below(result)),
    ]
    title = "A fleet of " + ", ".join(dict.fromkeys(map(str, deployments)))
    write(path, title, asked, " ".join(result.verdict), sections)


_TIME = "requests/s, requests in the service, replicas paid and up, and TTFT over the time of the run"
