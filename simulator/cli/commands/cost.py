"""`infercast cost`: what a million tokens costs at a load, and on which devices it costs least."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.api_columns import Hosted, hosted
from simulator.cli.answers.batch_cost import OfflineOptions, batch_result
from simulator.cli.answers.cost_screen import (
    NOTES,
    barely,
    details,
    first_of_each_rate,
    headline,
    table,
    unbounded,
    varying,
)
from simulator.cli.answers.deployment_columns import common, evidence
from simulator.cli.answers.fitted import FittedOption, with_fitted
from simulator.cli.answers.interval_columns import IntervalOptions, held_out, interval_notes
from simulator.cli.answers.offer_columns import energy_guesses, price_notes, spot_notes
from simulator.cli.answers.router_savings import router_savings
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.options.deployment_options import DeploymentOptions, Details, OutputFormat, grouped
from simulator.cli.options.executor_options import ExecutorOptions
from simulator.cli.options.offer_options import PriceAndApiOptions, SeveralPriceOptions
from simulator.cli.options.workload_options import RateOptions, SloOptions
from simulator.cli.output import Result, Row, emit
from simulator.cli.text_layout import Format
from simulator.cost.capacity import cost_rank
from simulator.deployment.memory import memory_plan
from simulator.questions.cost_question import CostQuestion
from simulator.questions.sweep import SweepCase
from simulator.reports.slo import Slo


@grouped
def command(
    asked: DeploymentOptions,
    users: RateOptions,
    accepted: SloOptions,
    interval_options: IntervalOptions,
    priced: SeveralPriceOptions,
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
    cases = [SweepCase(each, level) for each in CostQuestion(asked, users, accepted, priced).each()]
    found = run_on.answers(cases, "deployments")
    answered = sorted(found.answered, key=lambda each: _rank(each[1].rows[0]))
    questions, rows = [case.question for case, _ in answered], [answer.rows[0] for _, answer in answered]
    if plot is not None:
        _draw(questions, rows, accepted.value(), plot)
    deployments = [each.deployment.deployment() for each in questions]
    loads = {case.question.users for case in cases}
    told = f"{questions[0].scenario().workload.describe()}; {accepted.value()}" if len(loads) == 1 else accepted.value()
    result = replace(
        _result(questions, rows, prices, str(told), level, is_told=form is not Format.CSV), refused=found.refused
    )
    emit(with_fitted(result, deployments) if fitted else result, form, details=with_details)


def _rank(row: Row) -> tuple[float, bool, float, float]:
    """Return the order of a row: by asked rate, then as `ranked`."""
    return row["asked_rate_per_s"], *cost_rank(row["replicas"], row["usd_per_hour"], row["capacity_per_s"])


def _result(
    questions: list[CostQuestion],
    rows: list[Row],
    prices: Sequence[PriceAndApiOptions],
    title: str,
    level: float,
    *,
    is_told: bool,
) -> Result:
    """Return the tables and sentences of the answers, the cheapest at each rate first.

    `is_told`: whether sentences are printed, for which fleets are simulated.
    """
    best = {row["model"]: each for each, row in reversed([*zip(questions, rows, strict=True)]) if row["replicas"]}
    hosts = [each.answered() for each in reversed(best.values())] if prices[0].vs_api else []
    api = hosted(hosts, prices[0].terms()) if prices[0].vs_api else Hosted([], [], [])
    deployments = [each.deployment.deployment() for each in questions]
    first = first_of_each_rate(rows)
    verdict = [headline(rows[place], deployments[place]) for place in first]
    verdict += unbounded(questions[0].accepted.value(), rows[first[-1]])
    verdict += barely(memory_plan(deployments[first[-1]]))
    paid = price_notes([row for row in rows if row["replicas"]])
    of_best = price_notes([rows[place] for place in first if rows[place]["replicas"]])
    why = {str(deployments[place]): rows[place]["why"] for place in reversed(first)}  # of the lowest rate
    several = [place for place in first if is_told and rows[place]["replicas"] > 1]
    notes = [
        *api.notes,
        *(f"{deployment}: {said}." for deployment, said in why.items()),
        *chain.from_iterable(router_savings(questions[place].answered()) for place in several),
        *of_best,
        *spot_notes(rows),
        *technique_notes(deployments),
        held_out(rows, level),
    ]
    words = [*(each for each in paid if each not in of_best), *NOTES, *interval_notes(rows)]
    used = [*evidence(deployments), *energy_guesses(), *(each for one in prices for each in one.guesses())]
    sections = {"api": api.rows, "answers": rows} if api.views else {"answers": rows}
    views = [table(rows, title), *api.views, *details(rows, prices[0], title, level)]
    return Result(sections, views, notes, used, verdict=verdict, details=words)


def _draw(questions: list[CostQuestion], rows: list[Row], slo: Slo, path: Path) -> None:
    """Draw the answers at one rate side by side, at several over the rate."""
    from simulator.plots.cost_plots import plot_costs
    from simulator.plots.plot_file import save
    from simulator.plots.sweep_plots import plot_cost_curves

    if len({row["asked_rate_per_s"] for row in rows}) > 1:
        save(plot_cost_curves(rows, _series(rows), f"{common(rows)[0]}; {slo}"), path)
    else:
        save(plot_costs([each.answered() for each in questions], rows), path)


def _series(rows: list[Row]) -> list[str]:
    """Return a name for each row from all that varies but the rate."""
    columns = [each for each in varying(rows) if each.key != "asked_rate_per_s"]
    return [" ".join(each.cell(row) for each in columns) for row in rows]
