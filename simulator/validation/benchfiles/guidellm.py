"""Result files of GuideLLM (benchmarks.json): one run for every load that it tried.

`time_to_first_token_ms` and `inter_token_latency_ms` are in milliseconds, `request_latency` in seconds. Its inter-token
latency is (last - first) / (n - 1) of a request, weighted by n - 1: the mean is that of all gaps pooled, which is our
TPOT only where all outputs are equally long. Its `time_per_output_token_ms` counts the first token: left out.
(src/guidellm/benchmark/schemas/metrics.py and scheduler/strategies.py of 0.2 to 0.8, read 2026-11-21.)
"""

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from simulator.validation.benchfiles.rows import (
    POOLED,
    VARIED,
    Cells,
    Stated,
    arrivals,
    inside,
    measured,
    model_named,
    not_predicted,
    number_or_none,
)

STATS = ("mean", "p50", "p90", "p95", "p99")
EQUAL = 0.01  # coefficient of variation up to which outputs count as equally long


def is_guidellm(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is a report of GuideLLM."""
    runs = document.get("benchmarks")
    return isinstance(runs, list) and all(inside(each, "metrics", "request_latency") for each in runs)


def guidellm(document: Mapping[str, Any], _stated: Stated) -> Iterator[Cells]:
    """Yield the rows of every run of a report; latencies are those of successful requests, throughputs those of all."""
    for run in document["benchmarks"]:
        cells = _cells(run, inside(document, "args"))
        yield from measured(cells, _figures(run))


def _cells(run: Mapping[str, Any], asked: object) -> Cells:
    metrics = run["metrics"]
    names = (inside(asked, "model"), inside(run, "config", "backend", "model"), inside(run, "worker", "backend_model"))
    prompts, outputs = (inside(metrics, f"{kind}_token_count", "successful") for kind in ("prompt", "output"))
    cells: Cells = {
        **model_named(next((each for each in names if each), None)),
        "input_len": number_or_none(inside(prompts, "mean")),
        "output_len": number_or_none(inside(outputs, "mean")),
        "dataset": "custom" if max(_spread(prompts), _spread(outputs)) > VARIED else None,
        "num_prompts": number_or_none(inside(metrics, "request_totals", "successful")),
        "client": "guidellm",
    }
    if began := number_or_none(run.get("start_time")):
        cells["source_date"] = datetime.fromtimestamp(began, tz=UTC).date().isoformat()
    cells |= _load(inside(run, "config", "strategy") or inside(run, "args", "strategy") or {})
    return {name: value for name, value in cells.items() if value is not None}


def _load(strategy: Mapping[str, Any]) -> Cells:
    """Return the columns on how requests arrived: one by one, so many in flight, at a rate, or all at once."""
    kind = strategy.get("type_")
    streams = number_or_none(strategy.get("streams")) or number_or_none(strategy.get("max_concurrency"))
    if kind == "synchronous":
        return {"regime": "single", "batch": 1}
    if kind in ("concurrent", "throughput"):
        return arrivals(streams, math.inf)
    if kind in ("constant", "poisson"):
        even = {"burstiness": math.inf} if kind == "constant" else {}
        return arrivals(None, number_or_none(strategy.get("rate"))) | even
    return not_predicted({}, str(kind))


def _spread(lengths: object) -> float:
    deviation, mean = number_or_none(inside(lengths, "std_dev")), number_or_none(inside(lengths, "mean"))
    return deviation / mean if deviation and mean else 0.0


def _figures(run: Mapping[str, Any]) -> Iterator[tuple[str, str, float | None]]:
    def of(name: str, stat: str, status: str = "successful") -> float | None:
        found = inside(run, "metrics", name, status)
        return number_or_none(inside(found, "percentiles", stat) if stat != "mean" else inside(found, "mean"))

    equal = _spread(inside(run, "metrics", "output_token_count", "successful")) <= EQUAL
    for stat in STATS:
        latency_s = of("request_latency", stat)
        yield "e2e_latency_ms", stat, None if latency_s is None else 1e3 * latency_s
        yield "ttft_ms", stat, of("time_to_first_token_ms", stat)
        if equal:
            yield "tpot_ms", stat, of("inter_token_latency_ms", stat)
    if not equal:
        yield "itl_ms", f"mean{POOLED}", of("inter_token_latency_ms", "mean")
    yield "throughput_out_tok_s", "mean", of("output_tokens_per_second", "mean", "total")
    yield "throughput_total_tok_s", "mean", of("tokens_per_second", "mean", "total")
