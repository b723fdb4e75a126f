"""What a run takes of memory, before any of it is allocated: engines, requests and steps."""

from simulator.errors import InfercastError
from simulator.limits import refuse_beyond_memory
from simulator.scheduler.state import PREFIX_BLOCK, SLOT, SchedulerLimits
from simulator.workloads.workload import REQUEST_BYTES, Requests

MOST_ENGINES = 20_000  # pipeline stages of all replicas of a fleet: each step of one is an event of all
STEP_BYTES = 128  # of a step while rows of it are joined


def refuse_oversized(limits: SchedulerLimits, requests: Requests, engines: int = 1) -> None:
    """Raise InfercastError for more engines than are simulated, and for a run that would exceed the free memory.

    Steps: at least as many as the longest output has tokens, or as all outputs and prompts take in full batches.
    """
    if engines > MOST_ENGINES:
        given, because = f"{engines:,} engines", f"a fleet of up to {MOST_ENGINES:,} pipeline stages is simulated"
        raise InfercastError(given, because, "Give fewer --replicas, each with a larger share of the load")
    blocks = int(requests.prefixes.ids.max(initial=-1)) + 3 if limits.prefix_block_tokens else 0
    each_bytes = (limits.max_num_seqs + 1) * SLOT.itemsize + limits.block_size * 8 + blocks * PREFIX_BLOCK.itemsize
    refuse_beyond_memory(
        f"{engines:,} engines of up to {limits.max_num_seqs:,} sequences and {blocks:,} prefix blocks",
        engines * each_bytes,
        "Give fewer --replicas, a lower --max-num-seqs, or fewer or shorter shared prefixes",
    )
    outputs, prompts = float(requests.output_tokens.sum()), float(requests.prompt_tokens.sum())
    in_full_batches = outputs / limits.max_num_seqs + prompts / limits.max_num_batched_tokens
    steps = max(in_full_batches, float(requests.output_tokens.max())) / (1 + limits.draft_tokens)
    refuse_beyond_memory(
        f"{len(requests):,} requests of up to {requests.max_total_tokens:,} tokens, in {steps:,.0f} steps or more",
        len(requests) * REQUEST_BYTES + steps * STEP_BYTES,
        "Give fewer --num-prompts or shorter lengths",
    )
