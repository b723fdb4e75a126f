"""`infercast plan`: which fleet keeps the SLO in every hour while the load grows, and what it costs by the month."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.cli.answers.interval_columns import IntervalOptions
from simulator.cli.answers.plan_screen import Searched, months_view, plan_result, verdict
from simulator.cli.layout import Format
from simulator.cli.options.deployment_options import DeploymentOptions, OutputFormat, ReportFile, grouped
from simulator.cli.options.fleet_options import (
    LINK_BANDWIDTH,
    LOAD_RATE,
    ColdStart,
    CurveOption,
    LinkBandwidth,
    LoadRate,
    SessionOptions,
    cold_start,
    curve_of,
)
from simulator.cli.options.offer_options import OfferOptions
from simulator.cli.options.workload_options import RateOptions, SloOptions, one_load
from simulator.cli.output import Result, emit, tried
from simulator.cli.progress import progress_bar
from simulator.cost.fleet_sizing import GrowingLoad, Scaling
from simulator.cost.plan import FleetPlan, cheapest, plan
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, WorkloadError
from simulator.html.page import refuse_ending
from simulator.questions.deployment_question import Choice
from simulator.questions.words import share, whole_numbers
from simulator.reports.provenance import Provenance
from simulator.reports.slo import Slo
from simulator.simulation.disaggregation import LINK_BYTES_PER_S, LINK_LATENCY_S
from simulator.units import parse
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.workload import Workload, split_by_prompt


@dataclass(frozen=True)
class PlanOptions(SessionOptions):
    """Options for how the load grows, for sessions, and for what a fleet keeps in reserve."""

    growth: Annotated[str, Option("--growth", metavar="SHARE", help="Of the load, per month: 10% or 0.1.")] = "0%"
    months: Annotated[int, Option("--months", min=1, max=120, help="To plan for.")] = 12
    rate_curve: CurveOption = ""
    headroom: Annotated[str, Option("--headroom", metavar="SHARE", help="On top of every rate.")] = "10%"
    spare: Annotated[int, Option("--spare", min=0, help="Replicas that may fail: 1 is N+1.")] = 0
    cold_start: ColdStart = ""
    load_rate: LoadRate = LOAD_RATE
    disaggregate: Annotated[
        bool, Option("--disaggregate", help="Search fleets in a prefill and a decode pool, too; the cheapest is taken.")
    ] = False
    link_bandwidth: LinkBandwidth = LINK_BANDWIDTH
    split_prompts: Annotated[
        str,
        Option(
            "--split-prompts",
            metavar="N,..",
            help="Also two fleets, for prompts up to N tokens and for longer ones; the cheapest is taken.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.turns > 1 and self.split_prompts:
            given = f"--split-prompts {self.split_prompts} with --turns {self.turns}"
            raise InfercastError(given, "a session's prompts grow from one fleet into the other", "Give one of the two")
        if self.link_bandwidth != LINK_BANDWIDTH and not self.disaggregate:
            given = "--link-bandwidth without --disaggregate"
            raise InfercastError(given, "it would change nothing", "Give --disaggregate too")

    def in_pools(self, mixed: FleetPlan) -> tuple[FleetPlan, FleetPlan]:
        """Return a plan, and the same with fleets in two pools. Raises as `FleetPlan.in_pools` does."""
        return mixed, mixed.in_pools(parse(self.link_bandwidth, "bytes_per_s"))

    def thresholds(self) -> list[int]:
        """Return the lengths of prompts at which two fleets are tried. Raises InfercastError for what is no list."""
        return whole_numbers(self.split_prompts, "--split-prompts") if self.split_prompts else []

    def guesses(self) -> list[Provenance]:
        """Return the guesses of a search for pools: what the user did not give."""
        found = {"link_latency_s": LINK_LATENCY_S}
        if self.link_bandwidth == LINK_BANDWIDTH:
            found["link_bandwidth"] = LINK_BYTES_PER_S
        return [Provenance("fleet", name, float(each), each.source) for name, each in found.items()]

    def demand(self, arrivals: object) -> GrowingLoad:
        """Return the rates of every month. Raises InfercastError for anything but an open loop, and for no share."""
        if not isinstance(arrivals, OpenLoop):
            given = "a plan without a rate of its own"
            raise WorkloadError(given, "only a rate grows by the month", "Give --request-rate and no trace")
        curve = curve_of(self.rate_curve, arrivals) if self.rate_curve else arrivals
        return GrowingLoad(curve, share(self.growth, "--growth"), self.months)

    def scaling(self, deployment: Deployment) -> Scaling:
        """Return what starting a replica takes."""
        return Scaling(cold_start(self.cold_start, self.load_rate, deployment))


@grouped
def command(
    asked: DeploymentOptions,
    users: RateOptions,
    accepted: SloOptions,
    planned: PlanOptions,
    priced: OfferOptions,
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
    _, workload = one_load(users)
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


def search(calls: list[Callable[[], FleetPlan]], planned: PlanOptions) -> Searched:
    """Return the plans of all deployments, the same in two pools where they are asked for, and the cheapest."""
    mixed, refused = tried(calls, may_all_fail=True)
    pools = [partial(planned.in_pools, each) for each in mixed if planned.disaggregate]
    pairs, no_pools = tried(pools, may_all_fail=True)
    picked = cheapest([*mixed, *(pooled for _, pooled in pairs)])
    return Searched(mixed, pairs, picked, [*refused, *no_pools])
