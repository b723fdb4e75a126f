"""Tables of measurements: one row is one figure of one metric, with the setup that it was measured on.

Every column is typed (docs/measurements.md); `notes` and `load` are for people. Rows of version 1 of the schema have
text that older_notes.py turns into these columns. `.csv` and `.csv.gz` are read.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from simulator.errors import ProfileError, nearest, reason
from simulator.files import open_text
from simulator.hardware.device_names import CPU, counted
from simulator.hardware.refused import device_of, server_of
from simulator.limits import MOST_NUMBER
from simulator.models.format_names import named_format
from simulator.schema_versions import KEY, known_version
from simulator.validation.column_names import FOR_PEOPLE, header, metric_of, with_test
from simulator.validation.older_notes import typed_columns

Regime = Literal["fixed_batch", "closed_loop", "open_loop", "offline", "single"]
NEEDED = ("hardware", "model", "metric", "value")
METRICS = {
    *("prefill_ms", "ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms"),
    *("pp_tok_s", "tg_tok_s", "decode_tok_s_per_user", "req_s"),
    *("throughput_out_tok_s", "throughput_total_tok_s", "throughput_in_tok_s"),
}
PUBLISHED = Path(__file__).parent / "published"
UNIFORM = "uniform 0..2 x mean"
SYNTHETIC = "", "random", "random-ids"  # data sets whose requests all have the stated lengths


@dataclass(frozen=True, slots=True)
class Setup:
    """What was measured: devices, model, engine, its settings and the load. 0, "" and None: the source does not say.

    Columns, units and meaning: docs/measurements.md.
    """

    source: str = ""
    date: str = ""
    hardware: str = ""
    hardware_class: str = ""
    devices: int = 1  # of the run, of all replicas together
    tp: int = 0
    pp: int = 0
    ep: int = 0
    dp: int = 0
    replicas: int = 0  # independent engines behind a balancer
    model: str = ""
    checkpoint: str = ""  # the publisher's name of what ran, where `model` leaves open which
    weight_dtype: str = ""  # our name of a number format, as is cache_dtype; "mlx" alone: its bits are elsewhere
    weights_bytes: float = 0.0  # size of the file of weights
    cache_dtype: str = ""
    engine: str = ""
    engine_version: str = ""
    gpu_memory_utilization: float = 0.0
    max_model_len: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    prefix_caching: str = ""  # on, off; "" is the engine's default
    threads: int = 0
    engine_settings: tuple[tuple[str, str], ...] = ()  # others, under the engine's own names
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    context_len: int = 0  # tokens in the cache before the prompt
    starts_empty: bool = False  # input_len is stated as 0, which is not the same as not stated
    length_spread: str = ""
    dataset: str = ""  # its mean lengths are stated; `random` for lengths that are drawn or set
    regime: Regime | None = None  # how requests come
    batch: int = 0
    prefill_batch: int = 0  # prompts of a batch that are computed together
    concurrency: int = 0
    rate_per_s: float = 0.0
    burstiness: float = 0.0  # shape of the gamma distribution of gaps; infinite where they are equal
    num_prompts: int = 0  # requests of the run
    client: str = ""  # load generator or benchmark
    num_dataset_entries: int = 0  # distinct prompts that the client repeats
    scenario: str = ""  # of MLPerf
    submitter: str = ""  # of an entry to MLPerf
    not_modelled: str = ""  # what of the run is not modelled, in words: it is listed and not predicted
    flaw: str = ""  # why the row cannot be read: it is listed and not predicted

    def engine_setting(self, name: str) -> str:
        """Return a setting under the engine's own name, "" where it is not stated.

        >>> Setup(engine_settings=(("flash-attn", "1"),)).engine_setting("flash-attn")
        '1'
        """
        return dict(self.engine_settings).get(name, "")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured figure, in the unit that its metric's name ends in; NaN where its row has a flaw."""

    id: str
    setup: Setup
    metric: str
    stat: str
    value: float
    quality: str

    @property
    def group(self) -> tuple[str, str, str]:
        """Source, device and model: errors are averaged by group, so that large sources do not dominate."""
        return self.setup.source, self.setup.hardware, self.setup.model


