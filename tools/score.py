"""Score the fit on what it has not seen: refit without each device-model pair, device, model and source in turn.

    python -m tools.score ../shared/measurements/measurements.csv.gz left_out.csv

The rows that the fits see (tools/fitting.py) are predicted, by the same curves, with the values of a fit that has not
seen their group. `python -m tools.fit_intervals left_out.csv` makes the intervals from the file,
`python -m tools.write_accuracy` the page.
"""

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from simulator.measurements import Measurement, read_measurements
from tools.fitting import Fits, fit_all, place_all

GRADES = ("A", "B", "")
KEYS: dict[str, Callable[[Measurement], tuple[str, ...]]] = {
    "device and model": lambda row: row.group[1:],
    "device": lambda row: (row.setup.hardware,),
    "model": lambda row: (row.setup.model,),
    "source": lambda row: (row.setup.source,),
}
COLUMNS = ("left_out", "id", "source", "hardware", "model", "engine", "metric", "regime", "stat", "measured", "error")


def say(line: str) -> None:
    """Print a line at once: it takes minutes."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def left_out(fits: Fits, kind: str) -> Iterator[tuple[Measurement, float]]:
    """Yield each row with ln(predicted / measured) by a fit without its group; of rows that can be predicted."""
    key = KEYS[kind]
    for group in sorted({key(row) for fit in fits.fits.values() for row in fit.rows}):
        solved = fits.without(lambda row, group=group: key(row) != group)  # type: ignore[misc]
        for name, fit in fits.fits.items():
            for row, error in zip(fit.rows, fit.errors(solved[name]), strict=True):
                if (
                    key(row) == group
                    and math.isfinite(error)
                    and fits.narrowest(fit.placed[row.id].deployment) == fit.block
                ):
                    yield row, float(error)


def summary(found: list[tuple[Measurement, float]]) -> Iterator[str]:
    """Yield one line per metric and regime: the median over groups of the mean |error|, and its 90th percentile."""
    kinds: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, error in found:
        kinds[f"{row.metric} {row.setup.regime}"][row.group].append(abs(math.expm1(error)))
    for kind, groups in sorted(kinds.items()):
        means = [float(np.mean(each)) for each in groups.values()]
        middle, high = np.median(means), np.quantile(means, 0.9)
        yield f"   {kind:36s} groups {len(means):3d}  median {middle:6.1%}  p90 {high:6.1%}"


def write(fits: Fits, path: Path) -> None:
    """Write the errors of everything left out and print their summary."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for kind in KEYS:
            found = list(left_out(fits, kind))
            for row, error in found:
                setup = row.setup
                named = (row.id, *row.group, setup.engine, row.metric, setup.regime or "", row.stat)
                writer.writerow((kind, *named, f"{row.value:.6g}", f"{error:.5f}"))
            say(f"without the {kind}:")
            for line in summary(found):
                say(line)


def main() -> None:
    """Fit, leave out, write."""
    rows = [row for row in read_measurements(Path(sys.argv[1])) if row.quality in GRADES]
    write(fit_all(rows, place_all(rows), say), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
