"""Result files of AIPerf and GenAI-Perf: profile_export_aiperf.json, profile_export_genai_perf.json, and their CSV.

Every metric is a mapping of statistics with its unit. `inter_token_latency` is (request latency - TTFT) / (n - 1) of a
request: our TPOT. Throughputs are tokens over the whole run. (docs/reference/json-export-schema.md of AIPerf 0.13,
schema 1.5; GenAI-Perf's exporters; read 2026-11-21.)
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from simulator.validation.benchfiles.rows import VARIED, Cells, Stated, inside, measured, model_named, number_or_none

LATENCIES = {
    "time_to_first_token": "ttft_ms",
    "inter_token_latency": "tpot_ms",
    "request_latency": "e2e_latency_ms",
}
RATES = {"output_token_throughput": "throughput_out_tok_s", "total_token_throughput": "throughput_total_tok_s"}
STATS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
MILLISECONDS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
LOADS = ("concurrency", "request_rate")


def is_aiperf(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is an export of AIPerf or GenAI-Perf."""
    return isinstance(document.get("request_latency"), Mapping) and "avg" in document["request_latency"]


def from_csv(text: str) -> Mapping[str, Any]:
    r"""Return the CSV of either tool as the document that its JSON would be, without the part on what was asked.

    >>> from_csv('Metric,avg,p99\nRequest Latency (ms),"1,250.5",1300\n')
    {'request_latency': {'unit': 'ms', 'avg': '1,250.5', 'p99': '1300'}}
    """
    found: dict[str, Any] = {}
    head: list[str] = []
    for row in csv.reader(io.StringIO(text)):
        if row and row[0] == "Metric":
            head = ["avg" if name == "Value" else name for name in row[1:]]
        elif row and head:
            name, unit = re.fullmatch(r"(?s)(.*?)\s*(?:\(([^)]*)\))?", row[0]).groups()  # type: ignore[union-attr]
            key = name.lower().replace(" ", "_")
            found[key] = {"unit": unit or "", **dict(zip(head, row[1:], strict=False))}
    return found


def aiperf(document: Mapping[str, Any], _stated: Stated) -> Iterator[Cells]:
    """Yield the rows of one export."""
    asked = document.get("input_config")
    lengths = {"input_len": "input_sequence_length", "output_len": "output_sequence_length"}
    cells: Cells = {column: number_or_none(inside(document, name, "avg")) for column, name in lengths.items()}
    cells |= {name: _asked(asked, name) for name in LOADS}
    if cells["concurrency"] and cells["request_rate"] is None:
        cells["request_rate"] = float("inf")
    requests = number_or_none(inside(document, "request_count", "avg"))
    cells |= {**model_named(_model(asked)), "num_prompts": requests, "client": _client(asked)}
    cells["source_date"] = str(document.get("start_time") or "")[:10] or None
    if any(_spread(document.get(name)) > VARIED for name in lengths.values()):
        cells["dataset"] = "custom"
    yield from measured({name: value for name, value in cells.items() if value is not None}, _figures(document))


def _figures(document: Mapping[str, Any]) -> Iterator[tuple[str, str, float | None]]:
    for name, metric in LATENCIES.items():
        factor = MILLISECONDS.get(str(inside(document, name, "unit")))
        for key, stat in STATS.items():
            value = number_or_none(inside(document, name, key))
            yield metric, stat, None if value is None or factor is None else factor * value
    for name, metric in RATES.items():
        yield metric, "mean", number_or_none(inside(document, name, "avg"))


def _client(asked: object) -> str | None:
    """Return which tool wrote a JSON; None for a CSV, which does not say."""
    if inside(asked, "perf_analyzer"):
        return "genai-perf"
    return "aiperf" if asked else None


def _asked(asked: object, name: str) -> float | None:
    """Return a setting of the load, from where the several versions keep it."""
    phases = inside(asked, "phases")
    listed = phases if isinstance(phases, list) else [inside(phases, "profiling")]
    profiling = next((each for each in listed if inside(each, "name") in ("profiling", None)), None)
    places = (inside(asked, "loadgen", name), inside(profiling, name), inside(asked, "perf_analyzer", "stimulus", name))
    return next((number_or_none(each) for each in (*places, inside(asked, name)) if each is not None), None)


def _model(asked: object) -> str | None:
    """Return the first model that was asked for."""
    items = inside(asked, "models", "items")
    listed = [inside(each, "name") for each in items] if isinstance(items, list) else None
    for names in (
        listed,
        inside(asked, "endpoint", "model_names"),
        inside(asked, "model_names"),
        inside(asked, "model"),
    ):
        if names:
            return str(names[0] if isinstance(names, list) else names)
    return None


def _spread(block: object) -> float:
    deviation, mean = number_or_none(inside(block, "std")), number_or_none(inside(block, "avg"))
    return deviation / mean if deviation and mean else 0.0
