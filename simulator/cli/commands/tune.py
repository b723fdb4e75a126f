"""`infercast tune`: the settings that serve most within an SLO, and by how much they beat the default."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.interval_columns import IntervalOptions
from simulator.cli.answers.tune_screen import tuned_result, tuned_rows
from simulator.cli.options.deployment_options import DeploymentOptions, OutputFormat, grouped
from simulator.cli.options.workload_options import SloOptions, WorkloadOptions
from simulator.cli.output import Row, emit
from simulator.cli.progress import progress_bar
from simulator.cli.text_layout import Format
from simulator.cost.scenario import Scenario
from simulator.cost.tuning import Point, TunedSettings, tune
from simulator.questions.tune_question import TuneQuestion


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    interval_options: IntervalOptions,
    devices: Annotated[
        int,
        typer.Option(
            "--devices", min=0, help="Devices to share out: tp against replicas.", show_default="tp x pp x dp"
        ),
    ] = 0,
    draft: Annotated[
        list[str] | None,
        typer.Option("--draft", metavar="NAME:RATE", help="What may draft, and its acceptance rate; may be repeated."),
    ] = None,
    budget: Annotated[int, typer.Option("--budget", min=1, help="Settings to try at most.")] = 200,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw default and best, and what each change brings.")
    ] = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Search the settings that serve most within the SLO, and say by how much they beat the default.

    One setting after the other is changed, all on the same random numbers. A setting that is given with one value is
    fixed, one with a comma list has these values alone. With --max-concurrency or --rate inf it is output tokens/s that
    is most.
    """
    asked.choices()  # first: it opens the user's own profiles
    question = TuneQuestion(asked, users, accepted, devices, tuple(draft or ()))
    with progress_bar("settings tried, of at most") as progress:
        tried = count(1)

        def scenario(point: Point) -> Scenario:
            progress(min(next(tried), budget), budget)
            return question.scenario(point)

        found = tune(scenario, question.coordinates, question.objective, budget)
    rows = tuned_rows(found, question, interval_options.interval)
    if plot is not None and rows:
        _draw(found, rows, question, plot)
    emit(tuned_result(found, question, rows), form)


def _draw(found: TunedSettings, rows: Sequence[Row], question: TuneQuestion, path: Path) -> None:
    """Draw the score of the default, of the best, and of the best without each of its changes."""
    from simulator.plots.plot_file import save
    from simulator.plots.tuning_plot import plot_tuned

    bars = [(str(row["which"]), row["per_s"], row["per_s_low"], row["per_s_high"]) for row in rows]
    bars += [(f"best without {name}", per_s, None, None) for name, per_s in found.without.items()]
    title = f"{rows[0]['model']} on {rows[0]['hardware']}\n{question.accepted.value()}"
    save(plot_tuned(bars, question.objective.unit, title), path)