def read_measurements(path: Path, stated: Mapping[str, object] = MappingProxyType({})) -> list[Measurement]:
    """Return the rows of a table of measurements; `stated` fills empty cells, by column.

    A row that cannot be read has a setup with a `flaw`. Raises ProfileError for a file without any row that can be
    read.
    """
    remedy = "Give a .csv or .csv.gz of measurements"
    try:
        with open_text(path) as file:
            found = list(_read(csv.reader(file), path, stated))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(str(path), f"it cannot be read ({reason(error)})", remedy) from error
    if not found:
        raise ProfileError(str(path), "it has no rows", remedy)
    if all(row.setup.flaw for row in found):
        raise ProfileError(str(path), found[0].setup.flaw, "Correct the cell")
    return found


def unread_columns(path: Path) -> list[str]:
    """Return the columns of a table of measurements that no name of docs/measurements.md fits, in their order."""
    read = (*READERS, *FIGURE, *FOR_PEOPLE, KEY, "")
    with open_text(path) as file:
        columns = header(next(csv.reader(file), []), path)
    return [name for name in columns if name not in (*read, *_figures_of(columns))]


def own_columns(path: Path) -> set[str]:
    """Return the columns of a table of measurements that no row leaves empty."""
    with open_text(path) as file:
        table = csv.reader(file)
        columns = header(next(table, []), path)
        rows = ({name for name, cell in zip(columns, cells, strict=False) if cell.strip()} for cells in table)
        return set(columns).intersection(*filter(None, rows))


def read_published() -> list[Measurement]:
    """Return the published measurements that are part of infercast (published/README.md)."""
    return [row for path in sorted(PUBLISHED.glob("*.csv.gz")) for row in read_measurements(path)]


def _read(table: Iterator[list[str]], path: Path, stated: Mapping[str, object]) -> Iterator[Measurement]:
    columns = header(next(table, []), path)
    filled, figures = {name: str(value) for name, value in stated.items()}, _figures_of(columns)
    for name in NEEDED:
        if name not in (*columns, *filled, *(FIGURE if figures else ())):
            if name == "metric" and (times := [each for each in columns if _is_metric(each, "ms")]):
                because = f"its columns {', '.join(times)} have no unit of time"
                raise ProfileError(str(path), because, f'Write it behind the name, say "{times[0]} (ms)"')
            only = f"it has no column {name!r}, only {', '.join(columns) or 'none'}"
            raise ProfileError(str(path), only, "Add it: docs/measurements.md lists the columns")
    for line, cells in enumerate(table, start=2):
        row = {name: cell.strip() for name, cell in zip(columns, cells, strict=False) if cell.strip()}
        if not row:
            continue
        whole = {**filled, **row}
        version = row.get(KEY, 2 if "regime" in columns else 1)  # such a column came with version 2
        if known_version(Measurement.__name__, version, f"{path}, line {line}") == 1:
            whole = typed_columns(whole)
        for figure in [{"metric": name, "value": row[name]} for name in figures if name in row] or [{}]:
            yield _read_figure({**whole, **figure}, f"line {line}")


def _figures_of(columns: Sequence[str]) -> list[str]:
    """Return the columns that are figures, named by their metrics; none in a table with a column of metrics.

    >>> _figures_of(["model", "ttft (ms)", "p99_tpot_ms", "req_s"]), _figures_of(["metric", "ttft_ms"])
    (['ttft (ms)', 'p99_tpot_ms', 'req_s'], [])
    """
    return [] if "metric" in columns else [name for name in columns if name and _is_metric(name)]


def _is_metric(name: str, unit: str = "") -> bool:
    try:
        return metric_of(with_test({"metric": name})["metric"], "", unit)[0] in METRICS
    except ValueError:  # a time without a unit
        return False


