"""`infercast cost --batch`: what offline work costs that has to be done by a deadline, and where it costs least."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from typer import Option

from simulator.cli.answers.deployment_columns import common, evidence
from simulator.cli.answers.offer_columns import energy_guesses, price_notes
from simulator.cli.numbers import count, number
from simulator.cli.options.offer_options import PriceAndApiOptions
from simulator.cli.options.workload_options import RateOptions
from simulator.cli.output import Column, Result, Row, View, tried
from simulator.cli.progress import progress_bar
from simulator.cost.api_prices import api_prices, edition
from simulator.cost.batch_work import BatchAnswer, BatchWork, batch_answer
from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError
from simulator.questions.asked_columns import asked_columns
from simulator.questions.deployment_question import Choice
from simulator.questions.load_notes import rejection_notes
from simulator.questions.price_rows import packing_columns
from simulator.questions.row_intervals import intervals
from simulator.questions.words import seconds
from simulator.reports.intervals import PredictionRange
from simulator.units import counted, lasting
from simulator.workloads.workload import Workload

NOTES = (
    "Rented when the work begins, given back when it ends, paid by the second; hours and $ hold the start of replicas.",
)
NIGHT = "8h"


@dataclass(frozen=True)
class OfflineOptions:
    """Options for offline work: requests that are there all at once, and a deadline."""

    batch: Annotated[
        bool, Option("--batch", help="Offline work: --num-prompts requests, there at once, by --deadline.")
    ] = False
    deadline: Annotated[
        str,
        Option(
            "--deadline",
            metavar="TIME",
            help="Of --batch: from renting to the last token.",
            show_default="8h, a night",
        ),
    ] = ""
    idle_replicas: Annotated[
        int, Option("--idle-replicas", min=0, help="Of --batch: replicas of your own that are idle until then.")
    ] = 0

    def refuse_contradictions(self, online: Mapping[str, object]) -> None:
        """Raise InfercastError for `online` options with --batch, and for those of offline work without."""
        offline = {"--deadline": self.deadline, "--idle-replicas": self.idle_replicas}
        given = next((name for name, value in (online if self.batch else offline).items() if value), None)
        if given and self.batch:
            raise InfercastError(f"{given} with --batch", "offline work has a deadline only", f"Leave {given} out")
        if given:
            raise InfercastError(f"{given} without --batch", "it is about offline work", "Give --batch")


def batch_result(
    choices: list[Choice], users: RateOptions, priced: PriceAndApiOptions, offline: OfflineOptions, level: float
) -> Result:
    """Return the cost of offline work on each deployment, cheapest first, with the hours that idle replicas take."""
    deadline_s, workload = seconds(offline.deadline or NIGHT, "--deadline"), _work(users)

    def case(index: int, choice: Choice) -> BatchAnswer:
        progress(index, len(choices))
        deployment = choice()
        asked = Scenario(deployment, workload, offers=priced.offers(deployment), interruptions=priced.interruptions())
        return batch_answer(BatchWork(asked, deadline_s))

    with progress_bar("deployments") as progress:
        found, refused = tried([partial(case, *each) for each in enumerate(choices)])
    found.sort(key=lambda each: (each.usd is None, each.usd or each.seconds))
    rows = [_row(each, priced, level) for each in found]
    notes = rejection_notes([found[0].work.sample.run]) + _idle_notes(found, offline.idle_replicas, deadline_s)
    if priced.vs_api:
        notes += _api_notes(found[0], priced)
    notes += [*NOTES, *price_notes(rows)]
    used = [*evidence(each.work.scenario.deployment for each in found), *energy_guesses(), *priced.guesses()]
    verdict = [_headline(found[0], workload)]
    return Result({"answers": rows}, [_view(rows, workload, deadline_s)], notes, used, refused, verdict)


def _work(users: RateOptions) -> Workload:
    """Return the requests, there all at once. Raises InfercastError for a rate, and without a number of requests."""
    if users.request_rate:
        raise InfercastError("--batch with a rate", "all requests are there at once", "Leave it out")
    if users.num_prompts is None and users.trace is None:
        raise InfercastError("--batch without --num-prompts", "nobody said how much there is to do", "Give it")
    [(_, workload)] = replace(users, request_rate="inf").workloads()
    return workload


def _row(found: BatchAnswer, priced: PriceAndApiOptions, level: float) -> Row:
    scenario, site = found.work.scenario, priced.place()
    tokens = found.tokens
    hours = found.seconds / 3600
    kwh = None if found.watts is None else found.watts * site.pue * hours / 1000
    row: Row = {
        **asked_columns(scenario, None, found.work.sample),
        "requests": scenario.workload.request_count,
        "deadline_s": found.work.deadline_s,
        "replicas": found.replicas,
        "hours": hours,
        "usd": found.usd,
        "usd_per_million_output_tokens": found.usd and found.usd / tokens[1] * 1e6,
        "usd_per_million_total_tokens": found.usd and found.usd / sum(tokens) * 1e6,
        "kwh": kwh,
        "co2e_kg": None if kwh is None else kwh * site.grid_g_per_kwh / 1000,
        **packing_columns(found.packing, priced.terms().on),
    }
    prediction = PredictionRange(scenario.deployment, "offline", level, row)
    return {**row, **intervals(prediction, dict.fromkeys(("hours", "usd"), "1/throughput_out_tok_s"))}


def _view(rows: list[Row], workload: Workload, deadline_s: float) -> View:
    title, varying = common(rows)
    columns = [
        *varying,
        Column("replicas", "replicas", count),
        Column("paid_devices", "devices paid", count),
        Column("hours", "hours", number(3)),
        Column("usd", "$", number(3)),
        Column("usd_low", "from", number(3)),
        Column("usd_high", "to", number(3)),
        Column("usd_per_million_output_tokens", "$/M out", number(3)),
        Column("usd_per_million_total_tokens", "all", number(3)),
        Column("kwh", "kWh", number(3)),
    ]
    return View(f"{title}: {counted(workload.request_count, 'request')} within {lasting(deadline_s)}", columns, rows)


def _headline(best: BatchAnswer, workload: Workload) -> str:
    replicas = f"{best.replicas} x " if best.replicas > 1 else ""
    price = "without a price" if best.usd is None else f"${best.usd:,.4g}"
    what = f"{counted(workload.request_count, 'request')}, {sum(best.tokens) / 1e6:,.4g} million tokens"
    return f"Cheapest: {replicas}{best.work.scenario.deployment}, {price} in {lasting(best.seconds)} for {what}."


def _idle_notes(found: Iterable[BatchAnswer], idle_replicas: int, deadline_s: float) -> list[str]:
    """Say whether replicas that idle until the deadline do the work, which then costs nothing but electricity."""
    if not idle_replicas:
        return []
    said = []
    for each in found:
        work_s = each.work.seconds(idle_replicas) - each.work.scenario.start_s
        done = min(1.0, deadline_s / work_s)
        verdict = f"do it in {lasting(work_s)}" if done == 1.0 else f"do {done:.0%} of it by then"
        said.append(
            f"{idle_replicas} idle replicas of {each.work.scenario.deployment} {verdict}, for electricity alone."
        )
    return said


def _api_notes(best: BatchAnswer, priced: PriceAndApiOptions) -> list[str]:
    """Say what hosted APIs take for the work: the cheapest price of batches, and the cheapest other one."""
    model, on = best.work.scenario.deployment.model, priced.terms().on
    sample = best.work.sample
    prices = api_prices((model.id, model.name), on, round(sample.input_tokens / sample.completed))
    batches = [price.batch for price in prices if price.batch]
    said = []
    for kind, listed in (("as a batch", batches), ("at once", prices)):
        if listed:
            usd, provider = min((each.usd(*best.tokens, sample.prefix_hit_rate), each.provider) for each in listed)
            said.append(f"Hosted, {kind}: ${usd:,.4g} at {provider}, the cheapest of {len(listed)}.")
    if not batches:
        said.append(f"No provider lists a price of batches for {model.id}.")
    return [*said, f"Hosted prices: {edition(on)}."]
