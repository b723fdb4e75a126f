"""`infercast training`: what training a model costs, and after how many served tokens inference has cost as much."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, NamedTuple

import typer

from simulator.cli.answers.deployment_columns import evidence, side_by_side
from simulator.cli.answers.interval_columns import IntervalColumn, IntervalOptions
from simulator.cli.numbers import count, number, percent
from simulator.cli.options.deployment_options import DeploymentOptions, OutputFormat, grouped
from simulator.cli.options.offer_options import OfferOptions
from simulator.cli.options.workload_options import WorkloadOptions
from simulator.cli.output import Column, Result, Row, emit, tried
from simulator.cli.progress import progress_bar
from simulator.cli.text_layout import Format
from simulator.cost.bill import usd_per_million
from simulator.cost.energy import full_watts, power_w
from simulator.cost.packing import full_usd_per_hour
from simulator.cost.training import MFU, OPTIMAL_TOKENS_PER_PARAMETER, PUBLISHED_TIMES, equal_cost_tokens, training_of
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, NotModelledError, WorkloadError
from simulator.hardware.prices import Offer, cheapest
from simulator.questions.deployment_question import Choice
from simulator.questions.identity import identity
from simulator.questions.load_question import RunQuestion, SloQuestion
from simulator.questions.load_rows import load_row
from simulator.questions.price_question import OfferQuestion
from simulator.units import scaled
from simulator.workloads.workload import Workload

NOTES = (
    "Training: 6 N D FLOPs at MFU x the dense 16-bit peak; N parameters that a token uses, D tokens, by default 20 N.",
    "Left out: attention's pairs, failed runs, data, post-training. Five published runs took "
    f"{PUBLISHED_TIMES[0]} to {PUBLISHED_TIMES[1]} times these device hours: the range in brackets, where no MFU is "
    "given.",
    "Training takes the cheapest devices, serving the cheapest instances that hold replicas, all of them full. Equal "
    "FLOPs: inference takes 2 N per token, so after 3 D.",
)


@dataclass(frozen=True)
class TrainingOptions:
    """Options for the training run, the price of served tokens and the traffic."""

    training_tokens: Annotated[
        float | None,
        typer.Option("--training-tokens", metavar="N", help="Say 15e12.", show_default="20 per active parameter"),
    ] = None
    mfu: Annotated[
        float | None,
        typer.Option("--mfu", help="Share of the peak that training reaches.", show_default=f"{float(MFU):g}"),
    ] = None
    usd_per_million_tokens: Annotated[
        float | None,
        typer.Option("--usd-per-million-tokens", help="Price of served tokens.", show_default="simulated"),
    ] = None
    requests_per_day: Annotated[
        float | None, typer.Option("--requests-per-day", help="Adds the days until both have cost the same.")
    ] = None

    def __post_init__(self) -> None:
        for option, value, because in (
            ("--usd-per-million-tokens", self.usd_per_million_tokens, "free tokens never cost as much as training"),
            ("--requests-per-day", self.requests_per_day, "without requests no day comes at which both cost the same"),
        ):
            if value is not None and not 0 < value < float("inf"):
                raise InfercastError(f"{option} {value:g}", because, "Give a finite number above 0")


class DevicePrice(NamedTuple):
    """US dollars of a training device by the hour, electricity included, and of which offer of those that count."""

    usd_per_hour: float
    offer: Offer
    offers: tuple[Offer, ...]


def device_price(deployment: Deployment, priced: OfferQuestion) -> DevicePrice:
    """Return the price of a device: the cheapest that counts; an owned one takes its electricity at full power.

    Raises ProfileError where no price list has the device, NotModelledError for spot prices, and as
    `OfferQuestion.terms` does.
    """
    terms, hardware = priced.terms(), deployment.hardware
    if terms.commitment == "spot":
        because = "what a training run loses with an instance is not modelled"
        raise NotModelledError(
            "--price spot of training", because, "Give another --price, or --usd-per-hour without --price"
        )
    found = priced.offers(deployment) or (cheapest(hardware.id, terms),)
    offer = min(found, key=lambda each: each.usd_per_device_hour)
    return DevicePrice(offer.usd_per_device_hour + offer.electricity_usd_per_hour(full_watts(hardware)), offer, found)


@grouped
def command(
    asked: DeploymentOptions,
    trained: TrainingOptions,
    users: WorkloadOptions,
    priced: OfferOptions,
    interval_options: IntervalOptions,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Say what training a model costs, and after how many served tokens inference has cost as much.

    Serving is simulated under the given load; without one, under chats of Azure's trace, all at once. Say `infercast
    training --model llama-3.1-8b --hardware h100-sxm --training-tokens 15e12`.
    """
    choices, users = asked.choices(), _load(users)

    def case(choice: Choice) -> tuple[Deployment, Row]:
        deployment = choice()
        price = device_price(deployment, priced)
        return deployment, {
            **identity(deployment),
            **_row(deployment, trained, users, price, interval_options.interval),
        }

    with progress_bar("deployments"):
        found, refused = tried([partial(case, each) for each in choices])
    rows = [row for _, row in found]
    columns = [each for each in COLUMNS if any(each.cell(row) != "-" for row in rows)]
    views = [side_by_side("Training against inference", rows, columns)]
    loads = [] if trained.usd_per_million_tokens else [f"Served: {_only_load(users).describe()}."]
    notes = [*NOTES, *loads, *dict.fromkeys(f"Price of {row['hardware']}: {row['price']}." for row in rows)]
    used = [] if trained.usd_per_million_tokens else evidence(deployment for deployment, _ in found)
    emit(Result({"training": rows}, views, notes, used, refused, _verdict(rows, trained)), form)


