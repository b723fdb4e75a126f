"""Options for what a file of measurements does not state, shared by the commands that read one."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.cli.options.deployment_options import BATCH, CACHE_DTYPE, PP, TP
from simulator.engines.engine import KIND
from simulator.errors import InfercastError
from simulator.profile_folders import names
from simulator.units import counted
from simulator.validation.benchfiles import Stated, columns_left

MOST_COLUMNS, MOST_LETTERS = 8, 40  # of columns that are not read: names that are told, and letters of each
FLAGS = {  # of columns whose option is not their name
    **{"n_gpus": "--devices", "kv_dtype": "--cache-dtype"},
    **{"concurrency": "--max-concurrency", "request_rate": "--rate"},
}


def flag_of(column: str) -> str:
    """Return the option that states a column of measurements.

    >>> flag_of("n_gpus"), flag_of("input_len")
    ('--devices', '--input-len')
    """
    return FLAGS.get(column, f"--{column.replace('_', '-')}")


def told_of_columns(path: Path) -> list[str]:
    """Return a sentence on the columns of a table of measurements that are not read; none where all are."""
    left = [name[:MOST_LETTERS] for name in columns_left(path)]
    more = f" and {len(left) - MOST_COLUMNS} more" if len(left) > MOST_COLUMNS else ""
    named = f"{', '.join(left[:MOST_COLUMNS])}{more}"
    return [f"Not read, {counted(len(left), 'column')} of {path.name}: {named} (docs/measurements.md)."] if left else []


@dataclass(frozen=True)
class StatedOptions:
    """Options for what a file does not state, each named as its column of measurements.

    They replace what a benchmark's result file says, and fill the empty cells of a table of measurements.
    """

    hardware: Annotated[str, Option("--hardware", metavar="NAME", help="Device that was measured.")] = ""
    model: Annotated[str, Option("--model", metavar="NAME", help="Model that was measured.")] = ""
    engine: Annotated[str, Option("--engine", metavar="NAME", help="Its engine, as vllm or vllm-0.33.")] = ""
    engine_version: Annotated[str, Option("--engine-version", metavar="N", help="Its version, as 0.33.0.")] = ""
    n_gpus: Annotated[int, Option("--devices", min=0, help="Devices of the run.", show_default="tp x pp")] = 0
    tp: Annotated[int, Option(*TP, min=0, help="Tensor parallelism of the run.", show_default=False)] = 0
    pp: Annotated[int, Option(*PP, min=0, help="Pipeline parallelism of the run.", show_default=False)] = 0
    weight_dtype: Annotated[str, Option("--weight-dtype", metavar="NAME", help="Number format of the weights.")] = ""
    kv_dtype: Annotated[str, Option(*CACHE_DTYPE, metavar="NAME", help="Number format of the KV cache.")] = ""
    input_len: Annotated[int, Option("--input-len", "--isl", min=0, help="Prompt tokens.", show_default=False)] = 0
    output_len: Annotated[int, Option("--output-len", "--osl", min=0, help="Output tokens.", show_default=False)] = 0
    batch: Annotated[int, Option(*BATCH, min=0, help="Requests of a fixed batch.", show_default=False)] = 0
    concurrency: Annotated[
        int, Option("--max-concurrency", min=0, help="Requests in flight of a closed loop.", show_default=False)
    ] = 0
    request_rate: Annotated[
        str, Option("--rate", "--request-rate", metavar="N", help="Requests per second; inf is all at once.")
    ] = ""

    def value(self) -> Stated:
        """Return what was stated; an engine like "vllm-0.33" states the version too.

        Raises InfercastError for a rate that is not a number of requests/s.
        """
        engine, version = self.engine, self.engine_version
        if engine in names(KIND):
            engine, _, own = engine.rpartition("-")
            version = version or own
        said = vars(self) | {"engine": engine, "engine_version": version, "request_rate": self._rate()}
        return Stated(**said)

    def _rate(self) -> float:
        try:
            rate = float(self.request_rate or 0)
        except ValueError:
            rate = math.nan
        if not rate >= 0:
            given = f"--rate {self.request_rate}"
            raise InfercastError(given, "it is no number of requests per second", "Give 2, or inf")
        return rate
