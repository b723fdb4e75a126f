"""`infercast estimate`: one batch alone, prefill and decode, beside the speed of light."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.batch_screen import SIZE, details, table, verdict
from simulator.cli.answers.deployment_columns import evidence
from simulator.cli.answers.fitted import FittedOption, with_fitted
from simulator.cli.answers.interval_columns import IntervalOptions, held_out, interval_notes
from simulator.cli.answers.op_tables import op_rows, op_views
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.options.deployment_options import BATCH, DeploymentOptions, Details, OutputFormat, grouped
from simulator.cli.options.executor_options import ExecutorOptions
from simulator.cli.output import Result, Row, emit
from simulator.cli.text_layout import Format
from simulator.deployment.estimate import Estimate
from simulator.questions.batch_question import BatchQuestion, BatchSizes
from simulator.questions.sweep import SweepCase

LIGHT = "light: the speed of light, at the data sheet's peaks without any overhead; ratio: predicted over light."
REQUEST = "TTFT: the prefill, and what a request takes outside the steps; --explain lists its parts."
RANKS = (
    "DP above the batch: ranks are taken to share its tokens evenly, though each computes whole sequences. Attention "
    "takes up to dp / batch times as long as here."
)
PIPELINE = "PP above 1 is the latency of one batch in flight: the stages work one after the other and idle in between."


@dataclass(frozen=True)
class BatchOptions(BatchSizes):
    """Options for batch sizes and lengths; comma lists make every combination."""

    batch: Annotated[str, typer.Option(*BATCH, metavar="N,..", help="Requests that start together.")] = "1"
    input_len: Annotated[str, typer.Option("--input-len", "--isl", metavar="N,..", help="Prompt tokens.")] = "1024"
    output_len: Annotated[str, typer.Option("--output-len", "--osl", metavar="N,..", help="Output tokens.")] = "128"
    context_len: Annotated[int, typer.Option("--context-len", min=0, help="Tokens that lie in the cache before.")] = 0
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Alike replicas that share the batch.")] = 1
    assume_fits: Annotated[
        bool, typer.Option("--assume-fits", help="Somebody has run it, whatever the memory plan says.")
    ] = False


@grouped
def command(
    asked: DeploymentOptions,
    batches: BatchOptions,
    interval_options: IntervalOptions,
    run_on: ExecutorOptions,
    explain: Annotated[bool, typer.Option("--explain", help="One table per phase: every op.")] = False,
    fitted: FittedOption = False,
    with_details: Details = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the roofline (.png, .svg).")] = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Predict the latency and throughput of one batch alone, and say what binds.

    TTFT is the time until every request of the batch has its first token, TPOT the mean decode step after it, E2EL the
    time until the last token; tok/s counts output tokens over the whole time, prefill included.
    """
    level = interval_options.interval
    cases = [SweepCase(each, level) for each in BatchQuestion(asked, batches).each()]
    answered = run_on.answers(cases, "batches")
    questions, rows = [case.question for case, _ in answered.answered], answered.rows
    detailed = plot is not None or explain
    found: list[Estimate] = [each.estimate() for each in questions] if detailed else []
    if plot is not None:
        from simulator.plots.plot_file import save
        from simulator.plots.roofline_plots import plot_roofline

        save(plot_roofline(found), plot)
    views = [table(rows, batches.replicas), *details(rows, level)]
    sections: dict[str, list[Row]] = {"estimates": rows}
    if explain:
        sections["ops"] = [row for each in found for row in op_rows(each)]
        views += [view for each in found for view in op_views(each)]
    told = form is not Format.CSV or fitted  # csv has rows alone, of which there may be many
    deployments = [each.deployment() for each in dict.fromkeys(one.deployment for one in questions)] if told else []
    uneven, staged = any(row[SIZE.key] < row["dp"] for row in rows), any(row["pp"] > 1 for row in rows)
    notes = [held_out(rows, level), *([PIPELINE] if staged else []), *([RANKS] if uneven else [])]
    notes += technique_notes(deployments)
    words = [LIGHT, REQUEST, *interval_notes(rows)]
    result = Result(sections, views, notes, evidence(deployments), answered.refused, verdict(rows), words)
    emit(with_fitted(result, deployments) if fitted else result, form, details=with_details)
