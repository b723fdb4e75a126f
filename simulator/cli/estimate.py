"""`infercast estimate`: one batch alone, prefill and decode, beside the speed of light."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from simulator.cli.batch_screen import SPEEDUP, sizes, table, verdict
from simulator.cli.executor_options import ExecutorOptions
from simulator.cli.fitted import FittedOption, with_fitted
from simulator.cli.intervals import IntervalColumn, IntervalOptions, held_out, interval_notes, intervals_view
from simulator.cli.options import BATCH, DeploymentOptions, Details, Format, OutputFormat, grouped, technique_notes
from simulator.cli.output import (
    Column,
    Result,
    Row,
    View,
    common,
    emit,
    evidence,
    milliseconds,
    number,
    percent,
    seconds,
)
from simulator.deployment.estimate import Estimate, OpCost, Phase
from simulator.questions.batch_question import BatchQuestion, BatchSizes
from simulator.questions.identity import identity
from simulator.questions.sweep import SweepCase
from simulator.units import scaled

LIGHT = "light: the speed of light, at the data sheet's peaks without any overhead; ratio: predicted over light."
REQUEST = "TTFT: the prefill, and what a request takes outside the steps; --explain lists its parts."
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
        from simulator.plots.roofline_plots import plot_roofline, save  # noqa: PLC0415  matplotlib takes half a second

        save(plot_roofline(found), plot)
    views = [table(rows), _latency_view(rows), _intervals_view(rows, level), _binding_view(rows)]
    sections: dict[str, list[Row]] = {"estimates": rows}
    if explain:
        sections["ops"] = [row for each in found for row in _op_rows(each)]
        views += [view for each in found for view in op_views(each)]
    told = form is not Format.CSV or fitted  # csv has rows alone, of which there may be many
    deployments = [each.deployment() for each in dict.fromkeys(one.deployment for one in questions)] if told else []
    notes = [held_out(rows, level), *([PIPELINE] if asked.pp > 1 else []), *technique_notes(deployments)]
    words = [LIGHT, REQUEST, *interval_notes(rows)]
    result = Result(sections, views, notes, evidence(deployments), answered.refused, verdict(rows), words)
    emit(with_fitted(result, deployments) if fitted else result, form, details=with_details)


def _with_light(key: str, heading: str, show: Any) -> tuple[Column, Column, Column]:
    """Return columns for a prediction, its speed of light, and the ratio of the two."""
    return Column(key, heading, show), Column(f"light_{key}", "light", show), Column(f"{key}_ratio", "ratio", number(3))


def _latency_view(rows: list[Row]) -> View:
    columns = (
        *common(rows)[1],
        *sizes(rows)[1],
        *_with_light("ttft_s", "TTFT ms", milliseconds),
        *_with_light("tpot_s", "TPOT ms", milliseconds),
        Column("e2el_s", "E2EL s", seconds),
        Column("tokens_per_s_user", "tok/s/user", number()),
        Column("output_tokens_per_s", "tok/s", number()),
        *([SPEEDUP] if any(row["speculation_speedup"] for row in rows) else []),
    )
    ratios = [{f"{key}_ratio": _ratio(row, key) for key in ("ttft_s", "tpot_s")} for row in rows]
    shown = [{**a, **b} for a, b in zip(rows, ratios, strict=True)]
    return View("Beside the speed of light", columns, shown, is_detail=True)


def _intervals_view(rows: list[Row], level: float) -> View:
    shown = (
        IntervalColumn("ttft_s", "TTFT ms", milliseconds),
        IntervalColumn("tpot_s", "TPOT ms", milliseconds),
        IntervalColumn("e2el_s", "E2EL s", seconds),
        IntervalColumn("tokens_per_s_user", "tok/s/user", number()),
        IntervalColumn("output_tokens_per_s", "tok/s", number()),
    )
    return intervals_view([*common(rows)[1], *sizes(rows)[1], *shown], rows, level)


def _ratio(row: Row, key: str) -> float | None:
    value: float | None = row[key]
    return None if value is None else value / float(row[f"light_{key}"])


def _binding_view(rows: list[Row]) -> View:
    columns = (
        *common(rows)[1],
        *sizes(rows)[1],
        Column("phase", "phase", left=True),
        *_with_light("s", "ms", milliseconds),
        Column("mostly", "bound by", left=True),
        Column("op", "longest op", left=True),
        Column("op_share", "share", percent),
        Column("bound", "its bound", left=True),
    )
    return View("What binds", columns, [bound for row in rows for bound in _phase_rows(row)], is_detail=True)


def _phase_rows(row: Row) -> Iterator[Row]:
    """Yield a row for each part of the TTFT (what a request takes outside the steps, prefill) and for a decode step."""
    if row["request_s"]:
        longest = {"op": row["request_op"], "op_share": row["request_op_share"], "bound": "overhead"}
        host = {"phase": "per request", "s": row["request_s"], "mostly": "overhead", **longest}
        yield {**row, **host, "light_s": 0.0, "s_ratio": None}
    steps = f"prefill, {row['prefill_steps']} steps" if row["prefill_steps"] > 1 else "prefill"
    for name, phase in (("prefill", steps), ("decode", f"decode step at {row['decode_context_tokens']:,}")):
        own = {key.replace(f"{name}_", ""): value for key, value in row.items() if f"{name}_" in key}
        mostly = f"{own['mostly']} {percent(own['mostly_share'])}"
        by = f", {number(2)(own['margin'])} x {own['runner_up']}" if own["margin"] else ""
        yield {**row, **own, "phase": phase, "s_ratio": _ratio(own, "s"), "mostly": mostly, "bound": own["bound"] + by}


def _op_rows(found: Estimate) -> Iterator[Row]:
    batch = found.batch
    sizes = {"batch": batch.size, "input_tokens": batch.prompt_tokens, "output_tokens": batch.output_tokens}
    for name, phase in (("request", found.request), ("prefill", found.prefill), ("decode", found.decode)):
        for op in phase.ops:
            yield {**identity(found.deployment), **sizes, "phase": name, **_op_row(phase, op)}


def _op_row(phase: Phase, op: OpCost) -> Row:
    cost = op.cost._asdict()
    return {
        "op": cost.pop("name"),
        "repeats": op.repeats,
        **cost,
        "light_s": op.light_s,
        "share": phase.share(op),
        "bound": op.cost.bound,
    }


OP_COLUMNS = (
    Column("op", "op", left=True),
    Column("repeats", "runs"),
    Column("flops", "FLOPs", lambda value: scaled(value, "")),
    Column("moved_bytes", "bytes", lambda value: scaled(value, "B")),
    Column("compute_s", "compute ms", milliseconds),
    Column("memory_s", "memory ms", milliseconds),
    Column("link_s", "link ms", milliseconds),
    Column("overhead_s", "overhead ms", milliseconds),
    Column("seconds", "total ms", milliseconds),
    Column("share", "share", percent),
    Column("bound", "bound", left=True),
    Column("light_s", "light ms", milliseconds),
)


def op_views(found: Estimate) -> Iterator[View]:
    """Yield a table of all ops for each phase."""
    for name, phase in (("Per request", found.request), ("Prefill", found.prefill), ("Decode step", found.decode)):
        if phase.ops:
            yield phase_view(found, name, phase)


def phase_view(found: Estimate, name: str, phase: Phase) -> View:
    """Return a table of all ops of a phase, with their sums in the last row."""
    each = ", each device" if found.deployment.layout.devices > 1 else ""
    subject = f"{found.batch} on {found.deployment}, {found.deployment.engine.id}{each}"
    steps = f" in {phase.steps} steps" if phase.steps > 1 else ""
    rows = [*(_op_row(phase, op) for op in phase.ops), _sum_row(phase)]
    return View(f"{name}{steps}: {subject}", OP_COLUMNS, rows)


def _sum_row(phase: Phase) -> Row:
    sums = {name: sum(float(getattr(op.cost, name)) for op in phase.ops) for name in phase.ops[0].cost._fields[1:]}
    return {"op": "sum", "repeats": None, **sums, "share": 1.0, "bound": None, "light_s": phase.light_s}
