"""`infercast cost`: what a million tokens costs at a load, and on which devices it costs least."""

import math
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from simulator.cli.api_columns import Hosted, hosted
from simulator.cli.batch_cost import OfflineOptions, batch_result
from simulator.cli.fitted import FittedOption, with_fitted
from simulator.cli.intervals import IntervalColumn, IntervalOptions, interval_notes, intervals_view
from simulator.cli.offer_columns import (
    energy_columns,
    energy_guesses,
    energy_view,
    packing_columns,
    price_notes,
    spot_columns,
    spot_notes,
)
from simulator.cli.offer_options import OfferOptions
from simulator.cli.options import DeploymentOptions, Format, OutputFormat, grouped, technique_notes
from simulator.cli.output import Column, Result, Row, View, common, count, emit, evidence, number, percent, sweep
from simulator.cli.run_columns import LOADS
from simulator.cli.workload_options import SloOptions, WorkloadOptions, progress_bar
from simulator.cost.bill import Bill
from simulator.cost.capacity import Answer, Capacity, answer, capacity, ranked
from simulator.cost.packing import full_usd_per_hour
from simulator.cost.scenario import Scenario
from simulator.errors import WorkloadError
from simulator.hardware.sites import Site
from simulator.questions.asked_columns import asked_columns
from simulator.questions.deployment_question import Choice
from simulator.questions.load_rows import load_row
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.intervals import PredictionRange
from simulator.workloads.workload import Workload

