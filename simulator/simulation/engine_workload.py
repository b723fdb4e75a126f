"""What an engine is sent: a workload with what its front end and its prefix cache make of it."""

from dataclasses import replace

import numpy as np

from simulator.deployment.deployment import Deployment
from simulator.limits import refuse_beyond_memory
from simulator.workloads.arrivals import ClosedLoop
from simulator.workloads.lengths import Fixed, Independent, Uniform
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Workload

BLOCKS_PER_PROMPT = 32  # to twice as many prefix blocks of a repeated prompt: fewer than the engine's, for speed


def engine_workload(workload: Workload, deployment: Deployment) -> Workload:
    """Return the workload as it reaches an engine: equal requests drift apart, repeated prompts share their prefix.

    The seed and the number of requests stay.
    """
    reaching = _drifting(workload, deployment)
    if not deployment.engine.prefix_caching or deployment.model.recurrent_layers:
        return reaching
    return _sharing(_repeating(reaching, deployment), deployment)


def _drifting(workload: Workload, deployment: Deployment) -> Workload:
    """Let equal outputs of a closed loop differ by up to `drift_tokens` each way, around the same mean.

    A front end answers one request after the other, so a wave of equal requests comes back spread over a time, and
    the next is no wave any more. An engine that computes prompts first keeps its waves, and a load that is there all
    at once is one.
    """
    arrivals, lengths, engine = workload.arrivals, workload.lengths, deployment.engine
    loops = isinstance(arrivals, ClosedLoop) and arrivals.concurrency < workload.request_count
    if not loops or engine.policy != "continuous" or not isinstance(lengths, Independent):
        return workload
    if not isinstance(lengths.prompt, Fixed) or not isinstance(lengths.output, Fixed):
        return workload
    tokens = lengths.output.tokens
    drift = min(int(engine.drift_tokens), tokens - 1)
    return replace(workload, lengths=Independent(lengths.prompt, Uniform(tokens - drift, tokens + drift)))


def _repeating(workload: Workload, deployment: Deployment) -> Workload:
    """Let requests repeat prompts, which the engine's prefix cache finds again."""
    if workload.repeated is None:
        return workload
    asked, warming = workload.repeated.asked(workload.request_count, workload.seed)
    size, count = _prefix_blocks(int(workload.requests().prompt_tokens.min()), int(deployment.engine.block_size))
    by_last_use = list(dict.fromkeys(warming[::-1]))[::-1]
    warm = np.array([prompt * count + block for prompt in by_last_use for block in reversed(range(count))], np.int64)
    _refuse_blocks(workload.repeated.entries, count, len(asked))
    blocks = np.arange(workload.repeated.entries * count)
    return replace(workload, prefixes=Prefixes(blocks, asked * count, np.full(len(asked), count), size, warm))


def _sharing(workload: Workload, deployment: Deployment) -> Workload:
    """Let requests begin with shared prefixes, whose whole blocks the engine's prefix cache finds again."""
    if workload.shared is None:
        return workload
    size, count = _prefix_blocks(workload.shared.tokens + 1, int(deployment.engine.block_size))
    if not count:
        return workload
    _refuse_blocks(workload.shared.count, count, workload.request_count)
    first = workload.shared.asked(workload.request_count, workload.seed) * count
    blocks = np.arange(workload.shared.count * count)
    return replace(workload, prefixes=Prefixes(blocks, first, np.full(len(first), count), size))


def _refuse_blocks(prompts: int, blocks: int, requests: int) -> None:
    """Refuse so many prompts or prefixes of so many blocks each, found by so many requests, that exceed the memory."""
    given = f"{prompts:,} prompts of {blocks:,} prefix blocks that {requests:,} requests share"
    refuse_beyond_memory(given, 100.0 * blocks * (prompts + requests), "Give fewer or shorter ones")


def _prefix_blocks(tokens: int, block_size: int) -> tuple[int, int]:
    """Return the tokens of a prefix block and how many a prompt of so many tokens has: few, that leave little over.

    >>> _prefix_blocks(8000, 16)  # 499 of the engine's blocks lie before its last token
    (112, 71)
    >>> _prefix_blocks(2000, 16)
    (32, 62)
    """
    held = (tokens - 1) // block_size
    sizes = range(max(1, held // (2 * BLOCKS_PER_PROMPT)), max(1, held // BLOCKS_PER_PROMPT) + 1)
    blocks = min(sizes, key=lambda size: (held % size, -size))
    return blocks * block_size, held // blocks
