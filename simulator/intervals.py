"""How far measurements lie from predictions: quantiles of residuals by metric and regime, and the interval they give.

A residual is ln(measured / predicted). Rows weigh 1 / size of their (source, device, model) group, so that a large
source counts once. `tools/fit_intervals.py` makes the table and reports
the coverage of devices and sources left out of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.profile import read_yaml

LEVELS = (0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 0.85, 0.9, 0.95, 0.975)
ENOUGH = 6  # groups; a rarer kind takes the residuals of its metric, or of all
Quantiles = tuple[float, ...]
Group = tuple[str, str, str]


class Residual(NamedTuple):
    """ln(measured / predicted) of one row."""

    metric: str
    regime: str
    group: Group
    value: float


def kinds(metric: str, regime: str) -> tuple[str, str, str]:
    """Name the kinds that a row belongs to, the narrowest first."""
    return f"{metric} {regime}", metric, "all"


def table(residuals: Iterable[Residual]) -> dict[str, Quantiles]:
    """Return the quantiles at LEVELS of every kind that has ENOUGH groups."""
    found: dict[str, list[Residual]] = defaultdict(list)
    for each in residuals:
        for kind in kinds(each.metric, each.regime):
            found[kind].append(each)
    return {
        kind: _quantiles(some)
        for kind, some in sorted(found.items())
        if len({each.group for each in some}) >= ENOUGH or kind == "all"
    }


def _quantiles(some: list[Residual]) -> Quantiles:
    sizes: dict[Group, int] = defaultdict(int)
    for each in some:
        sizes[each.group] += 1
    values = np.array([each.value for each in some])
    weights = np.array([1 / sizes[each.group] for each in some])
    order = np.argsort(values)
    middle: npt.NDArray[np.float64] = np.cumsum(weights[order]) - weights[order] / 2
    at = np.interp(_wider(len(sizes)), middle / weights.sum(), values[order])
    return tuple(round(float(each), 4) for each in at)


def _wider(groups: int) -> npt.NDArray[np.float64]:
    """Move levels outwards by one group in n, as conformal prediction does for a new one."""
    levels = np.array(LEVELS)
    return np.clip(0.5 + (levels - 0.5) * (1 + 1 / groups), 0.0, 1.0)


def bounds(quantiles: Mapping[str, Quantiles], metric: str, regime: str, level: float = 0.8) -> tuple[float, float]:
    """Return the factors on a prediction between which a share `level` of measurements lies.

    >>> flat = {"all": tuple(level - 0.5 for level in LEVELS)}
    >>> low, high = bounds(flat, "tpot_ms", "closed_loop", 0.8)
    >>> round(low, 3), round(high, 3)
    (0.67, 1.492)
    """
    known = next(quantiles[kind] for kind in kinds(metric, regime) if kind in quantiles)
    low, high = np.interp([(1 - level) / 2, (1 + level) / 2], LEVELS, known)
    return float(np.exp(low)), float(np.exp(high))


@cache
def shipped() -> dict[str, Quantiles]:
    """Return the table that travels with the product."""
    raw = read_yaml(Path(__file__).parent / "residuals.yaml")
    return {kind: tuple(float(each) for each in values) for kind, values in raw["quantiles"].items()}
