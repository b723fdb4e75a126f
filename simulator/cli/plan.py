"""`infercast plan`: which fleet keeps the SLO in every hour while the load grows, and what it costs by the month."""

import math
import textwrap
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

from typer import Option

from simulator.cli.fleetoptions import (
    LINK_BANDWIDTH,
    LOAD_RATE,
    ColdStart,
    CurveOption,
    LinkBandwidth,
    LoadRate,
    cold_start,
    curve_of,
)
from simulator.cli.offer_options import OfferOptions
from simulator.cli.options import DeploymentOptions, Format, OutputFormat, grouped, technique_notes
from simulator.cli.output import Column, Result, Row, View, count, emit, evidence, number, sweep
from simulator.cli.progress import progress_bar
from simulator.cli.workload_options import SloOptions, WorkloadOptions, one_load
from simulator.cost.disaggregation import Disaggregation, disaggregation
from simulator.cost.plan import KINDS, FleetCheck, FleetPlan, GrowingLoad, Picked, Scaling, cheapest, plan
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, WorkloadError
from simulator.questions.deployment_question import Choice
from simulator.questions.identity import identity
from simulator.reports.provenance import Provenance
from simulator.simulation.disaggregation import LINK_BYTES_PER_S, LINK_LATENCY_S
from simulator.units import parse
from simulator.workloads.arrivals import OpenLoop

WIDTH = 80
SHOWN_MONTHS = 6  # as many rows and the last month: the screen has 24 lines; json and csv have all
MEANS = {
    "static": "always on, sized for the month's highest rate",
    "scheduled": "by the hour of the day",
    "autoscaled": "by load",
}


@dataclass(frozen=True)
class PlanOptions:
    """Options for how the load grows, and for what a fleet keeps in reserve."""

    growth: Annotated[str, Option("--growth", metavar="SHARE", help="Of the load, per month: 10% or 0.1.")] = "0%"
    months: Annotated[int, Option("--months", min=1, max=120, help="To plan for.")] = 12
    rate_curve: CurveOption = ""
    headroom: Annotated[str, Option("--headroom", metavar="SHARE", help="On top of every rate.")] = "10%"
    spare: Annotated[int, Option("--spare", min=0, help="Replicas that may fail: 1 is N+1.")] = 0
    cold_start: ColdStart = ""
    load_rate: LoadRate = LOAD_RATE
    disaggregate: Annotated[
        bool, Option("--disaggregate", help="Search prefill and decode pools; do they serve more than as many mixed?")
    ] = False
    link_bandwidth: LinkBandwidth = LINK_BANDWIDTH

    def __post_init__(self) -> None:
        if self.link_bandwidth != LINK_BANDWIDTH and not self.disaggregate:
            given = "--link-bandwidth without --disaggregate"
            raise InfercastError(given, "it would change nothing", "Give --disaggregate too")

    def split(self, best: FleetPlan) -> Disaggregation | None:
        """Return the plan's largest fleet, without spares, split in two pools; None if not asked or of one replica."""
        replicas = max(each.most for each in best.months) - best.sizing.spare
        if not self.disaggregate or replicas < 2:
            return None
        return disaggregation(best.scenario, best.capacity, replicas, parse(self.link_bandwidth, "bytes_per_s"))

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


def share(text: str, option: str) -> float:
    """Return a share that was written as 10% or as 0.1. Raises InfercastError for anything else.

    >>> share("12.5%", "--growth"), share("0.2", "--growth")
    (0.125, 0.2)
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InfercastError(f"{option} {text}", "it is not a share", f"Give, say, {option} 10%")
    return value


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    planned: PlanOptions,
    priced: OfferOptions,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Plan a fleet by the month as the load grows: always on, by the hour or autoscaled; the cheapest, checked.

    --request-rate is the mean of the first month; --rate-curve gives it the shape of a day. The fleet that is chosen is
    simulated where its load is highest, on other random numbers, as it is and with one replica less.
    """
    slo, choices = accepted.value(), asked.choices()  # first: it opens the user's own profiles, of workloads too
    _, workload = one_load(users)
    demand, headroom = planned.demand(workload.arrivals), share(planned.headroom, "--headroom")

    def case(index: int, choice: Choice) -> FleetPlan:
        progress(index, len(choices))
        deployment = choice()
        offers, interruptions = priced.offers(deployment), priced.interruptions()
        scenario = Scenario(deployment, workload, slo, offers, interruptions=interruptions)
        return plan(scenario, demand, headroom, planned.spare, planned.scaling(deployment))

    with progress_bar("deployments") as progress:
        found, refused = sweep([partial(case, *each) for each in enumerate(choices)])
        picked = cheapest(found)
    best = picked.plan if picked else found[0]
    rows: list[Row] = [{**identity(each.scenario.deployment), **row._asdict()} for each in found for row in each.months]
    verdict = _verdict(picked) if picked else [f"No fleet keeps the SLO in simulation ({slo})."]
    pools = planned.split(best)
    if planned.disaggregate:
        verdict.append(_pools(pools))
    checks = [each._asdict() for each in (*(picked.failed if picked else ()), *([picked.check] if picked else ()))]
    notes = [*(_comparison(found) if len(found) > 1 else ()), *_basis(best)]
    notes += technique_notes([best.scenario.deployment])
    sections: dict[str, list[Row]] = {"checks": [*checks], "months": rows}
    if pools:
        sections = {"disaggregation": [{**asdict(pools), "gain": pools.gain}], **sections}
    used = [*evidence([best.scenario.deployment]), *(planned.guesses() if pools else ())]
    view = _months_view(best, "\n".join(_wrapped(verdict)))
    emit(Result(sections, [view], _wrapped(notes), used, refused), form)


