"""Turn a table of measurements of the older schema into one with typed columns; the same input makes the same bytes.

python -m tools.type_measurements FILE OUT

What the words of `load` and `notes` say is in columns afterwards (simulator/validation/older_notes.py); both stay, for
people. OUT is gzipped where it ends in .gz.
"""

import csv
import gzip
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from simulator.validation.measurements import AMOUNTS, COUNTS
from simulator.validation.older_notes import typed_columns

COLUMNS = (
    *("id", "source", "source_url", "source_date", "source_commit"),
    *("hardware", "hw_class", "n_gpus", "tp", "pp", "ep", "dp", "replicas"),
    *("model", "checkpoint", "weight_dtype", "weights_bytes", "kv_dtype", "engine", "engine_version"),
    *("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "prefix_caching", "threads"),
    *("engine_settings", "input_len", "output_len", "context_len", "length_spread", "dataset"),
    *("regime", "batch", "prefill_batch", "concurrency", "request_rate", "burstiness", "num_prompts"),
    *("client", "num_dataset_entries", "scenario", "submitter", "not_modelled"),
    *("metric", "stat", "value", "unit", "quality", "load", "notes"),
)


def converted(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """Yield each row with every typed column; ValueError for a column that would be lost."""
    for row in rows:
        if lost := row.keys() - set(COLUMNS):
            raise ValueError(f"columns that no typed table has: {', '.join(sorted(lost))}")
        cells = typed_columns({name: cell.strip() for name, cell in row.items()})
        yield {name: _plain(name, cells.get(name, "")) for name in COLUMNS}


def _plain(column: str, cell: str) -> str:
    """Return a number without the decimals that say nothing.

    >>> _plain("n_gpus", "8.0"), _plain("engine_version", "1.0")
    ('8', '1.0')
    """
    return re.sub(r"\.0+$", "", cell) if column in (*COUNTS, *AMOUNTS, "value") else cell


def table(rows: Iterable[Mapping[str, str]]) -> str:
    """Return a typed table as CSV."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def main(source: Path, out: Path) -> None:
    """Convert one file."""
    data = source.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    made = table(converted(csv.DictReader(io.StringIO(text, newline="")))).encode()
    out.write_bytes(gzip.compress(made, 9, mtime=0) if out.suffix == ".gz" else made)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
