"""`infercast compare`: what to rent for a model, a load and an SLO, how many, at what price, and how to start it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from simulator.cli.compare_options import CompareOptions
from simulator.cli.compare_screen import Compared, compared_row, exclusions, first_screen
from simulator.cli.compare_sensitivity import SensitivityTables
from simulator.cli.cost import details
from simulator.cli.cost_question import answer_rows
from simulator.cli.executor_options import ExecutorName
from simulator.cli.intervals import IntervalOptions
from simulator.cli.offer_options import OfferOptions
from simulator.cli.options import Format, OutputFormat, grouped
from simulator.cli.output import Result, emit, evidence
from simulator.cli.workload_options import SloOptions, WorkloadOptions, one_load
from simulator.cost.light_bounds import Demand
from simulator.cost.search import Search, priced_target
from simulator.errors import InfercastError
from simulator.executors.choice import executor_named
from simulator.executors.executor import cores, in_order
from simulator.executors.threads import Threads
from simulator.questions.compare_question import Options
from simulator.workloads.arrivals import RecordedArrivals
from simulator.workloads.workload import Workload

REQUESTS = 4_000  # of each simulation, where nothing is said


@grouped
def command(
    asked: CompareOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    interval_options: IntervalOptions,
    priced: OfferOptions,
    top: Annotated[int, typer.Option("--top", min=1, help="Answers, each on another device.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Simulations at once.", show_default="cores")] = cores(),
    executor: ExecutorName = "",
    with_details: Annotated[bool, typer.Option("--details", help="Print every figure, interval and reason.")] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="What moves the answer, where it flips, what to measure first.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the answers; with --sensitivity a tornado.")
    ] = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Search devices, layouts, formats and engines for the cheapest that keeps the SLO at a load.

    By default all devices. What bounds prove to be no answer is cut; the rest is simulated on the same requests.
    """
    slo, (rate, workload) = accepted.value(), _fewer(users)
    _refuse_hosted(priced)
    options = asked.options(Demand(workload.requests(), slo))
    load = priced_target(rate, workload, slo, priced.offers_for, priced.interruptions())
    cluster = executor_named(executor) if executor else None
    search = Search(load, options.candidates, top=top, jobs=jobs, executor=cluster)
    interrupted = _searched(search)
    if not search.found:
        raise InfercastError(*_nothing(search, options, interrupted=interrupted))
    compared = [Compared(each, load) for each in search.found]
    rows = list(in_order(Threads(jobs), compared_row, compared))
    result = first_screen(search, options, compared, rows)
    if interrupted:
        left = f"{len(search.left):,} deployments are not decided; none costs less than ${search.least_usd_left:.3g}/h."
        result = replace(result, notes=[f"INTERRUPTED: {left}", *result.notes])
    if with_details or form is not Format.TEXT:
        result = _with_details(result, compared, interval_options.interval, priced)
    if sensitivity:
        moved = SensitivityTables(compared, jobs)
        sections = {"sensitivity": moved.rows(), **result.sections}
        notes = [*result.notes, "", *moved.notes()]
        result = replace(result, sections=sections, views=[*result.views, moved.view()], notes=notes)
        if plot is not None:
            moved.save(plot)
    elif plot is not None:
        _draw(compared, plot)
    emit(result, form)


def _refuse_hosted(priced: OfferOptions) -> None:
    """Raise InfercastError for options of prices that exclude each other, or that only `cost` takes."""
    priced.checked()
    if priced.vs_api:
        remedy = "Give it to infercast cost, with the deployment that compare finds"
        raise InfercastError("--vs-api of compare", "hosted prices are set beside one list of deployments", remedy)


def _draw(compared: list[Compared], path: Path) -> None:
    from simulator.plots.cost_plots import plot_costs  # noqa: PLC0415  matplotlib takes half a second
    from simulator.plots.roofline_plots import save  # noqa: PLC0415

    save(plot_costs([each.answer for each in compared]), path)


def _fewer(users: WorkloadOptions) -> tuple[float, Workload]:
    """Return the rate and its workload, of REQUESTS requests where their number is open."""
    rate, workload = one_load(users)
    is_open = users.num_prompts is None and not isinstance(workload.arrivals, RecordedArrivals)
    return rate, replace(workload, request_count=REQUESTS) if is_open else workload


def _searched(search: Search) -> bool:
    """Run the search with a bar on stderr, if that is a terminal; return whether Ctrl-C ended it."""
    try:
        with _bar() as progress:
            search.run(progress)
    except KeyboardInterrupt:
        return True
    return False


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn("deployments decided or cut"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda decided, every: bar.update(task, completed=decided, total=every)


def _nothing(search: Search, options: Options, *, interrupted: bool) -> tuple[str, str, str]:
    if interrupted:
        return "an interrupt", f"nothing was decided, of {len(search.candidates):,} deployments", "Let it run on"
    errors = [*options.refused, *(each.error for each in search.out if each.error)]
    every = len(options.candidates) + sum(options.cut.values())
    because = f"no deployment keeps the SLO: of {every:,} {', '.join(exclusions(search, options)) or 'none can be'}"
    last = f"{because}; {errors[0]}" if errors else because
    return f"{search.load.slo}", last, "Loosen the SLO, or give more devices, formats or engines"


def _with_details(result: Result, compared: list[Compared], level: float, priced: OfferOptions) -> Result:
    """Return the result with all figures of each answer, their intervals, energy and guesses."""
    answers = [each.answer for each in compared]
    rows = answer_rows(answers, level, priced)
    views = details(rows, priced, answers[0].scenario.workload.describe(), level)
    used = evidence(each.scenario.deployment for each in answers)
    merged = [{**more, **row} for row, more in zip(result.sections["answers"], rows, strict=True)]
    return replace(result, sections={"answers": merged}, views=[*result.views, *views], rests_on=used, flat=True)
