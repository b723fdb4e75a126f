"""`infercast memory`: where the memory of a device goes, and what the cache holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from simulator.cli.answers.deployment_columns import common, evidence, labels_of
from simulator.cli.answers.memory_tables import ledger_view, misfit, plan_row
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.complaint import complain
from simulator.cli.numbers import count
from simulator.cli.options.deployment_options import DeploymentOptions, OutputFormat, grouped
from simulator.cli.output import Column, Result, Row, View, emit, tried
from simulator.cli.text_layout import Format
from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import CACHE_ERROR, MemoryPlan, memory_plan
from simulator.errors import InfercastError
from simulator.questions.identity import identity
from simulator.questions.words import whole_numbers
from simulator.reports.provenance import Provenance, memory_basis
from simulator.units import gibibytes

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
        """Return the asked lengths in tokens, or 1,024, 8,192, 65,536 and the longest; none beyond the longest.

        Raises InfercastError for a list that holds anything but whole numbers above 0.
        """
        longest = plan.deployment.max_model_len
        asked = self._asked()
        return [each for each in asked or sorted({1024, 8192, 65536, longest}) if each <= longest]

    def too_long(self, plan: MemoryPlan) -> list[InfercastError]:
        """Return why asked lengths have no answer: they are beyond the longest context."""
        longest, deployment = plan.deployment.max_model_len, plan.deployment
        because = f"a sequence has {longest:,} tokens at most"
        beyond = [each for each in self._asked() if each > longest]
        return [InfercastError(f"{each:,} tokens on {deployment}", because, "Give shorter lengths") for each in beyond]

    def _asked(self) -> list[int]:
        asked = whole_numbers(self.context, "--context") if self.context else []
        if self.input_len or self.output_len:
            prompts = whole_numbers(self.input_len or "1024", "--input-len")
            asked += [a + b for a in prompts for b in whole_numbers(self.output_len or "128", "--output-len")]
        return asked


@grouped
def command(asked: DeploymentOptions, lengths: ContextOptions, form: OutputFormat = Format.TEXT) -> None:
    """Show where the memory goes, how many blocks, tokens and sequences the cache holds.

    Exit code 2 when anything does not fit; the plan is printed all the same, with what would make it fit.
    """
    deployments, refused = tried(asked.choices())
    plans = [memory_plan(each) for each in deployments]
    misfits = [error for error in map(misfit, plans) if error]
    ledger = [plan_row(plan) for plan in plans]
    too_long = [error for plan in plans for error in lengths.too_long(plan)]
    sequences = [_sequence_rows(plan, lengths) for plan in plans]
    if too_long and not any(sequences):
        raise too_long[0]
    rows: list[Row] = [{**plan, **each} for plan, fitting in zip(ledger, sequences, strict=True) for each in fitting]
    views = [ledger_view(ledger, deployments)]
    if fitting := [row for row in rows if row["fits"]]:
        varying = common([identity(each) for each in deployments])[1]
        views.append(View("Sequences side by side", (*varying, *SEQUENCES), fitting))
    notes = [*dict.fromkeys(_convention(each) for each in deployments), *technique_notes(deployments)]
    rests_on = evidence(deployments, memory_basis)
    if any(row["fits"] and plan.fits_barely for row, plan in zip(ledger, plans, strict=True)):
        rests_on.append(Provenance("memory plan", "error of the KV cache", float(CACHE_ERROR), CACHE_ERROR.source))
    emit(Result({"plans": rows}, views, notes, rests_on, [*refused, *too_long], verdict=_verdict(plans, ledger)), form)
    for error in misfits:
        complain(f"error: {error}")
    if misfits:
        raise typer.Exit(2)


def _verdict(plans: Sequence[MemoryPlan], ledger: Sequence[Row]) -> list[str]:
    """Return whether a plan fits and how much its cache holds, or how many of several fit."""
    first, *others = ledger
    if others:
        return [_which_fit(plans, ledger)]
    if error := misfit(plans[0]):
        is_weights = plans[0].weight_bytes > plans[0].total_bytes - plans[0].unused_bytes
        weights = f"{gibibytes(first['weight_bytes'])} of weights in {gibibytes(first['memory_bytes'])} of memory"
        because = weights if is_weights else f"{error.given}: {error.because}"
        return [f"Does not fit: {because}."]
    if not plans[0].fits_barely:
        return [f"Fits: {_held(plans[0])}."]
    off = gibibytes(plans[0].error_bytes)
    return [f"Fits barely: {_held(plans[0])}.", f"The plan of a cache may be off by {off}: start the engine to see."]


def _held(plan: MemoryPlan) -> str:
    """Return what the cache of a plan holds."""
    each = f" on each of {ranks} ranks" if (ranks := plan.deployment.layout.dp) > 1 else ""
    cache = f"{gibibytes(plan.cache_bytes)}{each}"
    if not any(plan.deployment.model.attention_layers):
        states = f"{cache} hold the states of {plan.num_blocks:,} sequences"
        return f"no layer caches tokens; {states}, of up to {plan.max_context_tokens:,} tokens each"
    held = f"its KV cache of {cache} holds {plan.cache_tokens:,} tokens{' in all' if each else ''}"
    longest = f"the longest sequence may have {plan.max_context_tokens:,}"
    if not plan.groups.limited:
        return f"{held}, {longest}"
    return f"{held} of short sequences and more of long ones, which not all layers keep whole; {longest}"


def _which_fit(plans: Sequence[MemoryPlan], ledger: Sequence[Row]) -> str:
    """Return how many of several plans fit, which, where not all do, and which of these fit barely."""
    names = labels_of([plan.deployment for plan in plans])
    fitting = [name for name, row in zip(names, ledger, strict=True) if row["fits"]]
    which = f": {', '.join(fitting)}" if 0 < len(fitting) < len(names) else ""
    barely = [name for name, plan in zip(names, plans, strict=True) if name in fitting and plan.fits_barely]
    doubt = f" Barely: {', '.join(barely)}; an error of the plan may take half of the cache or all." if barely else ""
    return f"{len(fitting)} of {len(ledger)} fit{which}.{doubt}"


def _sequence_rows(plan: MemoryPlan, lengths: ContextOptions) -> list[Row]:
    """Return a row for each length: blocks of one sequence, how many fit in the cache, how many run at once."""
    return [
        {
            "sequence_tokens": tokens,
            "sequence_blocks": plan.blocks(tokens),
            "concurrency": plan.concurrency(tokens),
            "running": min(plan.sequences(tokens) if plan.concurrency(tokens) else 0, plan.max_num_seqs),
        }
        for tokens in lengths.contexts(plan)
    ]


def _convention(deployment: Deployment) -> str:
    rule = CONVENTIONS[deployment.engine.memory.convention].format(fraction=deployment.memory_fraction)
    return f"{deployment.engine.id}: {rule}{SLOTS if deployment.engine.is_reserved else ''}."


SEQUENCES = (
    Column("sequence_tokens", "tokens each", count),
    Column("sequence_blocks", "blocks each", count),
    Column("concurrency", "fit", lambda value: f"{value:,.2f} x"),  # as vLLM says it at start-up
    Column("running", "run at once", count),
)
