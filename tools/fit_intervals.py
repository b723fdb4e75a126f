"""Make simulator/reports/residuals.yaml, the quantiles behind the error bars; report how often they hold.

    python -m tools.fit_efficiency --left-out left_out.csv
    python -m tools.fit_intervals left_out.csv

The residuals are of fits that had not seen the row's device and model (`fitted`), its device (`family`), its device or
its source (`guess`). For the coverage the table is made again without every group of a row's device and of its source;
an 80 % interval should hold 75 to 85 % of what it has not seen. Latencies of open loops are no part of the table: they
depend on how near saturation each was measured. Their intervals come from simulations, as everywhere, with that table.
Runs under published limits (`limited`) are all near, and are.
"""

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from simulator.reports.intervals import (
    LEVELS,
    STEPS,
    EvidenceLevel,
    Group,
    Quantiles,
    Residual,
    bounds,
    is_simulated,
    table,
)
from simulator.validation.measurements import Measurement, Setup, read_measurements
from simulator.validation.prediction import Answered, ask
from tools.fit_efficiency import FITTED
from tools.fitting import EXCLUDED

ROOT = Path(__file__).parents[1]
RESTS_ON: dict[str, tuple[EvidenceLevel, ...]] = {
    "device and model": ("fitted",),
    "device": ("family", "guess"),
    "source": ("guess",),
}


def residuals(path: Path) -> list[Residual]:
    """Read the errors of what was left out; rows that no physics explains (EXCLUDED) tell nothing of others.

    A group that is alone with its engine in its source leaves nothing to fit on, so that no `fitted` rests on it.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    beside: dict[tuple[str, str], set[Group]] = defaultdict(set)
    for row in rows:
        beside[row["source"], row["engine"]].add(_group(row))
    return [
        Residual(row["metric"], row["limited"] or row["regime"], _group(row), -float(row["error"]), basis, row["id"])
        for row in rows
        for basis in RESTS_ON.get(row["left_out"], ())
        if _group(row) not in EXCLUDED and (basis != "fitted" or len(beside[row["source"], row["engine"]]) > 1)
    ]


def _group(row: dict[str, str]) -> Group:
    return row["source"], row["hardware"], row["model"]


def coverage(found: Sequence[Residual], rows: Iterable[Measurement] = (), level: float = 0.8) -> dict[str, list[float]]:
    """Return the share inside by kind, one figure per group, each from a table without its device and source.

    Latencies of open loops are among them where they are `rows`.
    """
    by_id, known = {row.id: row for row in rows}, Tables(found)
    groups: dict[tuple[str, Group], list[bool]] = defaultdict(list)
    for each in found:
        low, high = bounds(known.without(each), each.metric, each.regime, level, each.basis)
        if is_simulated(each):
            if each.id not in by_id:
                continue
            ratios = _bent(by_id[each.id], bounds(known.without(each), *STEPS[0], level, each.basis))
            low, high = min(low, *ratios), max(high, *ratios)
        kind = f"{each.basis} {each.metric} {each.regime}"
        groups[(kind, each.group)].append(math.log(low) <= each.value <= math.log(high))
    shares: dict[str, list[float]] = defaultdict(list)
    for (kind, _), inside in groups.items():
        shares[kind].append(float(np.mean(inside)))
    return shares


@dataclass(frozen=True)
class Tables:
    """The tables of residuals without those of one device and one source."""

    found: Sequence[Residual]
    known: dict[tuple[str, str], dict[str, Quantiles]] = field(default_factory=dict)

    def without(self, one: Residual) -> dict[str, Quantiles]:
        """Return the table that has not seen the device or the source of a residual."""
        source, device = key = one.group[:2]
        if key not in self.known:
            self.known[key] = table(each for each in self.found if each.group[0] != source and each.group[1] != device)
        return self.known[key]


def _bent(row: Measurement, throughput: tuple[float, float]) -> list[float]:
    """Return the factors on a prediction that the shortest and the longest steps make, by throughput's interval."""
    answers = [_answer(row.setup, 1 / each) for each in (1.0, *throughput)]
    value, *others = (each.value(row.metric, row.stat) for each in answers)
    return [each / value for each in others]


@cache
def _answer(setup: Setup, factor: float) -> Answered:
    asked = ask(setup)
    return asked.on(replace(asked.deployment, step_factor=factor)).answer()


def mean_coverage(shares: dict[str, list[float]], basis: str) -> float:
    """Return the share of a basis' groups and kinds inside, all weighing alike."""
    return float(np.mean([share for kind, each in shares.items() if kind.startswith(basis) for share in each]))


def main() -> None:
    """Write the table and print the coverage."""
    found, rows = residuals(Path(sys.argv[1])), read_measurements(FITTED)
    shares = coverage(found, rows)
    for kind, each in sorted(shares.items()):
        sys.stdout.write(f"{kind:44s} groups {len(each):3d}  inside 80 %: {np.mean(each):.0%}\n")
    held = {basis: mean_coverage(shares, basis) for basis in ("fitted", "family", "guess")}
    sys.stdout.write(", ".join(f"{basis} {share:.0%}" for basis, share in held.items()) + "\n")
    lines = [
        "# Quantiles of ln(measured / predicted) by what a prediction rests on, metric and regime; see intervals.py.",
        f"source: tools/fit_intervals.py, {len(found)} residuals of rows that the fit had not seen, {_today()}",
        f"levels: [{', '.join(map(str, LEVELS))}]",
        f"coverage: {{{', '.join(f'{basis}: {share:.3f}' for basis, share in held.items())}}}",
        "quantiles:",
        *(f"  {kind}: [{', '.join(map(str, values))}]" for kind, values in table(found).items()),
    ]
    (ROOT / "simulator" / "reports" / "residuals.yaml").write_text("\n".join(lines) + "\n")


def _today() -> str:
    return datetime.now(tz=UTC).date().isoformat()


if __name__ == "__main__":
    main()