def _wrapped(sentences: list[str]) -> list[str]:
    return [line for each in sentences for line in textwrap.wrap(each, WIDTH, break_on_hyphens=False)]


def _pools(found: Disaggregation | None) -> str:
    """Say whether a prefill and a decode pool serve more than as many mixed replicas."""
    if found is None:
        return "Disaggregated: not possible, one replica serves the load and each pool needs one."
    mixed = f"{found.replicas} mixed replicas serve {found.mixed_per_s:.3g}/s within the SLO"
    if not found.split_per_s:
        return f"Disaggregated: no; {mixed}, no split of them a quarter of that."
    split = f"{found.prefill} prefill and {found.replicas - found.prefill} decode replicas {found.split_per_s:.3g}/s"
    return f"Disaggregated: {'yes' if found.gain > 0 else 'no'}; {mixed}, {split} ({found.gain:+.0%})."


def _verdict(picked: Picked) -> list[str]:
    """Say which fleet, at what price, and what its simulation showed."""
    best, check = picked.plan, picked.check
    months = [each for each in best.months if each.kind == check.kind]
    first, last = months[0], months[-1]
    sizes = f"{first.least} to {last.most} replicas" if first.least < last.most else f"{last.most} replicas"
    total = best.usd(check.kind)
    price = ""
    if math.isfinite(total):
        later = f", ${last.usd:,.0f} in month {last.month + 1}" if last.usd != first.usd else ""
        price = f": ${first.usd:,.0f} a month{later}, ${total:,.0f} in all"
    said = [f"{check.kind.capitalize()} fleet ({MEANS[check.kind]}) of {best.scenario.deployment}, {sizes}{price}."]
    less = "" if check.within_one_less is None else f"; with one less, {check.within_one_less:.1%}"
    busiest = f"Simulated in month {check.month + 1}, where it is busiest, with {check.replicas} replicas"
    said.append(f"{busiest}: {check.within:.1%} of requests keep the SLO, {best.scenario.slo}{less}.")
    return said + [_failed(each) for each in picked.failed]


def _failed(check: FleetCheck) -> str:
    return f"A cheaper {check.kind} fleet keeps it for {check.within:.1%} of requests only, in month {check.month + 1}."


def _comparison(plans: list[FleetPlan]) -> list[str]:
    """Say what each deployment's fleets cost in all."""
    said = []
    for each in plans:
        usd = [f"{kind} ${each.usd(kind):,.0f}" for kind in each.kinds if math.isfinite(each.usd(kind))]
        rate = f"{each.capacity.rate_per_s:.3g} requests/s a replica"
        said.append(f"{each.scenario.deployment}: {rate}; over all months {', '.join(usd) or 'no price'}.")
    return said


def _basis(best: FleetPlan) -> list[str]:
    sizing, demand = best.sizing, best.demand
    rented = best.packing(max(each.most for each in best.months)).describe() if best.scenario.offers else "no price"
    return [
        f"{demand.in_month(0).describe()}, growing {demand.growth_per_month:.0%} a month; "
        f"headroom {sizing.headroom:.0%}, {sizing.spare} spare, cold start {best.scaling.cold_start_s:.0f} s.",
        *(["Months between: --format json, csv."] if _stride(demand.months) > 1 else []),
        f"At most: {rented}. Scheduled and autoscaled fleets pay for what is up, start included.",
    ]


def _months_view(best: FleetPlan, title: str) -> View:
    """Return a row for some months: its rates, and replicas and dollars of each kind of fleet."""
    rows: list[Row] = []
    months = best.demand.months
    for month in sorted({*range(0, months, _stride(months)), months - 1}):
        fleets = [each for each in best.months if each.month == month]
        rates = {"month": month + 1, "mean_per_s": fleets[0].mean_per_s, "peak_per_s": fleets[0].peak_per_s}
        sizes = {f"{each.kind}_replicas": _sizes(each.least, each.most) for each in fleets}
        rows.append({**rates, **sizes, **{f"{each.kind}_usd": each.usd for each in fleets}})
    columns = [
        Column("month", "month", str),
        Column("mean_per_s", "mean/s", number(3)),
        Column("peak_per_s", "peak/s", number(3)),
    ]
    for kind in (kind for kind in KINDS if kind in best.kinds):
        columns += [Column(f"{kind}_replicas", kind, str), Column(f"{kind}_usd", "$", count)]
    return View(title, columns, rows, tight=True)


def _stride(months: int) -> int:
    return math.ceil(months / SHOWN_MONTHS)


def _sizes(least: int, most: int) -> str:
    return str(most) if least == most else f"{least}-{most}"
