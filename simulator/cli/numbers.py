"""Numbers of tables and sentences as text: significant digits, per cent, whole numbers."""

import math
from collections.abc import Callable


def number(digits: int = 3, factor: float = 1.0) -> Callable[[float], str]:
    """Return a function that prints a value times `factor` with so many significant digits, all before the point.

    >>> number(3, 1e3)(0.0123456), number()(123456.7)
    ('12.3', '123,457')
    """

    def show(value: float) -> str:
        scaled = value * factor
        if scaled == 0 or not math.isfinite(scaled):
            return "0" if scaled == 0 else "-"
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(scaled)) + 1e-9))
        return f"{scaled:,.{decimals}f}"

    return show


milliseconds = number(3, 1e3)
seconds = number(3)


def percent(value: float) -> str:
    """Return a share (0 to 1) in per cent.

    >>> percent(0.4142), percent(-0.001)
    ('41 %', '0 %')
    """
    return f"{100 * value:z.0f} %"


def count(value: float) -> str:
    """Return a number rounded to a whole one, with commas between thousands.

    >>> count(28298)
    '28,298'
    """
    return f"{value:,.0f}"
