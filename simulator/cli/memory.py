"""`infercast memory`: where the memory of a device goes, and what the cache holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from simulator.cli.options import DeploymentOptions, Format, OutputFormat, grouped, technique_notes
from simulator.cli.output import Column, Result, Row, View, common, count, emit, evidence, sweep
from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import padding_bytes, vision_bytes
from simulator.deployment.memory import MemoryPlan, memory_plan
from simulator.deployment.memory_advice import refuse_misfit
from simulator.errors import DoesNotFitError
from simulator.questions.identity import identity
from simulator.questions.words import whole_numbers
from simulator.reports.provenance import memory_basis
from simulator.units import MIB, gibibytes

CONVENTIONS = {  # how an engine sizes its KV cache: `memory.convention` of its preset (engines/engine.py)
    "of_total": "cache = {fraction:g} x memory - all else",
    "of_free": "cache = {fraction:g} x (memory - all else)",
    "of_rest": "cache = {fraction:g} x (memory - context) - weights",
}
SLOTS = ", of which a slot reserves its context"


@dataclass(frozen=True)
class ContextOptions:
    """Options for the lengths of sequences of which the KV cache should hold many at once."""

    context: Annotated[str, typer.Option("--context", metavar="N,..", help="Tokens of one sequence.")] = ""
    input_len: Annotated[str, typer.Option("--input-len", "--isl", metavar="N,..", help="Prompt tokens.")] = ""
    output_len: Annotated[
        str, typer.Option("--output-len", "--osl", metavar="N,..", help="Output tokens, with --input-len.")
    ] = ""

    def contexts(self, plan: MemoryPlan) -> list[int]:
        """Return the asked lengths in tokens, or the longest context, and 1,024, 8,192 and 65,536 where below it.

        Raises InfercastError for a list that holds anything but whole numbers above 0.
        """
        asked = whole_numbers(self.context, "--context") if self.context else []
        if self.input_len or self.output_len:
            prompts = whole_numbers(self.input_len or "1024", "--input-len")
            asked += [a + b for a in prompts for b in whole_numbers(self.output_len or "128", "--output-len")]
        longest = plan.deployment.context_tokens
        return asked or sorted({*(each for each in (1024, 8192, 65536) if each < longest), longest})


@grouped
def command(asked: DeploymentOptions, lengths: ContextOptions, form: OutputFormat = Format.TEXT) -> None:
    """Show where the memory goes, how many blocks, tokens and sequences the cache holds.

    Exit code 2 when anything does not fit; the plan is printed all the same, with what would make it fit.
    """
    deployments, refused = sweep(asked.choices())
    plans = [memory_plan(each) for each in deployments]
    misfits = [error for error in map(_misfit, plans) if error]
    ledger = [plan_row(plan) for plan in plans]
    sequences = [_sequence_rows(plan, lengths) for plan in plans]
    rows: list[Row] = [{**plan, **each} for plan, fitting in zip(ledger, sequences, strict=True) for each in fitting]
    views = [ledger_view(ledger)]
    if fitting := [row for row in rows if row["fits"]]:
        views.append(View("Sequences side by side", (*common(ledger)[1], *SEQUENCES), fitting))
    notes = [*dict.fromkeys(_convention(each) for each in deployments), *technique_notes(deployments)]
    rests_on = evidence(deployments, memory_basis)
    emit(Result({"plans": rows}, views, notes, rests_on, refused, verdict=_verdict(plans)), form)
    for error in misfits:
        typer.echo(f"infercast: error: {error}", err=True)
    if misfits:
        raise typer.Exit(2)


def ledger_view(ledger: Sequence[Row]) -> View:
    """Return the table of memory plans side by side, each a column, of rows that `plan_row` made."""
    title, varying = common(ledger)
    heads = [{**row, "name": "\n".join(str(row[each.key]) for each in varying)} for row in ledger]
    columns = [each for each in LEDGER if each.key not in OPTIONAL or any(row[each.key] for row in ledger)]
    return View(f"Memory of each device: {title}", (Column("name", ""), *columns), heads, upright=True)


def _verdict(plans: Sequence[MemoryPlan]) -> list[str]:
    """Return whether it fits and how much the cache holds, or how many of several fit."""
    fitting = [plan for plan in plans if _misfit(plan) is None]
    if len(plans) > 1:
        return [f"{len(fitting)} of {len(plans)} fit."]
    if not fitting:
        return [f"Does not fit: {gibibytes(plans[0].weight_bytes)} of weights."]
    held = f"its KV cache of {gibibytes(plans[0].cache_bytes)} holds {plans[0].cache_tokens:,} tokens"
    return [f"Fits: {held}, the longest sequence may have {plans[0].max_context_tokens:,}."]


def _misfit(plan: MemoryPlan) -> DoesNotFitError | None:
    try:
        refuse_misfit(plan)
    except DoesNotFitError as error:
        return error
    return None


def plan_row(plan: MemoryPlan) -> dict[str, Any]:
    """Return the parts of a memory plan in bytes per device, and what the KV cache holds, in blocks and tokens."""
    deployment = plan.deployment
    return {
        **identity(deployment),
        "fits": _misfit(plan) is None,
        "memory_bytes": plan.total_bytes,
        "weight_bytes": plan.weight_bytes,
        "draft_bytes": deployment.draft.weight_bytes,
        "adapter_bytes": deployment.adapter_bytes,
        "vision_bytes": vision_bytes(deployment),
        "padding_bytes": padding_bytes(deployment),
        "host_bytes": plan.host_weight_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "workspace_peak": plan.workspace.peak,
        "context_bytes": plan.context_bytes,
        "graph_bytes": plan.graph_bytes,
        "unused_bytes": plan.unused_bytes,
        "state_bytes": plan.max_num_seqs * plan.state_bytes,
        "cache_bytes": plan.cache_bytes,
        "block_bytes": plan.block_bytes,
        "block_tokens": plan.block_size,
        "blocks": plan.num_blocks,
        "cache_tokens": plan.cache_tokens,
        "max_context_tokens": plan.max_context_tokens,
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": deployment.max_num_batched_tokens,
        "memory_fraction": deployment.memory_fraction,
        "convention": "reserved" if deployment.engine.is_reserved else deployment.engine.memory.convention,
    }


def _sequence_rows(plan: MemoryPlan, lengths: ContextOptions) -> list[Row]:
    """Return a row for each length: blocks of one sequence, how many fit in the cache, how many run at once."""
    return [
        {
            "sequence_tokens": tokens,
            "sequence_blocks": plan.blocks(tokens),
            "concurrency": plan.concurrency(tokens),
            "running": min(int(plan.concurrency(tokens)), plan.max_num_seqs),
        }
        for tokens in lengths.contexts(plan)
    ]


def _convention(deployment: Deployment) -> str:
    rule = CONVENTIONS[deployment.engine.memory.convention].format(fraction=deployment.memory_fraction)
    return f"{deployment.engine.id}: {rule}{SLOTS if deployment.engine.is_reserved else ''}."


LEDGER = (
    Column("memory_bytes", "memory", gibibytes),
    Column("weight_bytes", "weights", gibibytes),
    Column("draft_bytes", "  of which draft", gibibytes),
    Column("adapter_bytes", "  of which adapters", gibibytes),
    Column("vision_bytes", "  of which vision", gibibytes),
    Column("padding_bytes", "  of which padding", gibibytes),
    Column("host_bytes", "  left on the host", gibibytes),
    Column("workspace_bytes", "workspace of a step", gibibytes),
    Column("workspace_peak", "  which peaks in"),
    Column("context_bytes", "other buffers", gibibytes),
    Column("graph_bytes", "captured graphs", gibibytes),
    Column("unused_bytes", "left alone", gibibytes),
    Column("state_bytes", "recurrent states", gibibytes),
    Column("cache_bytes", "KV cache", gibibytes),
    Column("block_bytes", "one block", lambda value: f"{value / MIB:,.2f} MiB"),
    Column("block_tokens", "  tokens in it", count),
    Column("blocks", "blocks", count),
    Column("cache_tokens", "tokens in the cache", count),
    Column("max_context_tokens", "longest sequence, tokens", count),
    Column("max_num_seqs", "max_num_seqs", count),
    Column("max_num_batched_tokens", "max_num_batched_tokens", count),
    Column("fits", "fits", lambda value: "yes" if value else "NO"),
)
# Shown where there are any
OPTIONAL = ("draft_bytes", "adapter_bytes", "vision_bytes", "padding_bytes", "state_bytes", "host_bytes")
SEQUENCES = (
    Column("sequence_tokens", "tokens each", count),
    Column("sequence_blocks", "blocks each", count),
    Column("concurrency", "fit", lambda value: f"{value:,.2f} x"),  # as vLLM says it at start-up
    Column("running", "run at once", count),
)