def _verdict(rows: list[Row], asked: TrainingOptions) -> list[str]:
    """Return what training costs, and when inference has cost as much: the one deployment, else the cheapest.

    How many tokens it is trained on is said to be assumed where nobody gave it.
    """
    best = min(rows, key=lambda row: float(row["training_usd"]))
    where = f" on {best['hardware']}" if len(rows) > 1 else ""
    model = f" {best['model']}" if len({row["model"] for row in rows}) > 1 else ""
    assumed = ""
    if asked.training_tokens is None:
        per_parameter = f"{float(OPTIMAL_TOKENS_PER_PARAMETER):g} per active parameter"
        assumed = f" on {scaled(best['training_tokens'], '')} tokens (assumed: {per_parameter})"
    trained = f"Training{model}{assumed} costs ${_rounded(best['training_usd'])}{where}"
    if best["training_usd_low"]:
        trained += f" (${_rounded(best['training_usd_low'])} to ${_rounded(best['training_usd_high'])})"
    if best["equal_cost_tokens"] is None:
        return [f"{trained}."]
    days = f", {best['equal_cost_days']:,.0f} days" if best["equal_cost_days"] else ""
    return [f"{trained}; inference has cost as much after {scaled(best['equal_cost_tokens'], '')} tokens{days}."]


def _load(users: WorkloadOptions) -> WorkloadOptions:
    """Return the load as given; without lengths chats of Azure's trace, without a rate or concurrency all at once."""
    if not (users.workload or users.trace or users.input_len or users.output_len):
        users = replace(users, workload="chat")
    return users if users.request_rate or users.max_concurrency or users.trace else replace(users, request_rate="inf")


def _row(
    deployment: Deployment, asked: TrainingOptions, users: WorkloadOptions, price: DevicePrice, level: float
) -> Row:
    training = training_of(deployment.model, deployment.hardware, asked.training_tokens, asked.mfu)
    usd = training.usd(price.usd_per_hour)
    if asked.usd_per_million_tokens is None:
        served = _served(deployment, price, users, level)
    else:
        served = _tokens_per_request(users) if asked.requests_per_day else {}
    per_million = {"usd_per_million_total_tokens": asked.usd_per_million_tokens, **NOTHING, **served}
    equal: dict[str, float | None] = {
        f"equal_cost_tokens{end}": equal_cost_tokens(usd, of_tokens) if of_tokens else None
        for end, of_tokens in (
            ("", per_million["usd_per_million_total_tokens"]),
            ("_low", per_million["usd_per_million_total_tokens_high"]),
            ("_high", per_million["usd_per_million_total_tokens_low"]),
        )
    }
    times = PUBLISHED_TIMES if asked.mfu is None else (None, None)
    ends = {f"training_usd{end}": by and usd * by for end, by in zip(("_low", "_high"), times, strict=True)}
    tokens, each = equal["equal_cost_tokens"], per_million["tokens_per_request"]
    requests = tokens / each if tokens and each else None
    return {
        "parameters": training.parameters,
        "training_tokens": training.tokens,
        "mfu": training.mfu,
        "training_flops": training.flops,
        "training_device_hours": training.device_hours,
        "price": f"{price.usd_per_hour:.3g} $/h ({', '.join(filter(None, (price.offer.provider, price.offer.date)))})",
        "usd_per_device_hour": price.usd_per_hour,
        "training_usd": usd,
        **ends,
        **per_million,
        **equal,
        "equal_cost_over_training_tokens": tokens / training.tokens if tokens else None,
        "equal_cost_requests": requests,
        "equal_cost_days": requests / asked.requests_per_day if requests and asked.requests_per_day else None,
        "equal_flops_tokens": training.equal_flops_tokens,
    }


