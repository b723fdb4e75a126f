"""Make simulator/residuals.yaml, the quantiles behind the error bars, and report the coverage of what is left out.

    python -m tools.fit_efficiency ../shared/measurements/measurements.csv.gz --left-out left_out.csv
    python -m tools.fit_intervals left_out.csv

The residuals are of fits that had not seen the row's device and model (`fitted`), its device (`family`), its device or
its source (`guess`). For the coverage the table is made again without every group of a row's device and of its source;
an 80 % interval should hold 75 to 85 % of what it has not seen.
"""

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from simulator.intervals import LEVELS, Basis, Group, Residual, bounds, table
from tools.fitting import EXCLUDED

ROOT = Path(__file__).parents[1]
RESTS_ON: dict[str, tuple[Basis, ...]] = {
    "device and model": ("fitted",),
    "device": ("family", "guess"),
    "source": ("guess",),
}


OVERLOAD = 10.0  # times the measured latency: a queue that grows for the whole run, not an error of rates


def residuals(path: Path) -> list[Residual]:
    """Read the errors of what was left out; rows that no physics explains (EXCLUDED) tell nothing of others.

    Nor do latencies of an open loop that comes out overloaded where the engine was not: a simulation then says so, and
    states no latency that an interval could go with.
    """
    with path.open(newline="") as file:
        return [
            Residual(row["metric"], row["regime"], group, -float(row["error"]), basis)
            for row in csv.DictReader(file)
            for basis in RESTS_ON.get(row["left_out"], ())
            if (group := (row["source"], row["hardware"], row["model"])) not in EXCLUDED and not _overloaded(row)
        ]


def _overloaded(row: dict[str, str]) -> bool:
    """Whether a latency is predicted so far above the measured one that only a growing queue explains it."""
    is_latency = row["metric"] in ("ttft_ms", "e2e_latency_ms")
    return row["regime"] == "open_loop" and is_latency and float(row["error"]) > math.log(OVERLOAD)


def coverage(residuals: Iterable[Residual], level: float = 0.8) -> dict[str, list[float]]:
    """Return the share inside by kind, one figure per group, each from a table without its device and source."""
    found = list(residuals)
    groups: dict[tuple[str, Group], list[Residual]] = defaultdict(list)
    for each in found:
        groups[(f"{each.basis} {each.metric} {each.regime}", each.group)].append(each)
    tables: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
    shares: dict[str, list[float]] = defaultdict(list)
    for (kind, group), members in groups.items():
        if group[:2] not in tables:
            others = (each for each in found if each.group[0] != group[0] and each.group[1] != group[1])
            tables[group[:2]] = table(others)
        one = members[0]
        low, high = bounds(tables[group[:2]], one.metric, one.regime, level, one.basis)
        inside = [math.log(low) <= each.value <= math.log(high) for each in members]
        shares[kind].append(float(np.mean(inside)))
    return shares


def mean_coverage(shares: dict[str, list[float]], basis: str) -> float:
    """Return the share of a basis' groups and kinds inside, all weighing alike."""
    return float(np.mean([share for kind, each in shares.items() if kind.startswith(basis) for share in each]))


def main() -> None:
    """Write the table and print the coverage."""
    found = residuals(Path(sys.argv[1]))
    shares = coverage(found)
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
    (ROOT / "simulator" / "residuals.yaml").write_text("\n".join(lines) + "\n")


def _today() -> str:
    return datetime.now(tz=UTC).date().isoformat()


if __name__ == "__main__":
    main()
