"""Speculative decoding, compiled: how many draft tokens a sequence keeps in a step. Rules: docs/serving-rules.md, S."""

import math
from typing import Any

from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.state import State, whole_blocks

PRIME, SEED = 2**31 - 1, 1234567891


@inlined
def _mixed(state: int, count: int) -> int:
    """Return (state + count)^5 modulo PRIME."""
    base = (state + count) % PRIME
    square = _remainder(base * base)
    return _remainder(_remainder(square * square) * base)


@inlined
def _remainder(product: int) -> int:
    """Return a product below 2^62 modulo PRIME = 2^31 - 1, by adding its 31-bit digits."""
    folded = (product & PRIME) + (product >> 31)
    folded = (folded & PRIME) + (folded >> 31)
    return folded - PRIME if folded >= PRIME else folded


@compiled
def uniform(index: int, count: int, position: int) -> float:
    """Return a pseudo-random number in [0, 1) that depends on nothing but three non-negative counts.

    h = 1234567891; for v in the counts: h = (h + v)^5 mod 2^31 - 1; the result is h / (2^31 - 1). The fifth power is a
    bijection modulo this prime, and no product reaches 2^62, so 64-bit integers and Python's integers give the same
    bits. Rule S5.

    >>> uniform(0, 0, 0)
    0.14291299234280036
    """
    return _mixed(_mixed(_mixed(SEED, index), count), position) / PRIME


@inlined
def accepted(limits: Any, draw: float) -> int:
    """Return how many draft tokens a number in [0, 1) accepts: i or more with probability a0 a1 .. a(i-1).

    The loop has no early exit, because the processor cannot predict where the first draft token is rejected. Rule S3.
    """
    count = 0
    for position in range(limits.draft_tokens):
        count += 1 if draw < limits.reached[position] else 0
    return count


@inlined
def begin_drafting(s: State, j: int) -> None:
    """Note the state on which the drafts of a sequence depend, when it begins to decode."""
    slot = s.slots[j]
    slot.room = whole_blocks(s.limits, slot.cached)
    slot.joined_tick = s.book[0].tick
    slot.seed = _mixed(SEED, slot.request)


@inlined
def produced(s: State, j: int) -> int:
    """Return how many tokens the decoding sequence at `j` produces in the step that the tick counts already.

    Rules S2, S3 and Y.
    """
    limits, slot, tick = s.limits, s.slots[j], s.book[0].tick
    if limits.num_scheduler_steps > 1:
        return int(limits.num_scheduler_steps)
    if limits.expected_acceptance:
        steps, per_step = tick - slot.joined_tick, limits.tokens_per_step
        tokens = int(math.floor(steps * per_step + 1e-9) - math.floor((steps - 1) * per_step + 1e-9))
    else:
        computed = slot.cached + tick - 1
        tokens = 1 + accepted(limits, _mixed(slot.seed, computed) / PRIME)
    return tokens