PER_TOKEN = "usd_per_million_total_tokens"  # noqa: S105  a price
NOTHING: Row = {
    f"{PER_TOKEN}_low": None,
    f"{PER_TOKEN}_high": None,
    "usd_per_replica_hour": None,
    "tokens_per_request": None,
}


def _only_load(users: WorkloadOptions) -> Workload:
    """Return the load. Raises WorkloadError for several rates."""
    loads = users.workloads()
    if len(loads) > 1:
        raise WorkloadError("several rates", "costs are compared at one", "Give one --rate")
    return loads[0][1]


def _tokens_per_request(users: WorkloadOptions) -> Row:
    """Return the mean tokens of a request as they are asked, where nothing is simulated."""
    asked = _only_load(users).requests()
    return {"tokens_per_request": float(asked.prompt_tokens.mean() + asked.output_tokens.mean())}


def _served(deployment: Deployment, price: DevicePrice, users: WorkloadOptions, level: float) -> Row:
    """Return dollars per million tokens, prompts included, of a replica under a load, with the interval's ends.

    Of as many replicas as fill their instances, with the electricity of owned ones at this load.
    """
    scenario = RunQuestion().scenario(deployment, _only_load(users), SloQuestion().value())
    rented_usd = full_usd_per_hour(scenario.replica_size, price.offers)
    report = scenario.simulated()
    row = load_row(scenario, report, level)
    usd_per_hour = rented_usd + price.offer.electricity_usd_per_hour(power_w(deployment, report))
    ends = {"": "", "_low": "_high", "_high": "_low"}  # the more tokens, the cheaper each
    found = {
        f"{PER_TOKEN}{end}": usd_per_million(usd_per_hour, rate)
        if (rate := row[f"total_token_throughput{of}"])
        else None
        for end, of in ends.items()
    }
    tokens_per_request = (report.input_tokens + report.output_tokens) / report.completed
    return {**found, "usd_per_replica_hour": usd_per_hour, "tokens_per_request": tokens_per_request}


def _rounded(value: float) -> str:
    """Return a large number in full digits, of which three count.

    >>> _rounded(51_107_374_112_331.0)
    '51,100,000,000,000'
    """
    return f"{float(f'{value:.3g}'):,.0f}"


COLUMNS: tuple[Column, ...] = (
    Column("parameters", "parameters per token", count),
    Column("training_tokens", "training tokens", _rounded),
    Column("mfu", "MFU", percent),
    Column("training_flops", "training FLOPs", "{:.3g}".format),
    Column("training_device_hours", "training device hours", count),
    Column("training_usd", "training $", number(3)),
    IntervalColumn("training_usd", "  by published runs", _rounded),
    Column("usd_per_replica_hour", "serving $/h of a replica", number(3)),
    Column("usd_per_million_total_tokens", "serving $/M tokens, in and out", number(3)),
    IntervalColumn("usd_per_million_total_tokens", "  interval", number(3)),
    Column("equal_cost_tokens", "equal cost after tokens", _rounded),
    IntervalColumn("equal_cost_tokens", "  interval", _rounded),
    Column("equal_cost_over_training_tokens", "  over training tokens", number(3)),
    Column("equal_cost_requests", "equal cost after requests", _rounded),
    Column("equal_cost_days", "equal cost after days", number(3)),
    Column("equal_flops_tokens", "equal FLOPs after tokens", _rounded),
)
