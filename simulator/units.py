"""Conversion of text with a unit to SI numbers and back; only here 10^9 and 2^30 are told apart."""

import math
import re
from collections.abc import Mapping

from simulator.errors import UnitError, nearest

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30
KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
DAY_S = 86_400.0

_BYTES = {"B": 1.0, "kB": KB, "KB": KB, "MB": MB, "GB": GB, "TB": TB, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_FLOPS = {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "TOP/s": 1e12}
UNITS: Mapping[str, Mapping[str, float]] = {
    "bytes": _BYTES,
    "bytes_per_s": {f"{unit}/s": _BYTES[unit] for unit in sorted(_BYTES, key=lambda unit: unit == "GB")},
    "flops_per_s": _FLOPS,
    "s": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "min": 60.0, "h": 3600.0, "s": 1.0, "ms": 1e-3},  # examples have the last
    "w": {"W": 1.0, "kW": 1e3},
    "usd_per_hour": {"USD/h": 1.0, "$/h": 1.0},
    "usd": {"USD": 1.0, "$": 1.0},
    "usd_per_kwh": {"USD/kWh": 1.0, "$/kWh": 1.0},
    "usd_per_kw_month": {"USD/kW/month": 1.0, "$/kW/month": 1.0},
    "g_per_kwh": {"g/kWh": 1.0},
    "hz": {"MHz": 1e6, "GHz": 1e9},
    "tokens": {"tokens": 1.0},
    "fraction": {"": 1.0},
    "count": {"": 1.0},
}
MOST: Mapping[str, float] = {  # of a quantity in SI units: far beyond whatever exists, and sums of them stay finite
    **{"bytes": 1e18, "bytes_per_s": 1e18, "flops_per_s": 1e21, "s": 1e10, "w": 1e12, "hz": 1e12, "tokens": 1e15},
    **dict.fromkeys(("usd_per_hour", "usd", "usd_per_kwh", "usd_per_kw_month", "g_per_kwh"), 1e12),
    **{"fraction": 1e15, "count": 1e15},
}
LEAST = 1e-15  # of a quantity in SI units that is not 0: what is divided by it stays finite
_QUANTITY = re.compile(r"\s*([+-]?\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?)\s*([A-Za-zµ$/]*)\s*")


def parse(given: object, dimension: str) -> float:
    """Return a quantity such as "864 GB/s" in SI units.

    `dimension` is a key of `UNITS`, which is also the suffix of the quantity's name.

    Raises UnitError for a missing or foreign unit, and for a number that is negative, NaN, beyond `MOST`, or below
    `LEAST` and not 0.

    >>> parse("864 GB/s", "bytes_per_s")
    864000000000.0
    >>> parse("80 GiB", "bytes")
    85899345920.0
    """
    units = UNITS[dimension]
    example = f"{given} {list(units)[-1]}".strip()
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise UnitError(f"{given!r}", f"it is not a quantity in {dimension}", "Write a number with its unit")
    match = _QUANTITY.fullmatch(str(given))
    if match is None:
        remedy = f"Write one with a unit: {_some(units)}" if any(units) else "Write one, without a unit"
        raise UnitError(f"{given!r}", "it is not a finite, non-negative number", remedy)
    number, unit = float(match[1].replace("_", "")), match[2]
    if unit not in units:
        because = "it has no unit" if not unit else f"there is no unit {unit!r} here"
        hint = f"Write it with one, e.g. '{example}'" if not unit else nearest(unit, [u for u in units if u])
        raise UnitError(f"{given!r}", because, hint)
    if number < 0 or not math.isfinite(number):
        raise UnitError(f"{given!r}", "a quantity here is finite and not negative", "Give 0 or more")
    if number * units[unit] > MOST[dimension]:
        because = f"more than {MOST[dimension]:g} in {dimension} is not of this world"
        raise UnitError(f"{given!r}", because, "Give less, or another unit")
    if 0 < number * units[unit] < LEAST:
        because = f"less than {LEAST:g} in {dimension}, and not 0, is not of this world"
        raise UnitError(f"{given!r}", because, "Give more, or 0")
    return number * units[unit]


def _some(units: Mapping[str, float]) -> str:
    return ", ".join(unit or "a bare number" for unit in units)


def scaled(value: float, unit: str) -> str:
    """Return a number as text with its unit and a decimal prefix, between 1 and 1000, to three significant digits.

    >>> scaled(3.35e12, "B/s")
    '3.35 TB/s'
    >>> scaled(0.0125, "s"), scaled(999.9e6, "B"), scaled(3600, "s")
    ('12.5 ms', '1 GB', '3,600 s')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    prefixes = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
    smallest, largest = (-9, 0) if unit == "s" else (0, 15)
    rounded = float(f"{value:.3g}")  # first, so that 999.9 becomes 1.00 k and not 1e+03
    power = min(max(3 * math.floor(math.log10(abs(rounded)) / 3 + 1e-12), smallest), largest)
    number = rounded / 10.0**power
    if abs(number) >= 1000:
        return f"{value / 10.0**power:,.0f} {prefixes[power]}{unit}"
    return f"{number:.3g} {prefixes[power]}{unit}"


def significant(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, all of those before the point, with commas between thousands.

    >>> significant(0.0123456), significant(123456.7), significant(2.05), significant(18.0, 2), significant(math.nan)
    ('0.0123', '123,457', '2.05', '18', '-')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)) + 1e-9))
    return f"{value:,.{decimals}f}"


def per_second(rate_per_s: float, noun: str) -> str:
    """Return a rate with its unit.

    >>> per_second(1.0, "request"), per_second(0.12, "output token"), per_second(16_234.4, "output token")
    ('1 request/s', '0.120 output tokens/s', '16,234 output tokens/s')
    """
    return f"1 {noun}/s" if rate_per_s == 1 else f"{significant(rate_per_s)} {noun}s/s"


def lasting(time_s: float) -> str:
    """Return a duration as text: in seconds, above two minutes in minutes, above two hours in hours.

    >>> lasting(46.06), lasting(618.0), lasting(14_356.0)
    ('46.1 s', '10.3 min', '3.99 h')
    """
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if time_s > 2 * size:
            return f"{time_s / size:.3g} {unit}"
    return scaled(time_s, "s")


def counted(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "request"), counted(1_200, "chat request")
    ('1 request', '1,200 chat requests')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def gibibytes(value_bytes: float, digits: int = 2) -> str:
    """Return bytes as text in GiB, as drivers and engines report memory.

    >>> gibibytes(85899345920)
    '80.00 GiB'
    """
    return f"{value_bytes / GIB:,.{digits}f} GiB"
