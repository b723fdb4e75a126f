"""Speculative decoding, compiled: how many of the proposed tokens a sequence keeps. Rules: docs/serving-rules.md, S."""

import math
from typing import Any

from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.state import State, whole_blocks

PRIME, SEED = 2**31 - 1, 1234567891


@inlined
def _mixed(state: int, count: int) -> int:
    """Return (state + count)^5 modulo the prime, whose remainders are sums of 31-bit digits."""
    base = (state + count) % PRIME
    square = _remainder(base * base)
    return _remainder(_remainder(square * square) * base)


@inlined
def _remainder(product: int) -> int:
    folded = (product & PRIME) + (product >> 31)
    folded = (folded & PRIME) + (folded >> 31)
    return folded - PRIME if folded >= PRIME else folded


@compiled
def uniform(index: int, count: int, position: int) -> float:
    """Return a number in [0, 1) that looks random and depends on nothing but three counts.

    h = 1234567891; for v in the counts: h = (h + v)^5 mod 2^31 - 1; then h / (2^31 - 1). The fifth power is a bijection
    modulo this prime, and no product reaches 2^62: the same bits in 64-bit integers and in Python's.

    >>> uniform(0, 0, 0)
    0.14291299234280036
    """
    return _mixed(_mixed(_mixed(SEED, index), count), position) / PRIME


@inlined
def accepted(limits: Any, draw: float) -> int:
    """Return how many draft tokens a number drawn from [0, 1) accepts: i or more with probability a0 a1 .. a(i-1).

    It goes on to the end, for the processor cannot guess where the first one is rejected.
    """
    count = 0
    for position in range(limits.draft_tokens):
        count += 1 if draw < limits.reached[position] else 0
    return count


@inlined
def begin_drafting(s: State, j: int) -> None:
    """Note what the drafts of a sequence that begins to decode depend on."""
    slot = s.slots[j]
    slot.room = whole_blocks(s.limits, slot.cached)
    slot.joined_tick = s.book[0].tick
    slot.seed = _mixed(SEED, slot.request)


@inlined
def produced(s: State, j: int) -> int:
    """Return how many tokens the decoding sequence at a position produces in the step that the tick counts already."""
    limits, slot, tick = s.limits, s.slots[j], s.book[0].tick
    if limits.expected_acceptance:
        steps, per_step = tick - slot.joined_tick, limits.tokens_per_step
        tokens = int(math.floor(steps * per_step + 1e-9) - math.floor((steps - 1) * per_step + 1e-9))
    else:
        computed = slot.cached + tick - 1
        tokens = 1 + accepted(limits, _mixed(slot.seed, computed) / PRIME)
    return tokens
