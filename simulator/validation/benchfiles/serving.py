"""Result files of `vllm bench serve`, `latency` and `throughput`, and of SGLang's bench_serving, a descendant.

In all of them TTFT counts from the sending of a request (time that it waits in the client is left out); TPOT = (E2EL -
TTFT) / (n - 1) of each request with n > 1; ITL is every gap, pooled over requests; throughputs are the tokens of
successful requests over the whole duration (vllm/benchmarks/*.py, python/sglang/bench_serving.py, read 2026-11-21).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simulator.errors import ProfileError
from simulator.validation.benchfiles.rows import (
    POOLED,
    VARIED,
    Cells,
    Stated,
    inside,
    measured,
    model_named,
    not_predicted,
    number_or_none,
    ratio,
)
from simulator.validation.measurements import SYNTHETIC

Document = Mapping[str, Any]
LATENCIES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2e_latency_ms"}
LATENCIES["e2e_latency"] = "e2e_latency_ms"  # SGLang's name of it
STATS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trt": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
    "lmdeploy": "lmdeploy",
}
METADATA = ("hardware", "n_gpus", "tp", "pp", "weight_dtype", "kv_dtype", "engine", "engine_version")


def is_serve(document: Document) -> bool:
    """Tell whether a document is of `vllm bench serve` or its forerunner, which wrote no total_token_throughput."""
    return {"output_throughput", "request_throughput", "completed"} <= document.keys()


def is_sglang(document: Document) -> bool:
    """Tell whether a document is of SGLang's bench_serving."""
    return "total_output_tokens_retokenized" in document


def is_latency(document: Document) -> bool:
    """Tell whether a document is of `vllm bench latency`."""
    return {"avg_latency", "percentiles"} <= document.keys()


def is_throughput(document: Document) -> bool:
    """Tell whether a document is of `vllm bench throughput`."""
    return {"elapsed_time", "num_requests", "total_num_tokens"} <= document.keys()


def serve(document: Document, _stated: Stated) -> Iterator[Cells]:
    """Yield the rows of one run of `vllm bench serve`; its `--metadata` under names of our columns counts as stated.

    Raises ProfileError for a result of infercast, which is a prediction.
    """
    if document.get("endpoint_type") == "infercast":
        raise ProfileError("a result of infercast", "it is a prediction, no measurement", "Give a file of a real run")
    cells = _run(document) | model_named(document.get("model_id")) | {"client": "vllm bench serve"}
    cells |= _engine(document.get("backend") or document.get("endpoint_type"))
    cells |= _present(**{name: document.get(name) for name in METADATA})
    if (day := str(document.get("date") or "")[:8]).isdecimal():
        cells["source_date"] = f"{day[:4]}-{day[4:6]}-{day[6:]}"
    if document.get("spec_decode_acceptance_rate") is not None:
        cells = not_predicted(cells, "speculative decoding")
    yield from measured(cells, _figures(document))


def sglang(document: Document, _stated: Stated) -> Iterator[Cells]:
    """Yield the rows of one run of SGLang's bench_serving; `server_info` is what the server said of itself."""
    server = document.get("server_info")
    names = {"tp": "tp_size", "pp": "pp_size", "engine_version": "version"}
    cells = _run(document) | _engine(document.get("backend")) | model_named(inside(server, "model_path"))
    cells |= _present(**{column: inside(server, name) for column, name in names.items()})
    cells["client"] = "sglang.bench_serving"
    if document.get("dataset_name") not in (None, *SYNTHETIC):
        cells["dataset"] = document["dataset_name"]
    replicas = number_or_none(inside(server, "dp_size")) or 1
    if replicas > 1 and inside(server, "enable_dp_attention"):
        cells["dp"] = replicas
    elif replicas > 1 and "tp" in cells:
        cells["n_gpus"] = replicas * cells["tp"] * cells.get("pp", 1)
    if document.get("accept_length") is not None:
        cells = not_predicted(cells, "speculative decoding")
    yield from measured(cells, _figures(document))