def _read_figure(row: Mapping[str, str], name: str) -> Measurement:
    """Return the measurement of a row, with a flaw where it cannot be read."""
    try:
        return measurement_of(row, name)
    except ValueError as error:
        words = {column: cell for column, cell in row.items() if READERS.get(column) is _word}
        return _measurement(words, name, math.nan, f"{name}: {error}")


def measurement_of(row: Mapping[str, str], name: str) -> Measurement:
    """Return the measurement in the cells of one row, by column; `name` is its id where it has none.

    Raises ValueError for a cell that cannot be read.

    >>> row = {"hardware": "l40s", "model": "llama-3.1-8b", "metric": "ttft_ms", "value": "21.5", "concurrency": "8"}
    >>> measurement_of(row, "line 2").setup.regime
    'closed_loop'
    """
    row = with_test(row)
    figure = {column: row.get(column, "").strip() for column in FIGURE}
    metric, stat, factor = metric_of(figure["metric"], figure["stat"].lower(), figure["unit"])
    value = factor * _number("value", figure["value"])
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r} is not known. {nearest(metric, METRICS)}")
    if value < LEAST_VALUE:
        raise ValueError(f"value {figure['value']!r} is not a number above 0")
    return _measurement({**row, "metric": metric, "stat": stat}, name, value)


def _measurement(row: Mapping[str, str], name: str, value: float, flaw: str = "") -> Measurement:
    cell = {column: row.get(column, "").strip() for column in (*READERS, *FIGURE)}
    metric, stat = cell["metric"].lower(), cell["stat"].lower() or "mean"
    return Measurement(cell["id"] or name, _setup(cell, flaw), metric, stat, value, cell["quality"])


def _setup(cell: Mapping[str, str], flaw: str) -> Setup:
    found = {FIELDS.get(column, column): read(column, cell[column]) for column, read in READERS.items()}
    stated = found["devices"] or any(found[each] for each in ("tp", "pp", "dp", "replicas"))
    several = server_of(found["hardware"]) or counted(found["hardware"])
    if several:  # 8x H100: as many, where no column says how many
        group = max(1, found["tp"]) * max(1, found["pp"])
        counts = not stated or group <= several[1] < group * found["dp"]  # tp counts the devices of all ranks
        found["hardware"], found["devices"] = several[0], found["devices"] or several[1] * counts
        if CPU.search(several[0]):
            found["not_modelled"] = found["not_modelled"] or "one process over several sockets"
    elif stated:
        found["hardware"] = device_of(found["hardware"])
    alike = ("enable_attention_dp", "true") in found["engine_settings"]  # dp names the devices of tp again
    degrees = ("tp", "pp", "replicas") if alike else ("tp", "pp", "dp", "replicas")
    found["devices"] = found["devices"] or math.prod(max(1, found[each]) for each in degrees)
    found["regime"] = found["regime"] or _usual_regime(found)
    starts_empty = bool(cell["input_len"]) and not found["input_tokens"]
    return Setup(**found, starts_empty=starts_empty, flaw=flaw)


def _usual_regime(found: Mapping[str, Any]) -> Regime | None:
    """Return the regime of a row that states none, by which of concurrency, rate and batch it has."""
    if found["concurrency"]:
        return "closed_loop"
    if found["rate_per_s"]:
        return "open_loop" if math.isfinite(found["rate_per_s"]) else "offline"
    return "fixed_batch" if found["batch"] else None


def _number(column: str, cell: str) -> float:
    """Return 0 or a number from LEAST_VALUE to MOST_NUMBER; rates (all at once) and burstiness may be endless."""
    try:
        found = float(cell.replace(",", "") if THOUSANDS.fullmatch(cell) else cell or 0)
    except ValueError as error:
        raise ValueError(f"{column} {cell!r} is not a number") from error
    is_endless = column in ENDLESS and found == math.inf
    if not (found == 0 or LEAST_VALUE <= found <= MOST_NUMBER or is_endless):
        raise ValueError(f"{column} {cell!r} is not 0 or a number from {LEAST_VALUE:g} to {MOST_NUMBER:g}")
    return found


