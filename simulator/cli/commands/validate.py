"""`infercast validate`: predict published or own measurements, and show the errors."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.interval_columns import BASIS, IntervalColumn
from simulator.cli.layout import Format
from simulator.cli.options.deployment_options import Details, OutputFormat, Profiles, ReportFile, grouped, use_profiles
from simulator.cli.options.executor_options import ExecutorName, Jobs
from simulator.cli.options.measured_options import StatedOptions
from simulator.cli.output import Column, Result, Row, View, count, emit, number, percent, put
from simulator.errors import InfercastError, InterruptedSweepError
from simulator.executors.choice import executor_named
from simulator.html.page import refuse_ending
from simulator.questions.words import split
from simulator.validation.benchfiles import Stated, read_results
from simulator.validation.commands import commands
from simulator.validation.measurements import Measurement, read_published
from simulator.validation.parallel import INTERRUPTED, predict_all
from simulator.validation.prediction import Prediction
from simulator.validation.scores import KEYS, Score, beating_light, by, not_covered, scored, sections

SHOWN = 12  # most rows of a long table without --all
FEW = 100  # up to so many measurements are listed one by one: a sweep of GuideLLM has some eighty


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
    wanted = split(grades, "--grades")
    rows = _measurements(file, stated.value())
    if shown:
        put("".join(f"{line}\n" for line in commands(rows)))
        return
    predictions = predict_all(rows, light=light, level=interval, executor=executor_named(executor, jobs))
    if plot is not None:
        _draw(scored(predictions, wanted), plot)
    if page is not None:
        from simulator.cli.pages.scores_page import save_scores_page  # noqa: PLC0415  matplotlib takes half a second

        asked = f"The measurements of {file}." if file else "All published measurements that come with infercast."
        save_scores_page(page, asked, _result(predictions, wanted, every=True), scored(predictions, wanted))
    emit(_result(predictions, wanted, every), form, details=with_details or every)


def _draw(kept: Sequence[Prediction], path: Path) -> None:
    from simulator.plots.roofline_plots import save  # noqa: PLC0415  matplotlib takes half a second
    from simulator.validation.scatter import scatter  # noqa: PLC0415

    save(scatter(kept), path)


def _measurements(file: Path | None, stated: Stated) -> list[Measurement]:
    """Return the measurements of a file, or the published ones. Raises InfercastError for options without a file."""
    if file is not None:
        return read_results(file, stated)
    if said := stated.cells():
        given, because = f"{', '.join(said)} without a FILE", "published measurements state what they are of"
        raise InfercastError(given, because, "Give the FILE that it is said of, or leave it out")
    return read_published()


SCORES = (
    Column("rows", "rows", count),
    Column("groups", "groups", count),
    Column("median_ape", "median", percent),
    Column("p90_ape", "p90", percent),
    Column("bias", "bias", percent),
    Column("row_median_ape", "by row", percent),
    Column("row_p90_ape", "p90", percent),
    Column("row_bias", "bias", percent),
    Column("interval_coverage", "in interval", percent),
)


def _result(predictions: Sequence[Prediction], grades: list[str], every: bool) -> Result:
    kept = scored(predictions, grades)
    predicted = sum(each.value is not None for each in kept)
    others = (key for key in KEYS if key not in ("metric", "regime") and len(by(kept, key)) > 1)
    views = [_measurements_view(kept)] if len(kept) <= FEW else []
    views.append(_errors_view(kept, ("metric", "regime"), every=True))
    views += [replace(_errors_view(kept, ("metric", key), every), is_detail=True) for key in others]
    graded = f"{', '.join(grades)} or not at all"
    notes = [
        f"{predicted:,} of {len(kept):,} rows graded {graded} are predicted; {len(predictions):,} in all.",
        "Errors are shares of the measured value: the mean |error| of each (source, device, model), then over groups.",
        *(f"Not covered, {_row_count(rows)}: {reason}" for reason, rows in not_covered(kept).items()),
        *(
            f"Beats the speed of light: {each.measurement.id} {each.measurement.metric} {each.measurement.value:g}, "
            f"light {each.light:g}"
            for each in beating_light(kept)
        ),
    ]
    left, shown = _left(predictions), views if predicted else []
    return Result(sections(predictions, grades), shown, notes, refused=left, verdict=[_verdict(kept)])


def _verdict(kept: Sequence[Prediction]) -> str:
    """Return the error over all metrics, and the share of measurements inside their interval."""
    if all(each.value is None for each in kept):
        return f"None of {_row_count(len(kept))} is predicted."
    [found] = by(kept).values()
    inside = f"; {found.interval_coverage:.0%} lie inside their interval" if found.interval_coverage >= 0 else ""
    return f"{_row_count(found.rows)} predicted, {found.median_ape:.0%} off in the median{inside}."


def _left(predictions: Sequence[Prediction]) -> list[InterruptedSweepError]:
    """Return what an interrupt has left."""
    left = sum(each.reason == INTERRUPTED for each in predictions)
    remedy = "Let it run on, or ask for these rows alone"
    return [InterruptedSweepError.of(left, len(predictions), remedy)] if left else []


def _row_count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


ROW = (
    *(Column(name, name, left=True) for name in ("measurement", "metric", "stat")),
    Column("measured", "measured", number()),
    Column("predicted", "predicted", number()),
    Column("error", "error", percent),
    IntervalColumn("interval", "interval", number()),
    BASIS,
)


def _measurements_view(kept: Sequence[Prediction]) -> View:
    """Return a table of each measurement beside its prediction."""
    rows = [
        {
            **{"measurement": each.measurement.id, "metric": each.measurement.metric, "stat": each.measurement.stat},
            **{"measured": each.measurement.value, "predicted": each.value, "error": each.error},
            **{"interval_low": each.low, "interval_high": each.high, "interval_basis": each.basis or None},
        }
        for each in kept
        if each.value is not None
    ]
    return View("Measurements, each in the unit that its metric ends in", ROW, rows)


def _errors_view(kept: Sequence[Prediction], keys: tuple[str, ...], every: bool) -> View:
    """Return a table of errors by some keys, its first rows or `every` one."""
    found = by(kept, *keys)
    shown = list(found.items())[: None if every else SHOWN]
    heads = tuple(Column(key, key, left=True) for key in keys)
    left_out = f", the first {SHOWN} of {len(found)}" if len(shown) < len(found) else ""
    return View(f"Errors by {' and '.join(keys)}{left_out}", (*heads, *SCORES), [_row(keys, *each) for each in shown])


def _row(keys: tuple[str, ...], values: tuple[str, ...], found: Score) -> Row:
    return {**dict(zip(keys, values, strict=True)), **found.figures()}
