"""Speculation in the oracle (rule S of docs/serving-rules.md): how many tokens a decode step produces."""

from __future__ import annotations

import math
from collections.abc import Sequence

PRIME = 2**31 - 1


def uniform(*numbers: int) -> float:
    """S5: the counter hash, a number in [0, 1)."""
    mixed = 1234567891
    for number in numbers:
        mixed = pow(mixed + number, 5, PRIME)
    return mixed / PRIME


def sampled(acceptance: Sequence[float], index: int, computed: int) -> int:
    """S3: one token, and the drafts up to the first that one draw for the whole step rejects."""
    draw, reached, produced = uniform(index, computed), 1.0, 1
    for probability in acceptance:
        reached *= probability
        if draw >= reached:
            break
        produced += 1
    return produced


def expected(acceptance: Sequence[float], step: int) -> int:
    """S3: what the `step`-th decode step (1, 2, ...) produces if tokens come at their expected rate."""
    rate, reached = 1.0, 1.0
    for probability in acceptance:
        reached *= probability
        rate += reached
    return math.floor(step * rate + 1e-9) - math.floor((step - 1) * rate + 1e-9)
