"""Published measurements as a table: one row is one figure of one metric, with the setup that it was measured on.

The columns are those of the measurement files (docs/measurements.md); `.csv` and `.csv.gz` are read.
"""

import csv
import gzip
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from simulator.errors import ProfileError, nearest, reason

Regime = Literal["fixed_batch", "closed_loop", "open_loop", "offline", "single"]
NEEDED = ("hardware", "model", "metric", "value")
COLUMNS = (
    *("id", "source", "source_date", "hardware", "hw_class", "n_gpus", "tp", "pp", "ep", "dp", "model"),
    *("weight_dtype", "kv_dtype", "engine", "engine_version", "input_len", "output_len", "batch", "concurrency"),
    *("request_rate", "load", "metric", "stat", "value", "quality", "notes"),
)
SECONDS = {"prefill_ms", "ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms"}
RATES = {"decode_tok_s_per_user", "throughput_out_tok_s", "throughput_total_tok_s", "throughput_in_tok_s", "req_s"}
METRICS = SECONDS | RATES | {"pp_tok_s", "tg_tok_s"}
NUMBERS = (
    *("n_gpus", "tp", "pp", "ep", "dp"),
    *("input_len", "output_len", "batch", "concurrency", "request_rate"),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What was measured: devices, model, engine and load. 0 or "" stands for what the source does not state."""

    source: str
    date: str
    hardware: str
    hardware_class: str
    devices: int
    tp: int
    pp: int
    ep: int
    dp: int
    model: str
    weight_dtype: str
    cache_dtype: str
    engine: str
    engine_version: str
    input_tokens: float
    output_tokens: float
    batch: int
    concurrency: int
    rate_per_s: float
    load: str
    notes: str
    flaw: str = ""  # what of the row cannot be read: such a setup is listed, never predicted

    @property
    def regime(self) -> Regime | None:
        """How requests come: None where the source does not say."""
        load = self.load.lower()
        if load.startswith("fixed"):
            return "fixed_batch"
        if load.startswith("single"):
            return "single"
        if load.startswith("closed") or (not load and self.concurrency):
            return "closed_loop"
        if load.startswith("max throughput") or "offline" in load or math.isinf(self.rate_per_s):
            return "offline"
        if load.startswith(("open", "mlperf")) or (not load and self.rate_per_s):
            return "open_loop"
        return "fixed_batch" if self.batch else None

    def noted(self, pattern: str) -> float | None:
        r"""Return the number that a pattern finds in the load or the notes.

        >>> Setup(*[""] * 4, 1, *[1] * 4, *[""] * 5, 1.0, 1.0, 1, 0, 0.0, "500 requests", "").noted(r"(\d+) requests")
        500.0
        """
        found = re.search(pattern, f"{self.load}; {self.notes}")
        return float(found.group(1)) if found else None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One published figure, in the unit that its metric ends in; NaN where its row has a flaw."""

    id: str
    setup: Setup
    metric: str
    stat: str
    value: float
    quality: str

    @property
    def group(self) -> tuple[str, str, str]:
        """Source, device and model: what errors are averaged by, so that large sources do not dominate."""
        return self.setup.source, self.setup.hardware, self.setup.model


def read_measurements(path: Path, stated: Mapping[str, object] = MappingProxyType({})) -> list[Measurement]:
    """Read a table of measurements; ProfileError for a file without a row that can be read.

    `stated` fills empty cells, by column. A row with a mistake has a setup with a `flaw`.
    """
    remedy = "Give a .csv or .csv.gz of measurements"
    try:
        data = path.read_bytes()
        zipped = path.suffix == ".gz" or data[:2] == b"\x1f\x8b"
        text = (gzip.decompress(data) if zipped else data).decode("utf-8-sig")
        found = list(_read(csv.reader(io.StringIO(text, newline="")), path, stated))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(str(path), f"it cannot be read ({reason(error)})", remedy) from error
    if not found:
        raise ProfileError(str(path), "it has no rows", remedy)
    if all(row.setup.flaw for row in found):
        raise ProfileError(str(path), found[0].setup.flaw, "Correct the cell")
    return found


def _read(table: Iterator[list[str]], path: Path, stated: Mapping[str, object]) -> Iterator[Measurement]:
    columns = [name.strip().lower() for name in next(table, [])]
    filled = {name: str(value) for name, value in stated.items()}
    for name in NEEDED:
        if name not in (*columns, *filled):
            only = f"it has no column {name!r}, only {', '.join(columns) or 'none'}"
            raise ProfileError(str(path), only, "Add it: docs/measurements.md lists the columns")
    for line, cells in enumerate(table, start=2):
        row = {name: cell.strip() for name, cell in zip(columns, cells, strict=False) if cell.strip()}
        if not row:
            continue
        try:
            yield measurement_of({**filled, **row}, f"line {line}")
        except ValueError as error:
            words = {name: cell for name, cell in {**filled, **row}.items() if name not in NUMBERS}
            yield _measurement(words, f"line {line}", math.nan, f"line {line}: {error}")


def measurement_of(row: Mapping[str, str], name: str) -> Measurement:
    """Turn the cells of one row into a measurement, called `name` where it has no id; ValueError for a bad cell."""
    metric, value = row.get("metric", "").strip().lower(), _number(row, "value")
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r} is not known. {nearest(metric, METRICS)}")
    if not 0 < value < math.inf:
        raise ValueError(f"value {row.get('value', '')!r} is not a number above 0")
    return _measurement(row, name, value)


def _measurement(row: Mapping[str, str], name: str, value: float, flaw: str = "") -> Measurement:
    cell = {column: row.get(column, "").strip() for column in COLUMNS}
    metric, stat = cell["metric"].lower(), cell["stat"].lower() or "mean"
    return Measurement(cell["id"] or name, _setup(cell, flaw), metric, stat, value, cell["quality"])


def _setup(cell: Mapping[str, str], flaw: str) -> Setup:
    return Setup(
        source=cell["source"],
        date=cell["source_date"],
        hardware=cell["hardware"],
        hardware_class=cell["hw_class"],
        devices=_whole(cell, "n_gpus") or max(1, _whole(cell, "tp")) * max(1, _whole(cell, "pp")),
        tp=_whole(cell, "tp"),
        pp=_whole(cell, "pp"),
        ep=_whole(cell, "ep"),
        dp=_whole(cell, "dp"),
        model=cell["model"],
        weight_dtype=cell["weight_dtype"].rstrip("?"),
        cache_dtype=cell["kv_dtype"].rstrip("?"),
        engine=cell["engine"],
        engine_version=cell["engine_version"],
        input_tokens=_number(cell, "input_len"),
        output_tokens=_number(cell, "output_len"),
        batch=_whole(cell, "batch"),
        concurrency=_whole(cell, "concurrency"),
        rate_per_s=_number(cell, "request_rate"),
        load=cell["load"],
        notes=cell["notes"],
        flaw=flaw,
    )


def _number(cell: Mapping[str, str], name: str) -> float:
    """Return a number from 0 on; infinity is a rate at which all requests come at once."""
    text = cell.get(name, "")
    try:
        found = float(text or 0)
    except ValueError as error:
        raise ValueError(f"{name} {text!r} is not a number") from error
    if not 0 <= found < math.inf and not (name == "request_rate" and found > 0):
        raise ValueError(f"{name} {text!r} is not a number from 0 on")
    return found


def _whole(cell: Mapping[str, str], name: str) -> int:
    return int(_number(cell, name))
