"""Make simulator/residuals.yaml, the quantiles behind the error bars, and report the coverage of what is left out.

    python -m tools.fit_intervals ../shared/measurements/measurements.csv.gz

For each (source, device, model) group the table is made again without every group of its device and of its source; an
80 % interval should hold 75 to 85 % of what it has not seen. Run it after tools/fit_efficiency.py.
"""

import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from simulator.intervals import LEVELS, Group, Residual, bounds, table
from simulator.measurements import read_measurements
from simulator.prediction import predict

ROOT = Path(__file__).parents[1]


def residuals(path: Path) -> list[Residual]:
    """Predict the rows graded A and B and return their residuals."""
    rows = [row for row in read_measurements(path) if row.quality in ("A", "B", "")]
    return [
        Residual(
            each.measurement.metric,
            each.measurement.setup.regime or "",
            each.measurement.group,
            -math.log1p(each.error),
        )
        for each in predict(rows)
        if each.value is not None
    ]


def coverage(found: list[Residual], level: float = 0.8) -> dict[str, list[float]]:
    """Return the share inside by metric, one figure per group, each from a table without its device and source."""
    shares: dict[str, list[float]] = defaultdict(list)
    by_group: dict[Group, list[Residual]] = defaultdict(list)
    for each in found:
        by_group[each.group].append(each)
    tables: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
    for group, some in by_group.items():
        left_out = group[:2]
        if left_out not in tables:
            tables[left_out] = table(each for each in found if each.group[0] != group[0] and each.group[1] != group[1])
        inside = defaultdict(list)
        for each in some:
            low, high = bounds(tables[left_out], each.metric, each.regime, level)
            inside[f"{each.metric} {each.regime}"].append(math.log(low) <= each.value <= math.log(high))
        for kind, hits in inside.items():
            shares[kind].append(float(np.mean(hits)))
    return shares


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Write the table and print the coverage."""
    found = residuals(Path(sys.argv[1]))
    shares = coverage(found)
    for kind, each in sorted(shares.items()):
        say(f"{kind:40s} groups {len(each):3d}  inside 80 %: {np.mean(each):.0%}")
    say(f"all {np.mean([share for each in shares.values() for share in each]):.0%}")
    lines = [
        "# Quantiles of ln(measured / predicted) by metric and regime, at the levels of intervals.LEVELS.",
        f"source: tools/fit_intervals.py, {len(found)} rows graded A and B of {Path(sys.argv[1]).name}, 2026-11-21",
        f"levels: [{', '.join(map(str, LEVELS))}]",
        "quantiles:",
        *(f"  {kind}: [{', '.join(map(str, values))}]" for kind, values in table(found).items()),
    ]
    (ROOT / "simulator" / "residuals.yaml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
