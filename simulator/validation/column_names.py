"""Other names of columns and metrics, as engines' flags, benchmarks and people have them, and units of values.

A table states what it holds by its header: a column that is known by no name is told, not left out in silence.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache

from simulator.errors import ProfileError

COLUMNS = {  # our name: other ones, in small letters with _ for what is neither letter nor digit
    "hardware": ("gpu", "device", "accelerator", "gpu_name", "gpu_type", "gpu_model", "hardware_name"),
    "n_gpus": ("devices", "gpus", "num_gpus", "gpu_count", "num_devices", "n_devices", "number_of_gpus"),
    "tp": ("tensor_parallel_size", "tensor_parallel", "tp_size", "tensor_parallelism"),
    "pp": ("pipeline_parallel_size", "pipeline_parallel", "pp_size", "pipeline_parallelism"),
    "ep": ("expert_parallel_size", "ep_size"),
    "dp": ("data_parallel_size", "dp_size"),
    "replicas": ("num_replicas", "n_replicas"),
    "model": ("model_name", "model_id"),
    "weight_dtype": ("precision", "quantization", "quantisation", "quant", "dtype", "weight_format"),
    "kv_dtype": ("kv_cache_dtype", "cache_dtype"),
    "engine": ("framework", "backend", "runtime", "inference_engine", "serving_engine", "serving_framework"),
    "engine_version": ("version", "framework_version", "backend_version", "runtime_version"),
    "source_date": ("date",),
    "gpu_memory_utilization": ("mem_fraction_static", "kv_cache_free_gpu_memory_fraction"),
    "max_model_len": ("max_seq_len",),
    "max_num_seqs": ("max_running_requests", "max_batch_size"),
    "max_num_batched_tokens": ("max_num_tokens", "chunked_prefill_size"),
    "input_len": (
        *("isl", "input_length", "input_tokens", "input_sequence_length", "random_input_len"),
        *("prompt_len", "prompt_length", "prompt_tokens"),
    ),
    "output_len": (
        *("osl", "output_length", "output_tokens", "output_sequence_length", "random_output_len"),
        *("gen_len", "gen_tokens", "generated_tokens", "completion_tokens"),
    ),
    "batch": ("batch_size", "bs"),
    "concurrency": ("max_concurrency", "conc", "concurrent_requests", "concurrent_users", "users"),
    "request_rate": ("rate", "qps"),
    "num_prompts": ("num_requests", "n_requests"),
    "metric": ("metric_name",),
    "stat": ("statistic", "aggregation"),
    "value": ("result", "measured", "measured_value"),
    "unit": ("units",),
    "quality": ("grade",),
}
_OURS = {other: name for name, others in COLUMNS.items() for other in others}
FOR_PEOPLE = (  # columns that decide nothing
    *("source_url", "source_commit", "load"),
    *("notes", "note", "comment", "comments"),
)
TIMES_MS = {"ms": 1.0, "s": 1e3, "us": 1e-3}  # a time's unit in milliseconds
UNITS = {"msec": "ms", "milliseconds": "ms", "sec": "s", "seconds": "s", "\u00b5s": "us", "microseconds": "us"}
PER_TOKEN = re.compile(r"\s*(?:/|\bper )\s*(?:output )?tok(?:en)?$")  # ms/token is ms
COUNTED = {  # what a rate counts, by the ending of its name, as units call it
    "tok_s": ("t", "tok", "toks", "token", "tokens"),
    "req_s": ("req", "reqs", "request", "requests", "query", "queries", "sample", "samples"),
}
PER_S = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 1 / 60, "minute": 1 / 60, "h": 1 / 3600, "hour": 1 / 3600}
SHORT = {"tps": "tok/s", "rps": "req/s", "qps": "req/s"}
METRICS = {  # other names of metrics, without statistic and unit
    "ttft_ms": ("ttft", "time_to_first_token"),
    "tpot_ms": ("tpot", "time_per_output_token"),
    "itl_ms": ("itl", "inter_token_latency"),
    "e2e_latency_ms": ("e2e_latency", "e2el", "request_latency", "end_to_end_latency"),
    "throughput_out_tok_s": (
        *("output_throughput", "output_token_throughput", "output_tokens_per_second", "output_tok_s"),
        "generation_throughput",
    ),
    "throughput_total_tok_s": ("total_token_throughput", "total_throughput", "total_tokens_per_second"),
    "throughput_in_tok_s": ("input_throughput", "prompt_throughput", "input_token_throughput"),
    "req_s": ("request_throughput", "requests_per_second"),
}
_METRICS = {other: name for name, others in METRICS.items() for other in others}
RATE = {  # a rate's unit behind a metric's name: "Output Throughput (tok/s)"
    "tok_s": re.compile(r"_(?:tps|t_s|tok(?:en)?s?_(?:per_)?s(?:ec(?:ond)?)?)$"),
    "req_s": re.compile(r"_(?:rps|qps|req(?:uest)?s?_(?:per_)?s(?:ec(?:ond)?)?)$"),
}
SAME = {"avg": "mean", "average": "mean", "p50": "median"}  # statistics of two names
STATISTIC = re.compile(  # p99_ttft_ms, ttft_p99_ms, ttft_ms_p99
    r"(?P<before>mean|avg|average|median|p\d\d?)_(?P<of>.+)"
    r"|(?P<base>.+?)_(?P<behind>mean|avg|average|median|p\d\d?)(?P<unit>(?:_(?:ms|s|us))?)"
)
PER_DEVICE = re.compile(r"(?:/|\bper )\s*(?:gpu|device|chip|card|accelerator)", re.IGNORECASE)


def header(cells: Sequence[str], path: object) -> list[str]:
    """Return our names of a table's columns; those that are not known stay as they are, in small letters.

    Where our own name of a column is there, others of it are not read. Raises ProfileError where two name one column.

    >>> header(["GPU", "Max Concurrency", "tp", "Colour"], "a.csv")
    ['hardware', 'concurrency', 'tp', 'colour']
    """
    own = {cell.strip().lower() for cell in cells}
    named = [_column(cell, own) for cell in cells]
    for name in COLUMNS:
        if named.count(name) > 1:
            twice = " and ".join(repr(cell) for cell, each in zip(cells, named, strict=True) if each == name)
            raise ProfileError(str(path), f"its columns {twice} are both {name}", "Leave one out")
    return named


def _column(cell: str, own: Collection[str]) -> str:
    plain, name = _plain(cell), cell.strip().lower()
    ours = plain if plain in COLUMNS else _OURS.get(plain, name)
    return name if ours in own else ours


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


@cache
def metric_of(metric: str, stat: str, unit: str) -> tuple[str, str, float]:
    """Return our name of a metric, its statistic, and the factor that brings its values into the unit of that name.

    Raises ValueError for a time without a unit, a unit that is not the metric's, and cells that contradict each other.

    >>> metric_of("P99 TTFT", "", "s"), metric_of("mean_tpot_ms", "", ""), metric_of("output_throughput", "", "tok/s")
    (('ttft_ms', 'p99', 1000.0), ('tpot_ms', 'mean', 1.0), ('throughput_out_tok_s', '', 1.0))
    """
    if PER_DEVICE.search(unit):
        raise ValueError(f"unit {unit!r} is that of one device. Give the figure of all of them together")
    plain = _plain(metric)
    if told := STATISTIC.fullmatch(plain):
        plain, named = told["of"] or f"{told['base']}{told['unit']}", told["before"] or told["behind"]
        if stat and SAME.get(stat, stat) != SAME.get(named, named):
            raise ValueError(f"metric {metric!r} and stat {stat!r} contradict each other")
        stat = named
    base, _, own = plain.rpartition("_")
    own = own if own in TIMES_MS and not base.endswith("tok") else ""  # tok_s is a throughput
    name = _METRICS.get(base if own else plain) or _rate_before_its_unit(plain) or plain
    return name, stat, _in_ms(metric, own, unit) if name.endswith("_ms") else _per_s(name, unit)


def _rate_before_its_unit(plain: str) -> str:
    """Return our name of a rate whose unit is behind its name, "" for another text."""
    found = (_METRICS.get(unit.sub("", plain), "") for unit in RATE.values())
    return next((name for name, kind in zip(found, RATE, strict=True) if name.endswith(kind)), "")


def _in_ms(metric: str, own: str, unit: str) -> float:
    """Return how many milliseconds a time's unit has: that in the metric's name (`own`), or that of its column."""
    plain = PER_TOKEN.sub("", unit.lower())
    stated = UNITS.get(plain, plain)
    if own and stated in TIMES_MS and stated != own:
        raise ValueError(f"metric {metric!r} and unit {unit!r} contradict each other")
    if not own and stated not in TIMES_MS:
        missing = f"unit {unit!r} is none of time" if unit else f"metric {metric!r} has no unit of time"
        raise ValueError(f"{missing}. State it in a column unit: {', '.join(TIMES_MS)}")
    return TIMES_MS[own or stated]


def _per_s(name: str, unit: str) -> float:
    """Return what a rate's unit is in that of its name; 1 where none is stated, and for what is no rate.

    >>> _per_s("throughput_out_tok_s", "ktok/s"), _per_s("req_s", "requests per hour") == 1 / 3600
    (1000.0, True)
    """
    kind = next((each for each in COUNTED if each in name), "")
    if not unit or not kind:
        return 1.0
    plain = re.sub(r"\bper\b", "/", unit.lower())
    plain = re.sub(r"\s+|^(?:output|input|total|generated)\b", "", plain)
    what, *over = SHORT.get(plain, plain).split("/")
    thousand = what[:1] == "k" and what[1:] in COUNTED[kind]
    of_a_user = over[1:] == ["user"] and name.endswith("per_user")
    if not over or over[0] not in PER_S or (over[1:] and not of_a_user) or not (thousand or what in COUNTED[kind]):
        raise ValueError(f"unit {unit!r} is not that of {name}. State the value in {kind.replace('_', '/')}")
    return PER_S[over[0]] * (1e3 if thousand else 1.0)


def with_test(row: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a row with those that its metric says, where that is a test of llama-bench.

    >>> with_test({"metric": "pp512"})["input_len"], with_test({"metric": "tg128 @ d4096"})["input_len"]
    ('512', '4096')
    """
    told = re.fullmatch(r"(pp|tg)\s*(\d+)(?:\s*@\s*d\s*(\d+))?", row.get("metric", "").strip().lower())
    if not told:
        return dict(row)
    kind, tokens, depth = told.groups()
    found = {"metric": f"{kind}_tok_s", "regime": row.get("regime") or "single", "client": "llama-bench"}
    lengths = (tokens, "0", depth or "0") if kind == "pp" else (depth or "0", tokens, "0")
    stated = dict(zip(("input_len", "output_len", "context_len"), lengths, strict=True))
    return {**stated, **row, **found}