def _whole(column: str, cell: str) -> int:
    found = _number(column, cell)
    if not found.is_integer():
        raise ValueError(f"{column} {cell!r} is not a whole number")
    if found > MAX_COUNT:
        raise ValueError(f"{column} {cell!r} is more than {MAX_COUNT:,}")
    return int(found)


def _word(_column: str, cell: str) -> str:
    return cell


def _format(column: str, cell: str) -> str:
    """Return our name of a number format (number_formats.named_format)."""
    try:
        return named_format(cell)
    except ProfileError as error:
        raise ValueError(f"{column} {cell!r} is not known. {error.remedy}") from error


def _choice(column: str, cell: str) -> str | None:
    """Return one of the words that a column allows, or the column's value for an empty cell."""
    if column == "regime":
        plain = re.sub(r"[\s-]+", "_", cell.lower())
        cell = REGIMES.get(plain, plain)
    if cell and cell not in CHOICES[column]:
        raise ValueError(f"{column} {cell!r} is not known. {nearest(cell, CHOICES[column])}")
    return cell or (None if column == "regime" else "")


def _settings(column: str, cell: str) -> tuple[tuple[str, str], ...]:
    """Return `name=value;name=value` as pairs, sorted by name.

    >>> _settings("engine_settings", "ubatch-size=512; flash-attn=1")
    (('flash-attn', '1'), ('ubatch-size', '512'))
    """
    pairs = [each.partition("=")[::2] for each in cell.split(";") if each.strip()]
    if not all(name.strip() and value.strip() for name, value in pairs):
        raise ValueError(f"{column} {cell!r} is not name=value;name=value")
    return tuple(sorted((name.strip(), value.strip()) for name, value in pairs))


LEAST_VALUE = 1e-15  # of a measured figure: errors are shares of it
MAX_COUNT = 10_000_000  # of anything counted: tokens of a step, requests, devices
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?")  # 1,146.31
ENDLESS = ("request_rate", "burstiness")  # columns that may be infinite
REGIMES = {  # other names of regimes
    **{"single_stream": "single", "single_user": "single"},
    **{"batch": "fixed_batch", "static": "fixed_batch", "static_batch": "fixed_batch"},
}
CHOICES = {
    "regime": get_args(Regime),
    "scenario": ("Server", "Interactive", "Offline"),
    "length_spread": ("fixed", UNIFORM),
    "prefix_caching": ("on", "off"),
}
FIGURE = ("id", "metric", "stat", "value", "unit", "quality")  # columns of a row that are not of its setup
WORDS = (
    *("source", "source_date", "hardware", "hw_class", "model", "checkpoint", "engine", "engine_version"),
    *("dataset", "client", "submitter", "not_modelled"),
)
COUNTS = (
    *("n_gpus", "tp", "pp", "ep", "dp", "replicas", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    *("threads", "context_len", "batch", "prefill_batch", "concurrency", "num_prompts", "num_dataset_entries"),
)
AMOUNTS = ("weights_bytes", "gpu_memory_utilization", "input_len", "output_len", *ENDLESS)
READERS: dict[str, Callable[[str, str], Any]] = {  # how to read each column of a setup
    **dict.fromkeys(WORDS, _word),
    **dict.fromkeys(("weight_dtype", "kv_dtype"), _format),
    **dict.fromkeys(COUNTS, _whole),
    **dict.fromkeys(AMOUNTS, _number),
    **dict.fromkeys(CHOICES, _choice),
    "engine_settings": _settings,
}
FIELDS = {  # column -> field of Setup, where they differ
    **{"source_date": "date", "hw_class": "hardware_class", "n_gpus": "devices", "kv_dtype": "cache_dtype"},
    **{"input_len": "input_tokens", "output_len": "output_tokens", "request_rate": "rate_per_s"},
}