NOTES = (
    "Always on: idle hours and empty devices cost what busy ones cost. $/M out, in and all divide the whole bill by "
    "one kind of token.",
    "max req/s: of one replica within the SLO; full: $/M at that rate; replicas: as many as the asked rate needs.",
)


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    interval_options: IntervalOptions,
    priced: OfferOptions,
    offline: OfflineOptions,
    fitted: FittedOption = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the comparison (.png, .svg).")
    ] = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Compare what deployments cost per million tokens at a load, and at the highest load within the SLO.

    Comma lists of deployments, settings, lengths, rates and prices make every combination. The cheapest at each rate
    comes first; those that cannot keep the SLO come last, with what breaks. With --batch: what work costs that has a
    deadline, and no SLO.
    """
    slo, choices = accepted.value(), asked.choices()  # first: it opens the user's own profiles, of workloads too
    offline.refuse_contradictions({"--slo": accepted.slo, "--plot": plot, "--fitted": fitted})
    prices = priced.each()
    if offline.batch:
        emit(batch_result(choices, users, priced, offline, interval_options.interval), form)
        return
    loads = _loads(users)
    cases = [(choice, one, load) for choice in choices for one in prices for load in loads]
    searched: dict[tuple[Choice, WorkloadQuestion], Capacity] = {}

    def case(index: int, choice: Choice, one: OfferOptions, load: AskedLoad) -> Answer:
        progress(index, len(cases))
        deployment, key = choice(), (choice, replace(load.asked, request_rate=""))
        scenario = Scenario(deployment, load.workload, slo, one.offers(deployment), interruptions=one.interruptions())
        found = answer(scenario, load.rate_per_s, searched.get(key))
        searched[key] = found.capacity
        return found

    with progress_bar("deployments") as progress:
        found, refused = sweep([partial(case, index, *each) for index, each in enumerate(cases)])
    found = sorted(ranked(found), key=lambda each: each.rate_per_s)
    rows = answer_rows(found, interval_options.interval, prices[0])
    if plot is not None:
        _draw(found, rows, str(slo), plot)
    title = f"{loads[0].workload.describe()}; {slo}" if len(loads) == 1 else str(slo)
    result = replace(_result(found, rows, prices, title, interval_options.interval), refused=refused)
    emit(with_fitted(result, (each.scenario.deployment for each in found)) if fitted else result, form)


def _result(found: list[Answer], rows: list[Row], prices: list[OfferOptions], title: str, level: float) -> Result:
    """Return the tables and sentences of the answers, the cheapest at each rate first."""
    views = details(rows, prices[0], title, level)
    api = hosted(found, prices[0].terms()) if prices[0].vs_api else Hosted([], [], [])
    deployments = [each.scenario.deployment for each in found]
    paid = [*price_notes([row for row in rows if row["replicas"]]), *spot_notes(rows)]
    drafted = technique_notes(deployments)
    notes = [*_headlines(found), *api.notes, *NOTES, *interval_notes(rows), *drafted, *paid]
    used = [*evidence(deployments), *energy_guesses(), *(each for one in prices for each in one.guesses())]
    sections = {"api": api.rows, "answers": rows} if api.views else {"answers": rows}
    return Result(sections, [*views[:-1], *api.views, views[-1]], notes, used, flat=not api.views)


def details(rows: list[Row], priced: OfferOptions, title: str, level: float) -> list[View]:
    """Return the tables of all figures of some answers; the last says why."""
    energy = energy_view(_varying(rows), rows, priced.place())
    return [_bills_view(rows, title), _latency_view(rows), energy, _intervals_view(rows, level), _reasons_view(rows)]


def _draw(found: list[Answer], rows: list[Row], slo: str, path: Path) -> None:
    """Draw the answers at one rate side by side, at several over the rate."""
    from simulator.plots.cost_plots import plot_costs  # noqa: PLC0415  matplotlib takes half a second
    from simulator.plots.roofline_plots import save  # noqa: PLC0415
    from simulator.plots.sweep_plots import plot_cost_curves  # noqa: PLC0415

    if len({each.rate_per_s for each in found}) > 1:
        save(plot_cost_curves(rows, _series(rows), f"{common(rows)[0]}; {slo}"), path)
    else:
        save(plot_costs(found, rows), path)


class AskedLoad(NamedTuple):
    """A load without lists, its rate in requests/s and its workload."""

    asked: WorkloadQuestion
    rate_per_s: float
    workload: Workload


def _loads(users: WorkloadOptions) -> list[AskedLoad]:
    """Return every load of the lists. Raises WorkloadError for a closed loop."""
    found = [(one, *load) for one in users.each() for load in one.workloads()]
    if any(rate is None for _, rate, _ in found):
        raise WorkloadError("a closed loop", "its rate is an outcome, so no number of replicas follows", "Give --rate")
    return [AskedLoad(one, rate or 0.0, workload) for one, rate, workload in found]


def answer_rows(found: list[Answer], level: float, priced: OfferOptions) -> list[Row]:
    """Return a row of all figures for each answer; those at several rates share the intervals of their capacity."""
    known: dict[int, list[float]] = {}
    site, on = priced.place(), priced.terms().on
    rows: list[Row] = []
    for each in found:
        ends_per_s = known.setdefault(id(each.capacity), []) or _capacity_ends(each, level)
        known[id(each.capacity)] = ends_per_s
        row = {**_figures(each, level, site), **packing_columns(each.packing, on)}
        rows.append({**row, **_capacity_intervals(each, row, ends_per_s)})
    return rows


def _series(rows: list[Row]) -> list[str]:
    """Return a name for each row from all that varies but the rate."""
    columns = [each for each in _varying(rows) if each.key != "asked_rate_per_s"]
    return [" ".join(each.cell(row) for each in columns) for row in rows]


AT_CAPACITY = tuple(f"at_capacity_usd_per_million_{kind}_tokens" for kind in ("output", "input", "total"))
AT_LOAD = (
    "usd_per_hour",
    "usd_per_month",
    *(f"usd_per_million_{kind}_tokens" for kind in ("output", "input", "total")),
)


def _capacity_ends(found: Answer, level: float) -> list[float]:
    """Return the least and the highest max req/s of one replica: the search with the longest and shortest steps."""
    scenario, highest = found.scenario, found.capacity.rate_per_s

    def capacity_per_s(step_factor: float) -> float:
        return capacity(scenario.with_steps(step_factor)).rate_per_s

    prediction = PredictionRange(scenario.deployment, "open_loop", level, highest, capacity_per_s)
    return [min(highest, *prediction.others), max(highest, *prediction.others)]


def _capacity_intervals(found: Answer, row: Row, ends_per_s: list[float]) -> Row:
    """Return the intervals of the highest rate of one replica, and of the replicas and bills that follow from it.

    A high of None: no upper end, because with the longest steps no rate keeps the SLO.
    """
    (least, most), highest = ends_per_s, found.capacity.rate_per_s
    scenario = found.scenario
    ends: dict[str, Any] = {"capacity_per_s_low": least, "capacity_per_s_high": most}
    for end, rate_per_s in (("low", most), ("high", least)):
        replicas = math.ceil(found.rate_per_s / rate_per_s) if rate_per_s and found.replicas else None
        ends[f"replicas_{end}"] = replicas
        packing = scenario.packing(replicas) if replicas and found.packing else None
        for name in AT_LOAD:
            ends[f"{name}_{end}"] = packing and row[name] * packing.usd_per_hour / row["usd_per_hour"]
        for name in AT_CAPACITY:
            ends[f"{name}_{end}"] = (row[name] and row[name] * highest / rate_per_s) if rate_per_s else None
    return ends


def _figures(found: Answer, level: float, site: Site) -> Row:
    scenario = found.scenario
    full = full_usd_per_hour(scenario.replica_size, scenario.offers) if scenario.offers else None
    at_load = asdict(found.at_load) if found.at_load else dict.fromkeys(BILL)
    at_capacity = asdict(found.at_capacity) if found.at_capacity else dict.fromkeys(BILL)
    return {
        **asked_columns(scenario, found.rate_per_s / max(found.replicas, 1), found.report),
        **load_row(scenario, found.report, level),
        "asked_rate_per_s": found.rate_per_s,
        "slo": str(scenario.slo),
        "meets_slo": found.capacity.rate_per_s > 0,
        "replicas": found.replicas,
        "capacity_per_s": found.capacity.rate_per_s,
        "load_of_capacity": found.rate_per_s / found.replicas / found.capacity.rate_per_s if found.replicas else None,
        **at_load,
        **{f"at_capacity_{name}": value for name, value in at_capacity.items()},
        "usd_per_device_hour": full and full / scenario.deployment.devices,
        **energy_columns(found, site),
        **spot_columns(found),
        "breaks": found.capacity.breaks,
        "why": found.why,
    }


BILL = tuple(each.name for each in fields(Bill))


def _bills_view(rows: list[Row], load: str) -> View:
    title = common(rows)[0]
    dollars = number(3)
    columns = [
        *_varying(rows),
        Column("replicas", "replicas", lambda replicas: count(replicas) if replicas else "-"),
        Column("usd_per_hour", "$/h", dollars),
        Column("usd_per_month", "$/month", count),
        Column("usd_per_million_output_tokens", "$/M out", dollars),
        Column("usd_per_million_input_tokens", "$/M in", dollars),
        Column("usd_per_million_total_tokens", "$/M all", dollars),
        Column("at_capacity_usd_per_million_output_tokens", "full: out", dollars),
        Column("at_capacity_usd_per_million_total_tokens", "all", dollars),
    ]
    return View(f"{title}: {load}", columns, rows)


def _latency_view(rows: list[Row]) -> View:
    columns = [
        *_varying(rows),
        Column("p95_ttft_ms", "TTFT p95 ms", number(3)),
        Column("p95_tpot_ms", "TPOT p95 ms", number(3)),
        Column("capacity_per_s", "max req/s", number(3)),
        Column("load_of_capacity", "load", percent),
    ]
    return View("What users get", columns, rows)


def _intervals_view(rows: list[Row], level: float) -> View:
    dollars = number(3)
    shown = [
        IntervalColumn("replicas", "replicas", count),
        IntervalColumn("usd_per_million_output_tokens", "$/M out", dollars),
        IntervalColumn("at_capacity_usd_per_million_output_tokens", "full: $/M out", dollars),
        IntervalColumn("p95_ttft_ms", "TTFT p95 ms", number(3)),
        IntervalColumn("p95_tpot_ms", "TPOT p95 ms", number(3)),
        IntervalColumn("capacity_per_s", "max req/s", number(3)),
    ]
    return intervals_view([*_varying(rows), *shown], rows, level)


ASKED = (
    *LOADS[:-2],
    Column("asked_rate_per_s", "rate /s", lambda rate: f"{rate:g}"),
    Column("price_commitment", "price", left=True),
)


def _varying(rows: list[Row]) -> list[Column]:
    """Return columns for what varies among deployments, loads and prices; the device where nothing does."""
    asked = (each for each in ASKED if len({row[each.key] for row in rows} - {None}) > 1)  # None: nothing is rented
    varying = [*common(rows)[1], *asked]
    return varying or [Column("hardware", "hardware", left=True)]


def _reasons_view(rows: list[Row]) -> View:
    return View("Why", [*_varying(rows), Column("why", "", left=True)], rows)


def _headlines(found: list[Answer]) -> list[str]:
    """Return the cheapest of each rate."""
    rates = sorted({each.rate_per_s for each in found})
    return [line for rate in rates for line in _headline([each for each in found if each.rate_per_s == rate])]


def _headline(found: list[Answer]) -> list[str]:
    best, bill = found[0], found[0].at_load
    if not best.replicas:
        return ["None of these keeps the SLO."]
    if bill is None:
        return ["None of those that keep the SLO has a price; --usd-per-hour takes your own."]
    replicas = f"{best.replicas} replicas of " if best.replicas > 1 else ""
    price = f"${bill.usd_per_million_output_tokens:.3g} per million output tokens at {best.rate_per_s:g} requests/s"
    return [f"Cheapest: {replicas}{best.scenario.deployment}, ${bill.usd_per_hour:.3g} per hour, {price}."]
