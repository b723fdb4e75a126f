"""`infercast simulate`: latencies and throughput of a deployment under a load."""

from dataclasses import replace
from pathlib import Path

from simulator.cli.answers.deployment_columns import common
from simulator.cli.answers.fitted import FittedOption, with_fitted
from simulator.cli.answers.interval_columns import IntervalOptions
from simulator.cli.answers.load_columns import varying_loads
from simulator.cli.answers.load_result import load_result
from simulator.cli.answers.load_screen import busiest
from simulator.cli.answers.run_details import ExplainOptions, sweep_of
from simulator.cli.options.deployment_options import DeploymentOptions, Details, OutputFormat, ReportFile, grouped
from simulator.cli.options.executor_options import ExecutorOptions
from simulator.cli.options.workload_options import RunOptions, SloOptions, WorkloadOptions
from simulator.cli.output import Result, Row, emit
from simulator.cli.progress import progress_bar
from simulator.cli.text_layout import Format
from simulator.html.page import refuse_ending
from simulator.questions.load_question import LoadQuestion, SimulatedLoad
from simulator.questions.sweep import SweepAnswers, SweepCase
from simulator.reports.slo import Slo


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    explain_options: ExplainOptions,
    run: RunOptions,
    interval_options: IntervalOptions,
    run_on: ExecutorOptions,
    fitted: FittedOption = False,
    with_details: Details = False,
    page: ReportFile = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Simulate requests on one replica of a model, step by step, with the engine's own scheduling rules.

    Comma lists of deployments, settings, lengths, rates and requests in flight make every combination. With --router,
    all --replicas are simulated, behind it.
    """
    refuse_ending(page)
    question, level = LoadQuestion(asked, users, accepted, run), interval_options.interval
    cases = [SweepCase(each, level, explain_options.explain) for each in question.each()]
    explain_options.check(len(cases))
    wants_runs = page is not None or explain_options.needs_run
    if len(cases) == 1 and (wants_runs or run_on.store is None):
        done = [_simulated(cases[0].question)]
        found = SweepAnswers(cases, {0: done[0].answer(level, explain=explain_options.explain)})
    else:
        found = run_on.answers(cases, "simulations")
        again = explain_options.needs_run and len(found.rows) == 1
        done = [_simulated(each.question) for each, _ in found.answered] if again else []
    _write_files(found.rows, done, explain_options, accepted.value())
    told = form is not Format.CSV or fitted or page is not None  # csv has rows alone, of which there may be many
    scenarios = [each.question.scenario()[0] for each, _ in found.answered] if told else []
    result = load_result(found, scenarios, level, explain=explain_options.explain)
    of_loads = dict.fromkeys(each for scenario in scenarios for each in run.basis(scenario))
    result = replace(result, rests_on=[*result.rests_on, *of_loads])
    if page is not None:
        _save_page(page, result, found, done)
    emit(with_fitted(result, (each.deployment for each in scenarios)) if fitted else result, form, details=with_details)


def _simulated(question: LoadQuestion) -> SimulatedLoad:
    """Simulate a load in this process, with a bar of its requests."""
    with progress_bar(str(question.scenario()[0].deployment)) as progress:
        return question.simulated(progress)


def _write_files(rows: list[Row], done: list[SimulatedLoad], explain_options: ExplainOptions, slo: Slo) -> None:
    """Write the files about the only simulation, or the drawing of several, that were asked for."""
    if len(rows) > 1:
        title, varying = common(rows)
        explain_options.draw_sweep(rows, [*varying, *varying_loads(rows)], title, slo)
        return
    explain_options.save(rows[0])
    for each in done:
        explain_options.write(each.scenario, each.report)
        explain_options.draw(each.scenario, each.report, rows[0])


def _save_page(path: Path, result: Result, found: SweepAnswers[LoadQuestion], done: list[SimulatedLoad]) -> None:
    """Write the page; of a sweep only the load that it looks into is simulated again, for what no row has."""
    from simulator.cli.pages.load_page import save_load_page
    from simulator.cli.pages.sections import SimulatedRun

    rows, scenarios = found.rows, [case.question.scenario()[0] for case, _ in found.answered]
    over = sweep_of(rows, [*common(rows)[1], *varying_loads(rows)], "", scenarios[0].slo) if len(rows) > 1 else None
    place = busiest(rows, scenarios[0].slo)
    shown = done[place] if done else _simulated(found.answered[place][0].question)
    deployments = [each.deployment for each in scenarios]
    save_load_page(path, result, SimulatedRun(shown.scenario, shown.report, rows[place]), deployments, over)
