"""`infercast validate`: predict published or own measurements, and show the errors."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.scores_screen import scores_result
from simulator.cli.options.deployment_options import Details, OutputFormat, Profiles, ReportFile, grouped, use_profiles
from simulator.cli.options.executor_options import ExecutorName, Jobs
from simulator.cli.options.measured_options import StatedOptions, flag_of, told_of_columns
from simulator.cli.output import emit, put
from simulator.cli.text_layout import Format
from simulator.errors import InfercastError
from simulator.executors.choice import executor_named
from simulator.html.page import refuse_ending
from simulator.questions.words import comma_list
from simulator.validation.benchfiles import Stated, read_results, stated_in_vain
from simulator.validation.commands import row_commands
from simulator.validation.measurements import Measurement, read_published
from simulator.validation.parallel import predict_all
from simulator.validation.prediction import Prediction
from simulator.validation.scores import scored


@grouped
def command(
    stated: StatedOptions,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Measurements or results (docs/measurements.md); else all published."),
    ] = None,
    grades: Annotated[str, typer.Option("--grades", metavar="A,..", help="Grades that are scored.")] = "A,B",
    every: Annotated[bool, typer.Option("--all", help="Long tables in full.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.05, max=0.95, help="Share that intervals hold.")] = 0.8,
    light: Annotated[
        bool, typer.Option("--light", help="List rows that beat the speed of light; takes longer.")
    ] = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Predicted over measured.")] = None,
    shown: Annotated[bool, typer.Option("--commands", help="Print the command that asks each row, and stop.")] = False,
    jobs: Jobs = None,
    executor: ExecutorName = "",
    profiles: Profiles = None,
    with_details: Details = False,
    page: ReportFile = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Predict every measurement of a file by what its load calls for, and show the errors.

    Fixed batches and single streams by the roofline; closed loops, open loops and offline runs by simulation with the
    stated concurrency or rate, lengths and number of requests. Errors are averaged by (source, device, model) first.
    FILE is a table of measurements, or what vllm bench serve, latency or throughput, SGLang's bench_serving, GuideLLM,
    AIPerf, GenAI-Perf or llama-bench wrote; options state what it does not. Without FILE: the tables of published
    measurements that come with infercast.
    """
    use_profiles(profiles)
    refuse_ending(page)
    wanted = comma_list(grades, "--grades")
    rows = _measurements(file, stated.value())
    if shown:
        put("".join(f"{line}\n" for line in row_commands(rows)))
        return
    predictions = predict_all(rows, light=light, level=interval, executor=executor_named(executor, jobs))
    if plot is not None:
        _draw(scored(predictions, wanted), plot)
    if page is not None:
        from simulator.cli.pages.scores_page import save_scores_page

        asked = f"The measurements of {file}." if file else "All published measurements that come with infercast."
        save_scores_page(page, asked, scores_result(predictions, wanted, every=True), scored(predictions, wanted))
    result = scores_result(predictions, wanted, every=every)
    left = told_of_columns(file) if file is not None else []
    emit(replace(result, notes=[*result.notes, *left]), form, details=with_details or every)


def _draw(kept: Sequence[Prediction], path: Path) -> None:
    from simulator.plots.plot_file import save
    from simulator.validation.scatter import scatter

    save(scatter(kept), path)


def _measurements(file: Path | None, stated: Stated) -> list[Measurement]:
    """Return the measurements of a file, or the published ones.

    Raises InfercastError for options without a file, and for those that every row of a table states itself.
    """
    if file is not None:
        rows = read_results(file, stated)
        if vain := stated_in_vain(file, stated):
            flags = ", ".join(map(flag_of, vain))
            remedy = f"Leave out {flags}, or empty the cells to fill"
            raise InfercastError(f"{flags} of {file}", "each row of the table states its own", remedy)
        return rows
    if said := stated.cells():
        given, because = f"{', '.join(map(flag_of, said))} without a FILE", "published measurements state their own"
        raise InfercastError(given, because, "Give the FILE that it is said of, or leave it out")
    return read_published()
