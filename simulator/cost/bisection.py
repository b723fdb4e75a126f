"""Bisection over whole numbers, and over rates at which something is simulated."""

import math
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
Try = tuple[float, Found]  # a rate in requests/s, and what was found at it


def bisect_first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first whole number above `low` and up to `high` that `holds`, as all after it do; not asked of `high`.

    >>> bisect_first(lambda number: number**2 >= 50, 0, 100)
    8
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def mean(low: float, high: float) -> float:
    """Return the middle of two rates."""
    return (low + high) / 2


def geometric_mean(low: float, high: float) -> float:
    """Return the middle of two positive rates in logarithms."""
    return math.sqrt(low * high)


def bisect_rate(
    simulated: Callable[[float], Found],
    keeps: Callable[[Found], bool],
    bracket: tuple[Try[Found], Try[Found]],
    halvings: int,
    middle: Callable[[float, float], float] = mean,
) -> tuple[Try[Found], Try[Found]]:
    """Return the highest rate that `keeps` and the lowest that does not, each with what was `simulated` at it.

    `bracket`: the same before the first of the halvings.

    >>> kept, failed = bisect_rate(lambda rate: rate**2, lambda square: square <= 2.0, ((1.0, 1.0), (2.0, 4.0)), 3)
    >>> kept, failed
    ((1.375, 1.890625), (1.5, 2.25))
    """
    low, high = bracket
    for _ in range(halvings):
        rate = middle(low[0], high[0])
        found = rate, simulated(rate)
        low, high = (found, high) if keeps(found[1]) else (low, found)
    return low, high
