"""Score the fit on what it has not seen: refit without each device-model pair, device, model and source in turn.

Every row is predicted, by the same curves, with the values of a fit that has not seen its group.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.deployment.deployment import Deployment
from simulator.reports.interval_widths import EvidenceLevel, shipped_basis, traits_of
from simulator.validation.measurements import Measurement
from tools.fitting import Fit, Fits, is_tail

KEYS: dict[str, Callable[[Measurement], tuple[str, ...]]] = {
    "device and model": lambda row: row.group[1:],
    "device": lambda row: (row.setup.hardware,),
    "model": lambda row: (row.setup.model,),
    "source": lambda row: (row.setup.source,),
}
COLUMNS = (
    *("left_out", "id", "source", "hardware", "model", "engine"),
    *("metric", "regime", "limited", "stat", "measured", "error", "traits"),
)


class LeftOut(NamedTuple):
    """A row, ln(predicted / measured) by a fit without its group, and the traits of its question then."""

    row: Measurement
    error: float
    traits: tuple[str, ...]


def left_out(fits: Fits, kind: str) -> Iterator[LeftOut]:
    """Yield each row as a fit without its group predicts it."""
    key = KEYS[kind]
    keys = {name: [key(fit.curves.rows[at]) for at in fits.own[name]] for name, fit in fits.fits.items()}
    for group in sorted({each for some in keys.values() for each in some}):
        solved = fits.without(lambda row, group=group: key(row) != group)  # type: ignore[misc]
        for name, some in keys.items():
            numbers = [at for at, each in zip(fits.own[name], some, strict=True) if each == group]
            if numbers:
                errors, fit = fits.errors(name, solved), fits.fits[name]
                families = _families(fit, [at for at in fit.seen if key(fit.curves.rows[at]) != group])
                for at in numbers:
                    row, deployment = fit.curves.rows[at], fit.curves.asked[fit.curves.rows[at].id].deployment
                    evidence = _evidence(deployment, families)
                    metric = f"{row.stat} {row.metric}"
                    traits = traits_of(deployment, metric, row.setup.regime or "", evidence)
                    yield LeftOut(row, float(errors[at]), traits)


def _families(fit: Fit, numbers: Iterable[int]) -> set[str]:
    """Return the families of the devices of a block's rows."""
    return {fit.curves.asked[fit.curves.rows[at].id].deployment.hardware.family for at in numbers}


def _evidence(deployment: Deployment, families: set[str]) -> EvidenceLevel:
    """Return the evidence behind a prediction by a block with rows of these families; without any row it is a guess."""
    return shipped_basis(deployment, sorted(families)) if families else "guess"


def summary(found: list[LeftOut]) -> Iterator[str]:
    """Yield one line per metric and regime: the median over groups of the mean |error|, and its 90th percentile."""
    kinds: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, error, _ in found:
        kind = f"{row.metric} {row.setup.regime}{' p9x' if is_tail(row) else ''}"
        kinds[kind][row.group].append(abs(math.expm1(error)))
    for kind, groups in sorted(kinds.items()):
        means = [float(np.mean(each)) for each in groups.values()]
        middle, high = np.median(means), np.quantile(means, 0.9)
        yield f"   {kind:40s} groups {len(means):3d}  median {middle:6.1%}  p90 {high:6.1%}"


def score(fits: Fits, path: Path, say: Callable[[str], None]) -> None:
    """Write the errors of everything left out and print their summary."""
    asked = {name: each for fit in fits.fits.values() for name, each in fit.curves.asked.items()}
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for kind in KEYS:
            found = list(left_out(fits, kind))
            for row, error, traits in found:
                setup = row.setup
                limited = "limited" if asked[row.id].placed.recipe.latency_limits_s else ""
                named = (row.id, *row.group, setup.engine, row.metric, setup.regime or "", limited, row.stat)
                writer.writerow((kind, *named, f"{row.value:.6g}", f"{error:.5f}", " ".join(traits)))
            say(f"without the {kind}:")
            for line in summary(found):
                say(line)
