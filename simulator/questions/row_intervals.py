"""An interval beside each predicted value of a row."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from simulator.reports.intervals import PredictionRange

Row = Mapping[str, Any]
ENDS = ("low", "high")


def regime_of(concurrency: int, requests: int) -> str:
    """Return the regime of measurements that a load belongs to: 0 in flight is an open loop, all of them offline.

    >>> regime_of(0, 100), regime_of(8, 100), regime_of(100, 100)
    ('open_loop', 'closed_loop', 'offline')
    """
    if not concurrency:
        return "open_loop"
    return "offline" if concurrency >= requests else "closed_loop"


def intervals(of: PredictionRange[Row], metrics: Mapping[str, str]) -> Row:
    """Return `<key>_low` and `<key>_high` of a row's values, and what they rest on; a high of None has no upper end.

    `metrics` gives each key the metric of measurements whose errors it has, as `PredictionRange.ends` takes it.
    """
    found: dict[str, float | None] = {}
    for key, metric in metrics.items():
        known = of.found[key] is not None
        low, high = of.ends(metric, partial(_endless_as_inf, key)) if known else (None, None)
        found |= {f"{key}_low": low, f"{key}_high": None if high == math.inf else high}
    return {**found, "interval": of.level, "interval_basis": of.basis}


def _endless_as_inf(key: str, row: Row) -> float:
    return math.inf if row[key] is None else float(row[key])
