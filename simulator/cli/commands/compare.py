"""`infercast compare`: what to rent for a model, a load and an SLO, how many, at what price, and how to start it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.compare_details import CostDetails
from simulator.cli.answers.compare_screen import Compared, compared_row, excluded, exclusions, first_screen, ties
from simulator.cli.answers.compare_sensitivity import SensitivityTables
from simulator.cli.answers.deployment_columns import evidence
from simulator.cli.answers.interval_columns import IntervalOptions
from simulator.cli.answers.surest import surest_row, surest_words
from simulator.cli.numbers import number
from simulator.cli.options.compare_options import CompareOptions
from simulator.cli.options.deployment_options import Details, OutputFormat, ReportFile, grouped
from simulator.cli.options.executor_options import ExecutorName, Jobs
from simulator.cli.options.offer_options import PriceAndApiOptions
from simulator.cli.options.workload_options import RateOptions, SloOptions
from simulator.cli.output import Result, Row, emit
from simulator.cli.progress import followed, progress_bar
from simulator.cli.text_layout import Format
from simulator.cost.light_bounds import Demand
from simulator.cost.lower_bounds import REJECTED
from simulator.cost.risk import CASES
from simulator.cost.search import Search, priced_target
from simulator.errors import InfercastError, InterruptedSweepError
from simulator.executors.choice import executor_named
from simulator.executors.executor import cores, in_order
from simulator.executors.threads import Threads
from simulator.html.page import refuse_ending
from simulator.questions.compare_question import NO_ROOM, Candidates

SECONDS_MEANT = 10.0  # ms of a first or last token up to which a bound without a unit may have been meant in seconds


@grouped
def command(
    asked: CompareOptions,
    users: RateOptions,
    accepted: SloOptions,
    interval_options: IntervalOptions,
    priced: PriceAndApiOptions,
    top: Annotated[int, typer.Option("--top", min=1, help="Answers, each on another device.")] = 5,
    jobs: Jobs = None,
    executor: ExecutorName = "",
    with_details: Details = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="What moves the answer, where it flips, what to measure first.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the answers; with --sensitivity a tornado.")
    ] = None,
    report: ReportFile = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Search devices, layouts, formats and engines for the cheapest that keeps the SLO at a load.

    By default all devices. What bounds prove to be no answer is cut; the rest is simulated on them.
    """
    slo, (rate, workload) = accepted.value(), users.one_load()
    refuse_ending(report)
    priced.checked()
    options = asked.options(Demand(workload.requests(), slo))
    load = priced_target(rate, workload, slo, priced.offers_for, priced.interruptions())
    threads = Threads(jobs or cores())
    search = Search(load, options.candidates, top, executor_named(executor, jobs) if executor else threads)
    interrupted = _searched(search)
    if not search.found:
        raise InfercastError(*_nothing(search, options, interrupted=interrupted))
    compared = [Compared(each, load) for each in search.found]
    rows = followed("answers", in_order(threads, compared_row, compared), len(compared))
    surest, said = ({}, "") if interrupted else _surest(search, compared[0])
    result = first_screen(search, options, compared, rows, said)
    result = replace(result, refused=_left(search) if interrupted else [], sections={**surest, **result.sections})
    figures = CostDetails(compared, priced, interval_options.interval)
    result = _with_hosted(result, figures) if priced.vs_api else result
    result = _with_details(result, figures) if with_details or form is not Format.TEXT else result
    moved = SensitivityTables(compared, threads)
    if sensitivity:
        result = _with_sensitivity(result, moved, plot)
    elif plot is not None:
        _draw(figures, plot)
    if report is not None:
        others = [*map(str, result.refused), *ties(search, compared), excluded(search, options)]
        _save_page(report, figures, rows, moved, (others, said))
    emit(result, form)


def _with_sensitivity(result: Result, moved: SensitivityTables, plot: Path | None) -> Result:
    """Return the result with what moves the answer, drawn as a tornado where a file is given."""
    with progress_bar("what moves the answer"):
        rows, words = moved.rows(), list(moved.notes())
    if plot is not None:
        moved.save(plot)
    sections = {"sensitivity": rows, **result.sections}
    notes = [*result.notes, "", *words]
    return replace(result, sections=sections, views=[*result.views, moved.view()], notes=notes)


