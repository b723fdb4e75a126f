"""Numbers of tables and sentences as text: significant digits, per cent, whole numbers."""

from collections.abc import Callable

from simulator.units import significant


def number(digits: int = 3, factor: float = 1.0) -> Callable[[float], str]:
    """Return a function that prints a value times `factor` with so many significant digits, all before the point.

    >>> number(3, 1e3)(0.0123456), number()(123456.7)
    ('12.3', '123,457')
    """
    return lambda value: significant(value * factor, digits)


def ends(low: float, high: float | None, show: Callable[[float], str]) -> str:
    """Return both ends of an interval as text; one without an upper end goes up from its lower one.

    >>> ends(1.5, 4.0, str), ends(1.5, None, str)
    ('1.5-4.0', '1.5 up')
    """
    return f"{show(low)} up" if high is None else f"{show(low)}-{show(high)}"


def ranged(value: float | None, low: float | None, high: float | None, factor: float = 1.0) -> str:
    """Return a value times `factor` and, in brackets, its interval with two digits at each end.

    The value alone where it has no other end, a dash for None.

    >>> ranged(0.01234, 0.01, None, 1e3), ranged(2.0, 2.0, 2.0), ranged(None, None, None)
    ('12.3 (10 up)', '2.00', '-')
    """
    if value is None:
        return "-"
    shown = significant(value * factor)
    return shown if low is None or low == high else f"{shown} ({ends(low, high, number(2, factor))})"


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