def latency(document: Document, stated: Stated) -> Iterator[Cells]:
    """Yield the rows of `vllm bench latency`: E2EL of one batch. Lengths and batch size are not in the file."""
    cells: Cells = {"engine": "vllm", "client": "vllm bench latency", "regime": "fixed_batch"}
    cells |= dict.fromkeys(("batch", "input_len", "output_len"))
    del stated
    seconds = {"mean": document["avg_latency"]}
    seconds |= {f"p{name}": inside(document, "percentiles", name) for name in ("50", "90", "99")}
    for stat, value in seconds.items():
        found = number_or_none(value)
        yield from measured(cells, [("e2e_latency_ms", stat, None if found is None else 1e3 * found)])


def throughput(document: Document, stated: Stated) -> Iterator[Cells]:
    """Yield the rows of `vllm bench throughput`: all requests at once.

    Raises ProfileError where the stated lengths differ by more than SLACK from the tokens in the file.
    """
    requests, total = number_or_none(document["num_requests"]), number_or_none(document["total_num_tokens"])
    cells = {"engine": "vllm", "client": "vllm bench throughput", "regime": "offline", "num_prompts": requests or 0}
    each, said = ratio(total, requests), stated.input_len + stated.output_len
    if each and stated.input_len and stated.output_len and abs(said / each - 1) > SLACK:
        because = f"the file has {each:,.0f} tokens per request, prompt and output together"
        raise ProfileError(
            f"{said:,.0f} tokens per request", because, f"Give --input-len and --output-len that make {each:,.0f}"
        )
    yield from measured(cells, [("throughput_total_tok_s", "mean", number_or_none(document.get("tokens_per_second")))])


SLACK = 0.05  # share by which a tokenizer or an early end of sequence changes lengths


def _run(document: Document) -> Cells:
    """Return lengths and load: means of what was sent and received, not what was asked for."""
    requests = document.get("completed")
    cells = _present(
        input_len=ratio(document.get("total_input_tokens"), requests),
        output_len=ratio(document.get("total_output_tokens"), requests),
        concurrency=number_or_none(document.get("max_concurrency")),
        request_rate=number_or_none(document.get("request_rate")),
        num_prompts=number_or_none(requests),
        burstiness=number_or_none(document.get("burstiness")),
    )
    varied = any(_varies(document.get(name)) for name in ("input_lens", "output_lens"))
    return cells | ({"dataset": "custom"} if varied else {})


def _varies(lengths: object) -> bool:
    values = np.array([each for each in lengths if each], dtype=float) if isinstance(lengths, list) else np.ones(1)
    return len(values) > 1 and float(values.std() / values.mean()) > VARIED


def _present(**found: object) -> Cells:
    """Return the columns whose value is not None."""
    return {name: value for name, value in found.items() if value is not None}


def _engine(backend: object) -> Cells:
    """Return the engine that a backend's name tells; none for "openai"."""
    names = (engine for start, engine in ENGINES.items() if str(backend).startswith(start))
    return _present(engine=next(names, None))


def _figures(document: Document) -> Iterator[tuple[str, str, float | None]]:
    for name, metric in LATENCIES.items():
        for key, stat in STATS.items():
            pooled = POOLED if metric == "itl_ms" else ""
            yield metric, stat + pooled, number_or_none(document.get(f"{key}_{name}_ms"))
    yield "throughput_out_tok_s", "mean", number_or_none(document.get("output_throughput"))
    parts = [number_or_none(document.get(f"{name}_throughput")) for name in ("input", "output")]
    whole = document.get("total_token_throughput") or document.get("total_throughput")  # vLLM's name, SGLang's
    yield "throughput_total_tok_s", "mean", number_or_none(whole or (sum(filter(None, parts)) if all(parts) else None))
