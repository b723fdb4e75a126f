"""Published request traces, restored from tests/fixtures/traces, which keeps them as differences (its README)."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from tests.support.paths import FIXTURES

KEPT = FIXTURES / "traces"
GAPS_PER_S = 10_000


def restore(folder: Path) -> None:
    """Write every trace as its publisher's columns, under the name that it has here, into the same sub-folders."""
    for path in KEPT.rglob("*.csv.gz"):
        made = folder / path.relative_to(KEPT)
        made.parent.mkdir(exist_ok=True)
        if path.name.startswith("servegen"):
            shutil.copy(path, made)
        else:
            compression = {"method": "gzip", "compresslevel": 1}
            _restored(pd.read_csv(path)).to_csv(made, index=False, compression=compression)


def _restored(kept: pd.DataFrame) -> pd.DataFrame:
    columns: dict[str, pd.Series] = {}
    for name, values in kept.items():
        if name == "prefix_block_ids_512tok_step":
            columns["prefix_block_ids_512tok"] = values.map(_ids)
        elif str(name).endswith("_step"):
            columns[str(name).removesuffix("_step")] = values.cumsum()
        else:
            columns[str(name)] = values
    if "gap" in columns:
        arrival_s = columns.pop("gap").cumsum() / GAPS_PER_S
        columns = {"arrival_s": arrival_s, **columns}
    return pd.DataFrame(columns)


def _ids(steps: str) -> str:
    return " ".join(map(str, np.cumsum([int(step) for step in steps.split()])))
