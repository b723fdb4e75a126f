"""Bisection over whole numbers."""

from collections.abc import Callable


def bisect_first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first whole number above `low` and up to `high` that `holds`, as all after it do; not asked of `high`.

    >>> bisect_first(lambda number: number**2 >= 50, 0, 100)
    8
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
