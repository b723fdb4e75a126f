"""Speculative decoding, compiled: how many of the proposed tokens a sequence keeps. Rules: docs/serving-rules.md, S."""

import math

from simulator.compiled import compiled
from simulator.state import State

PRIME = 2**31 - 1


@compiled
def uniform(index: int, generated: int, position: int) -> float:
    """Return a number in [0, 1) that looks random and depends on nothing but three counts.

    h = 1234567891; for v in the counts: h = (h + v)^5 mod 2^31 - 1; then h / (2^31 - 1). The fifth power is a bijection
    modulo this prime, and no product reaches 2^62: the same bits in 64-bit integers and in Python's.

    >>> uniform(0, 0, 0)
    0.14291299234280036
    """
    mixed = 1234567891
    for count in (index, generated, position):
        mixed = (mixed + count) % PRIME
        squared = mixed * mixed % PRIME
        mixed = squared * squared % PRIME * mixed % PRIME
    return mixed / PRIME


@compiled
def produced(s: State, j: int) -> int:
    """Return how many tokens the decoding sequence at a position produces in the step that the tick counts already."""
    limits, slot, tick = s.limits, s.slots[j], s.book[0].tick
    if limits.expected_acceptance:
        steps, per_step = tick - slot.joined_tick, limits.tokens_per_step
        return math.floor(steps * per_step + 1e-9) - math.floor((steps - 1) * per_step + 1e-9)
    generated = s.requests[slot.request].output_tokens - (slot.last_tick - tick + 1)
    accepted = 0
    while accepted < limits.draft_tokens and uniform(slot.request, generated, accepted) < limits.acceptance[accepted]:
        accepted += 1
    return 1 + accepted
