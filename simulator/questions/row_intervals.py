"""An interval beside each predicted value of a row."""

import math
from collections.abc import Mapping
from functools import partial

from simulator.frames import Row
from simulator.reports.intervals import PredictionRange

ENDS = ("low", "high")


def regime_of(concurrency: int, requests: int) -> str:
    """Return the regime of measurements that a load belongs to, by its requests in flight (`concurrency`).

    0 is an open loop; as many as there are requests is an offline run.

    >>> regime_of(0, 100), regime_of(8, 100), regime_of(100, 100)
    ('open_loop', 'closed_loop', 'offline')
    """
    if not concurrency:
        return "open_loop"
    return "offline" if concurrency >= requests else "closed_loop"


def intervals(prediction: PredictionRange[Row], metrics: Mapping[str, str]) -> Row:
    """Return `<key>_low` and `<key>_high` of a row's values, in their units, and the evidence that they rest on.

    A high of None with a low: no upper end, because with the longest steps the queue grows without end. Both None:
    there is no value. `metrics` maps each key to the metric of measurements whose errors it has, as
    `PredictionRange.ends` takes it ("1/tpot_ms": inverted).
    """
    found: dict[str, float | None] = {}
    for key, metric in metrics.items():
        known = prediction.found[key] is not None
        low, high = prediction.ends(metric, partial(_none_as_inf, key)) if known else (None, None)
        found |= {f"{key}_low": low, f"{key}_high": None if high == math.inf else high}
    return {**found, "interval": prediction.level, "interval_basis": prediction.basis}


def _none_as_inf(key: str, row: Row) -> float:
    """Return a value of a row; infinity for None, which stands for a latency that grows with the run."""
    return math.inf if row[key] is None else float(row[key])
