"""How much of the code the unit tests run, line by line and branch by branch: the table in docs/trust.md.

    python -m tools.branch_coverage [--again] [--write]

Compiled functions are invisible to `coverage` (it is in the extra `dev`), so what is left of them is run as plain
Python by the oracles of the scheduler and of fleets, and both runs are added up. The runs are kept in out/branches*;
`--again` makes them anew. Processes that a test starts are not counted.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from tools.trust_page import put, table

ROOT = Path(__file__).parents[1]
DATA, FOUND = ROOT / "out" / "branches", ROOT / "out" / "branches.json"
RUNS: tuple[tuple[tuple[str, ...], str], ...] = (  # pytest's arguments, NUMBA_DISABLE_JIT
    ((), "0"),
    (("tests/scheduler/test_oracle_policies.py", "tests/simulation/test_oracle_fleet.py"), "1"),
)
NAMES = "num_statements", "covered_lines", "num_branches", "covered_branches"
FEW = 0.5  # files with a smaller share are named


def main() -> None:
    """Run the tests if need be, and print or write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--again", action="store_true")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    if given.again or not FOUND.exists():
        measure()
    text = page(json.loads(FOUND.read_text())["files"])
    put("branches", text) if given.write else print(text)  # noqa: T201


def measure() -> None:
    """Run the unit tests under `coverage`, the compiled ones as plain Python too, into one file."""
    FOUND.parent.mkdir(exist_ok=True)
    coverage = sys.executable, "-m", "coverage"
    for number, (tests, plain) in enumerate(RUNS):
        run = (*coverage, "run", "--branch", "--source=simulator", f"--data-file={DATA}", *(["-a"] if number else []))
        environment = os.environ | {"NUMBA_DISABLE_JIT": plain, "COVERAGE_CORE": "ctrace"}
        subprocess.run([*run, "-m", "pytest", "-m", "not slow", *tests], cwd=ROOT, env=environment, check=False)  # noqa: S603
    subprocess.run([*coverage, "json", "-q", f"--data-file={DATA}", "-o", str(FOUND)], cwd=ROOT, check=True)  # noqa: S603


def page(files: dict[str, Any]) -> str:
    """Return the table of folders, and the files of which less than FEW is run.

    >>> counts = {"num_statements": 8, "covered_lines": 3, "num_branches": 2, "covered_branches": 1}
    >>> print(page({"simulator/cost/bill.py": {"summary": counts}}))
    | folder | lines | run | branches | taken |
    |---|---|---|---|---|
    | cost | 8 | 38% | 2 | 50% |
    | all | 8 | 38% | 2 | 50% |
    <BLANKLINE>
    Least: cost/bill.py 40%.
    """
    folders: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    few = []
    for path, found in files.items():
        counts = [found["summary"][name] for name in NAMES]
        parts = Path(path).parts
        for folder in ("all", parts[1] if len(parts) > 2 else "root"):
            folders[folder] = [a + b for a, b in zip(folders[folder], counts, strict=True)]
        if _share(counts[0] + counts[2], counts[1] + counts[3]) < FEW:
            few.append(f"{path.removeprefix('simulator/')} {_share(counts[0] + counts[2], counts[1] + counts[3]):.0%}")
    rows = [_row(name, folders[name]) for name in sorted(folders, key=lambda name: (name == "all", name))]
    listed = f"\n\nLeast: {', '.join(few)}." if few else ""
    return table(["folder", "lines", "run", "branches", "taken"], rows) + listed


def _row(name: str, counts: list[int]) -> list[str]:
    lines, run, branches, taken = counts
    return [name, f"{lines:,}", f"{_share(lines, run):.0%}", f"{branches:,}", f"{_share(branches, taken):.0%}"]


def _share(count: int, of_them: int) -> float:
    return of_them / count if count else 1.0


if __name__ == "__main__":
    main()
