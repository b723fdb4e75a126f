"""Speculative decoding, compiled: how many of the proposed tokens a sequence keeps. Rules: docs/serving-rules.md, S."""

import math

from simulator.compiled import compiled, inlined
from simulator.state import State

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
def uniform(index: int, generated: int, position: int) -> float:
    """Return a number in [0, 1) that looks random and depends on nothing but three counts.

    h = 1234567891; for v in the counts: h = (h + v)^5 mod 2^31 - 1; then h / (2^31 - 1). The fifth power is a bijection
    modulo this prime, and no product reaches 2^62: the same bits in 64-bit integers and in Python's.

    >>> uniform(0, 0, 0)
    0.14291299234280036
    """
    return _mixed(_mixed(_mixed(SEED, index), generated), position) / PRIME


@compiled
def produced(s: State, j: int) -> int:
    """Return how many tokens the decoding sequence at a position produces in the step that the tick counts already."""
    limits, slot, tick = s.limits, s.slots[j], s.book[0].tick
    if limits.expected_acceptance:
        steps, per_step = tick - slot.joined_tick, limits.tokens_per_step
        return int(math.floor(steps * per_step + 1e-9) - math.floor((steps - 1) * per_step + 1e-9))
    generated = s.requests[slot.request].output_tokens - (slot.last_tick - tick + 1)
    drawn, accepted = _mixed(_mixed(SEED, slot.request), generated), 0  # `uniform`, but for its last step
    while accepted < limits.draft_tokens and _mixed(drawn, accepted) / PRIME < limits.acceptance[accepted]:
        accepted += 1
    return 1 + accepted