def _with_hosted(result: Result, figures: CostDetails) -> Result:
    """Return the result with the hosted prices of the same models, and from which volume on the best answer pays."""
    api = figures.hosted
    sections = {"api": api.rows, **result.sections} if api.rows else result.sections
    return replace(result, sections=sections, views=[*result.views, *api.views], notes=[*api.notes, "", *result.notes])


def _left(search: Search) -> list[InterruptedSweepError]:
    """Return what an interrupted search has left open."""
    left = f"{len(search.left):,} of {len(search.candidates):,} deployments"
    because = f"an interrupt came before they were decided; none costs less than ${number(3)(search.least_usd_left)}/h"
    return [InterruptedSweepError(left, because, "Let it run on, or ask for fewer")]


def _save_page(
    path: Path, found: CostDetails, rows: list[Row], moved: SensitivityTables, words: tuple[list[str], str]
) -> None:
    """Write the page; `words`: sentences on those that are no answer, and on what is enough in all cases."""
    from simulator.cli.pages.decision_page import Decision

    Decision(found, rows, moved, *words).save(path)


def _draw(figures: CostDetails, path: Path) -> None:
    from simulator.plots.cost_plots import plot_costs
    from simulator.plots.plot_file import save

    save(plot_costs([each.answer for each in figures.compared], figures.rows), path)


def _surest(search: Search, best: Compared) -> tuple[dict[str, list[Row]], str]:
    """Search again in the slowest case, where the cheapest is not enough in all; return a section, a sentence."""
    if best.risk.is_sure:
        return {}, ""
    slow = Search(search.load, search.candidates, 1, search.executor, CASES[-1])
    if _searched(slow):
        return {}, ""
    row = surest_row(Compared(slow.found[0], search.load), slow.found[0].replicas) if slow.found else None
    models = len({each.model.id for each in search.candidates})
    return {"enough_in_all_cases": [row]} if row else {}, surest_words(row, of_these=False, models=models)


def _searched(search: Search) -> bool:
    """Run the search with its progress on stderr; return whether Ctrl-C ended it."""
    try:
        with progress_bar("deployments decided or cut") as progress:
            search.run(progress)
    except KeyboardInterrupt:
        return True
    return False


def _nothing(search: Search, options: Candidates, *, interrupted: bool) -> tuple[str, str, str]:
    if interrupted:
        return "an interrupt", f"nothing was decided, of {len(search.candidates):,} deployments", "Let it run on"
    errors = [*options.refused, *(each.error for each in search.out if each.error)]
    why = list(exclusions(search, options))
    because = f"no deployment keeps the SLO: {', '.join(why)}" if why else "no deployment is possible"
    is_slow = any(reason != NO_ROOM for reason, _ in options.cut) or any(not each.error for each in search.out)
    last = f"{because}; {errors[0]}" if errors and not is_slow else because
    rejecting = sum(each.never == REJECTED for each in search.out)
    if rejecting > len(search.out) / 2:
        return f"{search.load.slo}", because, "Give shorter prompts and outputs, or a model with a longer context"
    short = [(name, 1e3 * bound_s) for name, bound_s in search.load.slo.bounds_s.items() if name in ("ttft", "e2el")]
    meant = [
        f"Write {name}:{ms:g}s if seconds are meant, or loosen" for name, ms in short if is_slow and ms <= SECONDS_MEANT
    ]
    return f"{search.load.slo}", last, f"{(meant or ['Loosen'])[0]} the SLO, or give more devices, formats or engines"


def _with_details(result: Result, figures: CostDetails) -> Result:
    """Return the result with all figures of each answer, their intervals, energy and guesses."""
    rows, views = figures.rows, figures.views
    used = evidence(each.answer.scenario.deployment for each in figures.compared)
    merged = [{**more, **row} for row, more in zip(result.sections["answers"], rows, strict=True)]
    sections = {**result.sections, "answers": merged}
    return replace(result, sections=sections, views=[*result.views, *views], rests_on=used)
