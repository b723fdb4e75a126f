"""Where the memory of a device goes, as a row and as a table."""

from collections.abc import Iterable, Sequence
from typing import Any

from simulator.cli.answers.deployment_columns import side_by_side
from simulator.cli.numbers import count
from simulator.cli.output import Column, Row, View
from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import padding_bytes, vision_bytes
from simulator.deployment.memory import MemoryPlan
from simulator.deployment.memory_advice import refuse_misfit
from simulator.errors import DoesNotFitError
from simulator.questions.identity import identity
from simulator.units import MIB, gibibytes


def ledger_view(ledger: Sequence[Row], deployments: Iterable[Deployment]) -> View:
    """Return the table of memory plans side by side, each a column, of rows that `plan_row` made."""
    columns = [each for each in LEDGER if each.key not in OPTIONAL or any(row[each.key] for row in ledger)]
    return side_by_side("Memory of each device", ledger, columns, [identity(each) for each in deployments])


def misfit(plan: MemoryPlan) -> DoesNotFitError | None:
    """Return why a plan does not fit, with what would; None where it fits."""
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
        "fits": misfit(plan) is None,
        "memory_bytes": plan.total_bytes,
        "weight_bytes": plan.weight_bytes,
        "draft_bytes": deployment.draft.weight_bytes,
        "adapter_bytes": deployment.adapter_bytes,
        "vision_bytes": vision_bytes(deployment),
        "padding_bytes": padding_bytes(deployment),
        "host_bytes": plan.host_weight_bytes,
        "host_cache_bytes": deployment.settings.offload.cache_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "workspace_peak": plan.workspace.peak,
        "context_bytes": plan.context_bytes,
        "graph_bytes": plan.graph_bytes,
        "unused_bytes": plan.unused_bytes,
        "state_bytes": plan.state_slots * plan.state_bytes,
        "cache_bytes": plan.cache_bytes,
        "block_bytes": plan.block_bytes * deployment.layout.dp,  # whole on its rank
        "block_tokens": plan.block_size,
        "blocks": plan.num_blocks,
        "cache_tokens": plan.cache_tokens,
        "max_context_tokens": plan.max_context_tokens,
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": deployment.max_num_batched_tokens,
        "memory_fraction": deployment.memory_fraction,
        "convention": "reserved" if deployment.engine.is_reserved else deployment.engine.memory.convention,
    }


LEDGER = (
    Column("memory_bytes", "memory", gibibytes),
    Column("weight_bytes", "weights", gibibytes),
    Column("draft_bytes", "  of which draft", gibibytes),
    Column("adapter_bytes", "  of which adapters", gibibytes),
    Column("vision_bytes", "  of which vision", gibibytes),
    Column("padding_bytes", "  of which padding", gibibytes),
    Column("host_bytes", "  left on the host", gibibytes),
    Column("host_cache_bytes", "KV cache on the host", gibibytes),
    Column("workspace_bytes", "workspace of a step", gibibytes),
    Column("workspace_peak", "  which peaks in"),
    Column("context_bytes", "other buffers", gibibytes),
    Column("graph_bytes", "captured graphs", gibibytes),
    Column("unused_bytes", "unused", gibibytes),
    Column("state_bytes", "recurrent states", gibibytes),
    Column("cache_bytes", "KV cache", lambda value: gibibytes(value) if value >= 0 else f"{gibibytes(-value)} short"),
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
OPTIONAL = (
    *("draft_bytes", "adapter_bytes", "vision_bytes", "padding_bytes", "state_bytes", "host_bytes", "host_cache_bytes"),
)
