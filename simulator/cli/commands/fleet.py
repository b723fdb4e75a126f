"""`infercast fleet`: latencies that users see, and cost, of several replicas behind a router."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.fleet_screen import ServedFleet, fleet_result, fleet_row, load_in_words
from simulator.cli.answers.interval_columns import IntervalOptions
from simulator.cli.options.deployment_options import DeploymentOptions, Details, OutputFormat, ReportFile, grouped
from simulator.cli.options.fleet_options import ClientOptions, ServiceOptions
from simulator.cli.options.offer_options import OfferOptions
from simulator.cli.options.workload_options import SloOptions, WorkloadOptions
from simulator.cli.output import emit, tried
from simulator.cli.progress import followed, progress_bar
from simulator.cli.text_layout import Format
from simulator.cost.scenario import draws_of
from simulator.errors import InfercastError, NotModelledError
from simulator.html.page import refuse_ending
from simulator.questions.deployment_question import Choice
from simulator.questions.price_question import OfferQuestion
from simulator.simulation.engine_workload import engine_workload
from simulator.workloads.workload import Workload


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    fleet: ServiceOptions,
    behaviour: ClientOptions,
    priced: OfferOptions,
    interval_options: IntervalOptions,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw load and replicas over time (.png, .svg).")
    ] = None,
    with_details: Details = False,
    page: ReportFile = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Simulate replicas behind a router: autoscaling, failures, prefill and decode pools, clients that wait.

    Latencies are what users see: from the first sending, over the network, retries included.
    """
    refuse_ending(page)
    _refuse_owned(priced)
    slo, choices = accepted.value(), asked.choices()  # first: it opens the user's own profiles, of workloads too
    loads = users.workloads()
    if behaviour.duration and users.num_prompts is not None:
        given = f"--duration {behaviour.duration} with --num-prompts {users.num_prompts}"
        raise InfercastError(given, "both say when the run ends", "Give one of the two")

    def case(choice: Choice, rate: float | None, load: Workload) -> ServedFleet:
        deployment = choice()
        service = fleet.service(deployment)
        workload, _, clients = behaviour.asked(engine_workload(load, deployment))
        counted = replace(load, request_count=workload.request_count)
        loads = draws_of(counted, deployment) if service.is_constant(clients) else [load]
        with progress_bar(str(deployment)) as progress:
            asked = (behaviour.asked(engine_workload(each, deployment)) for each in loads)
            first, *draws = [service.report(requests, who, slo, progress) for _, requests, who in asked]
        return ServedFleet(workload, rate, first.beside(draws), priced)

    found, refused = tried([partial(case, choice, rate, load) for choice in choices for rate, load in loads])
    if plot is not None:
        _save_plot(found, plot)
    rows = followed("intervals", (fleet_row(each, interval_options.interval) for each in found), len(found))
    result = fleet_result(found, rows, behaviour, interval_options.interval)
    result = replace(result, rests_on=[*result.rests_on, *fleet.guesses()], refused=refused)
    if page is not None:
        from simulator.cli.pages.fleet_page import save_fleet_page

        said = ". ".join(dict.fromkeys(load_in_words(each, behaviour) for each in found))
        save_fleet_page(page, f"{said}. Asked: {slo}.", result, [each.service for each in found])
    emit(result, form, details=with_details)


def _refuse_owned(priced: OfferQuestion) -> None:
    """Raise NotModelledError for owned replicas, and InfercastError as `OfferQuestion.terms` does."""
    if priced.terms().commitment == "owned":
        because = "what the electricity of replicas comes to that start and idle is not modelled"
        raise NotModelledError("--price owned of a fleet", because, "Ask infercast cost or plan, or rent it")


def _save_plot(found: list[ServedFleet], path: Path) -> None:
    if len(found) > 1:
        raise InfercastError(f"--plot of {len(found)} fleets", "a figure shows one", "Ask for one")
    from simulator.plots.fleet_plots import plot_service
    from simulator.plots.plot_file import save

    save(plot_service(found[0].service), path)
