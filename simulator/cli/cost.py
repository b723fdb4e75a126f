"""`infercast cost`: what a million tokens costs at a load, and on which devices it costs least."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.api_columns import Hosted, hosted
from simulator.cli.batch_cost import OfflineOptions, batch_result
from simulator.cli.cost_question import CostQuestion
from simulator.cli.executor_options import ExecutorOptions
from simulator.cli.fitted import FittedOption, with_fitted
from simulator.cli.intervals import (
    IntervalColumn,
    IntervalOptions,
    RangedColumn,
    held_out,
    interval_notes,
    intervals_view,
)
from simulator.cli.offer_columns import (
    energy_guesses,
    energy_view,
    price_notes,
    spot_notes,
)
from simulator.cli.offer_options import OfferAndApiOptions, OfferOptions
from simulator.cli.options import DeploymentOptions, Details, Format, OutputFormat, grouped, technique_notes
from simulator.cli.output import Column, Result, Row, View, common, count, emit, evidence, number, percent
from simulator.cli.run_columns import LOADS
from simulator.cli.workload_options import SloOptions, WorkloadOptions
from simulator.deployment.deployment import Deployment
from simulator.questions.sweep import SweepCase
from simulator.questions.words import plain
from simulator.reports.slo import Slo

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
    priced: OfferAndApiOptions,
    offline: OfflineOptions,
    run_on: ExecutorOptions,
    fitted: FittedOption = False,
    with_details: Details = False,
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
    choices = asked.choices()  # first: it opens the user's own profiles, of workloads too
    of_sweeps = {"--jobs": run_on.jobs, "--executor": run_on.executor, "--store": run_on.store}
    offline.refuse_contradictions({"--slo": accepted.slo, "--plot": plot, "--fitted": fitted, **of_sweeps})
    prices, level = priced.each(), interval_options.interval
    if offline.batch:
        emit(batch_result(choices, users, priced, offline, level), form, details=with_details)
        return
    asked_at = [CostQuestion(asked, users, accepted, plain(OfferOptions, one)) for one in prices]
    cases = [SweepCase(each, level) for question in asked_at for each in question.each()]
    found = run_on.answers(cases, "deployments")
    answered = sorted(found.answered, key=lambda each: _rank(each[1].rows[0]))
    questions, rows = [case.question for case, _ in answered], [answer.rows[0] for _, answer in answered]
    if plot is not None:
        _draw(questions, rows, accepted.value(), plot)
    deployments = [each.deployment.deployment() for each in questions]
    loads = {case.question.users for case in cases}
    told = f"{questions[0].scenario().workload.describe()}; {accepted.value()}" if len(loads) == 1 else accepted.value()
    result = replace(_result(questions, rows, prices, str(told), level), refused=found.refused)
    emit(with_fitted(result, deployments) if fitted else result, form, details=with_details)


def _rank(row: Row) -> tuple[float, bool, float, float]:
    """Return the order of a row: by asked rate, then as `ranked`."""
    usd = math.inf if row["usd_per_hour"] is None else row["usd_per_hour"]
    return row["asked_rate_per_s"], row["capacity_per_s"] == 0, usd, -row["capacity_per_s"]


def _result(
    questions: list[CostQuestion], rows: list[Row], prices: list[OfferAndApiOptions], title: str, level: float
) -> Result:
    """Return the tables and sentences of the answers, the cheapest at each rate first."""
    best = {row["model"]: each for each, row in reversed([*zip(questions, rows, strict=True)]) if row["replicas"]}
    hosts = [each.answered() for each in reversed(best.values())] if prices[0].vs_api else []
    api = hosted(hosts, prices[0].terms()) if prices[0].vs_api else Hosted([], [], [])
    deployments = [each.deployment.deployment() for each in questions]
    first = _first_of_each_rate(rows)
    verdict = [_headline(rows[place], deployments[place]) for place in first]
    paid = price_notes([row for row in rows if row["replicas"]])
    of_best = price_notes([rows[place] for place in first if rows[place]["replicas"]])
    why = [f"{deployments[place]}: {rows[place]['why']}." for place in first]
    notes = [
        *api.notes,
        *dict.fromkeys(why),
        *of_best,
        *spot_notes(rows),
        *technique_notes(deployments),
        held_out(rows, level),
    ]
    words = [*(each for each in paid if each not in of_best), *NOTES, *interval_notes(rows)]
    used = [*evidence(deployments), *energy_guesses(), *(each for one in prices for each in one.guesses())]
    sections = {"api": api.rows, "answers": rows} if api.views else {"answers": rows}
    views = [_table(rows, title), *api.views, *details(rows, prices[0], title, level)]
    return Result(sections, views, notes, used, verdict=verdict, details=words)


def _table(rows: list[Row], load: str) -> View:
    """Return the one table of the first screen; intervals stand in brackets."""
    columns = [
        *_varying(rows),
        Column("replicas", "n", lambda replicas: count(replicas) if replicas else "-"),
        Column("usd_per_hour", "$/h", number(3)),
        RangedColumn("usd_per_million_output_tokens", "$/M out"),
        Column("p95_ttft_ms", "TTFT p95 ms", number(3)),
        Column("p95_tpot_ms", "TPOT p95 ms", number(3)),
        RangedColumn("capacity_per_s", "max req/s"),
    ]
    return View(f"{common(rows)[0]}: {load}", columns, rows)


def details(rows: list[Row], priced: OfferAndApiOptions, title: str, level: float) -> list[View]:
    """Return the tables of all figures of some answers; the last says why."""
    energy = energy_view(_varying(rows), rows, priced.place())
    views = [_bills_view(rows, title), _latency_view(rows), energy, _intervals_view(rows, level), _reasons_view(rows)]
    return [replace(each, is_detail=True) for each in views]


def _draw(questions: list[CostQuestion], rows: list[Row], slo: Slo, path: Path) -> None:
    """Draw the answers at one rate side by side, at several over the rate."""
    from simulator.plots.cost_plots import plot_costs  # noqa: PLC0415  matplotlib takes half a second
    from simulator.plots.roofline_plots import save  # noqa: PLC0415
    from simulator.plots.sweep_plots import plot_cost_curves  # noqa: PLC0415

    if len({row["asked_rate_per_s"] for row in rows}) > 1:
        save(plot_cost_curves(rows, _series(rows), f"{common(rows)[0]}; {slo}"), path)
    else:
        save(plot_costs([each.answered() for each in questions], rows), path)


def _series(rows: list[Row]) -> list[str]:
    """Return a name for each row from all that varies but the rate."""
    columns = [each for each in _varying(rows) if each.key != "asked_rate_per_s"]
    return [" ".join(each.cell(row) for each in columns) for row in rows]


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


def _first_of_each_rate(rows: list[Row]) -> list[int]:
    """Return the place of the cheapest answer at each rate: the first of its rows."""
    first = {row["asked_rate_per_s"]: place for place, row in reversed([*enumerate(rows)])}
    return [first[rate] for rate in sorted(first)]


def _headline(best: Row, deployment: Deployment) -> str:
    if not best["replicas"]:
        return "None of these keeps the SLO."
    if best["usd_per_hour"] is None:
        return "None of those that keep the SLO has a price; --usd-per-hour takes your own."
    replicas = f"{best['replicas']} replicas of " if best["replicas"] > 1 else ""
    per_million = f"${best['usd_per_million_output_tokens']:.3g} per million output tokens"
    price = f"${best['usd_per_month']:,.0f} a month, {per_million}"
    at = f"{best['asked_rate_per_s']:g} requests/s"
    return f"Cheapest at {at}: {replicas}{deployment}, {price}. {_doubt(best)}".rstrip()


def _doubt(best: Row) -> str:
    """Return how many replicas it may take where the interval of the highest rate holds more than one answer."""
    low, high = best["replicas_low"], best["replicas_high"]
    if low == high or low is None:
        return ""
    return f"It may take {low} to {high} replicas." if high else "It may be that no number of replicas keeps the SLO."
