"""`infercast plan`: which fleet keeps the SLO in every hour while the load grows, and what it costs by the month."""

from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import chain, count
from pathlib import Path

from simulator.cli.answers.interval_columns import IntervalOptions
from simulator.cli.answers.plan_screen import Searched, months_view, plan_result, verdict
from simulator.cli.options.deployment_options import DeploymentOptions, OutputFormat, ReportFile, grouped
from simulator.cli.options.fleet_options import PlanOptions
from simulator.cli.options.offer_options import PriceOptions
from simulator.cli.options.workload_options import RateOptions, SloOptions
from simulator.cli.output import Result, emit, tried
from simulator.cli.progress import progress_bar
from simulator.cli.text_layout import Format
from simulator.cost.fleet_sizing import GrowingLoad
from simulator.cost.plan import FleetPlan, cheapest, plan
from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError
from simulator.html.page import refuse_ending
from simulator.questions.deployment_question import Choice
from simulator.questions.plan_question import PlanQuestion
from simulator.questions.words import share
from simulator.reports.slo import Slo
from simulator.workloads.workload import Workload, split_by_prompt


@grouped
def command(
    asked: DeploymentOptions,
    users: RateOptions,
    accepted: SloOptions,
    planned: PlanOptions,
    priced: PriceOptions,
    interval_options: IntervalOptions,
    page: ReportFile = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Plan a fleet by the month as the load grows: always on, by the hour or autoscaled; the cheapest, checked.

    --request-rate is the mean of the first month; --rate-curve gives it the shape of a day. The fleet that is chosen is
    simulated where its load is highest, on other random numbers, as it is and with one replica less.
    """
    refuse_ending(page)
    if page is not None and planned.split_prompts:
        because = "a page shows one fleet, for all prompts"
        raise InfercastError("--report with --split-prompts", because, "Leave one of them out")
    slo, choices = accepted.value(), asked.choices()  # first: it opens the user's own profiles, of workloads too
    _, workload = users.one_load()
    demand, headroom = planned.demand(workload.arrivals), share(planned.headroom, "--headroom")

    loads = {tokens: split_by_prompt(workload, tokens) for tokens in planned.thresholds()}
    started = count()

    def case(load: Workload, growing: GrowingLoad, choice: Choice) -> FleetPlan:
        progress(next(started), len(choices) * (1 + 2 * len(loads)))
        deployment = choice()
        offers, interruptions = priced.offers(deployment), priced.interruptions()
        scenario = Scenario(deployment, load, slo, offers, interruptions=interruptions)
        return plan(scenario, growing, headroom, planned.spare, planned.scaling(deployment), planned.sessions())

    def searched(load: Workload) -> Searched:
        growing = demand.part(load.prompts.share) if load.prompts else demand
        found = search([partial(case, load, growing, each) for each in choices], planned)
        return found._replace(picked=found.picked and found.picked.with_interval(interval_options.interval))

    with progress_bar("deployments") as progress:
        whole = searched(workload)
        parts = {tokens: [searched(each) for each in both] for tokens, both in loads.items()}
    if not any(each.mixed for each in (whole, *chain.from_iterable(parts.values()))):
        raise whole.refused[0]
    guesses = planned.guesses() if planned.disaggregate else []
    result = plan_result(whole, parts, slo, [*guesses, *priced.guesses()])
    if page is not None:
        _save_page(page, whole, result, slo, priced.terms().on)
    emit(result, form)


def _save_page(page: Path, found: Searched, result: Result, slo: Slo, on: date) -> None:
    """Write the web page of one fleet for all prompts."""
    from simulator.cli.pages.plan_page import PlanAnswer

    picked = found.picked
    best, checks = (picked.plan, [*picked.failed, picked.check]) if picked else (found.plans[0], [])
    said = verdict(picked) if picked else [f"No fleet keeps the SLO in simulation ({slo})."]
    every = months_view(best, "Replicas and dollars of each kind of fleet by the month", best.demand.months)
    PlanAnswer(best, every, checks, said, on).save(page, result)


def search(calls: list[Callable[[], FleetPlan]], planned: PlanQuestion) -> Searched:
    """Return the plans of all deployments, the same in two pools where they are asked for, and the cheapest."""
    mixed, refused = tried(calls, may_all_fail=True)
    pools = [partial(planned.in_pools, each) for each in mixed if planned.disaggregate]
    pairs, no_pools = tried(pools, may_all_fail=True)
    picked = cheapest([*mixed, *(pooled for _, pooled in pairs)])
    return Searched(mixed, pairs, picked, [*refused, *no_pools])
