r"""Rows of the older schema of measurements as typed columns: the one place where notes are read.

Tables without the column `regime` have `load` ("closed-loop concurrency, 500 requests") and `notes` instead. A cell
that is stated is never changed. The tables below list (column, pattern, value): of one column the first pattern that is
found counts, and `\1` is what it caught.
"""

import re
from collections.abc import Iterable, Mapping

Rules = tuple[tuple[str, str, str], ...]
REGIMES = (  # how a load begins
    ("fixed", "fixed_batch"),
    ("single", "single"),
    ("closed", "closed_loop"),
    ("max throughput|.*offline", "offline"),
    ("open|mlperf", "open_loop"),
)
UNDER_LOAD = ("closed_loop", "open_loop", "offline")
IN_LOAD: Rules = (
    ("scenario", r"MLPerf (Server|Interactive|Offline)", r"\1"),
    ("client", r"^MLPerf", "mlperf"),
    ("dataset", r"^MLPerf", "mlperf"),
    ("dataset", r"ShareGPT requests", "llmservingsim"),
    ("dataset", r"ShareGPT", "sharegpt"),
)
IN_NOTES: Rules = (
    ("checkpoint", r"source model name: ([\w./-]+)", r"\1"),
    ("client", r"IMX workload", "inferencemax"),
    ("client", r"AIC run", "aiconfigurator"),
    ("client", r"trtllm-bench", "trtllm-bench"),
    ("client", r"gptManagerBenchmark", "gptManagerBenchmark"),
    ("client", r"vllm bench serve", "vllm bench serve"),
    ("client", r"sglang\.bench_serving", "sglang.bench_serving"),
    ("client", r"AIPerf", "aiperf"),
    ("client", r"(llama-(batched-)?bench)\b", r"\1"),
    ("client", r"value = batch\*\(in\+out\)/latency", "LLM-Inference-Bench"),
    ("client", r"benchmark_(latency|throughput)\b", r"vllm bench \1"),
    ("dataset", r"random dataset", "random"),
    ("dataset", r"dataset", "custom"),
    ("prefill_batch", r"ttft of one user", "1"),
    ("submitter", r"^(?:closed|open) division, (?:submitter )?(\w+),", r"\1"),
)
IN_EITHER: Rules = (
    ("num_prompts", r"(\d+) (?!distinct)(?:[A-Za-z]+ )?(?:requests|prompts)", r"\1"),
    ("num_dataset_entries", r"(\d+) distinct prompts", r"\1"),
    ("burstiness", r"burstiness ([\d.]+|inf)", r"\1"),
    ("max_num_seqs", r"max_num_seqs (\d+)", r"\1"),
    ("max_num_seqs", r"--max-running-requests (\d+)", r"\1"),
    ("max_num_batched_tokens", r"max_num_batched_tokens (\d+)", r"\1"),
    ("gpu_memory_utilization", r"gpu_mem_util ([\d.]+)", r"\1"),
    ("max_model_len", r"--context-length (\d+)", r"\1"),
    ("threads", r"(\d+) threads", r"\1"),
)
SETTINGS: Rules = (  # of the engine, under its own names
    ("flash-attn", r"-fa (\d)", r"\1"),
    ("flash-attn", r"no flash-attn", "0"),
    ("flash-attn", r"flash-attn|\bfa1\b", "1"),
    ("ubatch-size", r"ubatch (\d+)", r"\1"),
    ("ubatch-size", r"\"Batch Size\" (\d+) is llama-bench -b", r"\1"),  # llama.cpp: n_ubatch is n_batch at most
    ("enable_attention_dp", r"attention_dp enabled", "true"),
    ("enable-lora", r"multi-LoRA", "true"),
)
DEPTH = r"(?:depth |@ d)(\d+)"  # of the context before a prompt
BYTES = {  # of the file of weights
    r"(\d+(?:\.\d+)?) GiB\b(?! KV)": 2**30,
    r"(\d+(?:\.\d+)?) GB\b": 10**9,
    r"weights (\d+(?:\.\d+)?) MB": 10**6,
}
KV_CACHE = r"(\d+(?:\.\d+)?) GiB KV cache per GPU"


def typed_columns(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row of the older schema with typed columns for what its `load` and `notes` say.

    >>> row = typed_columns({"load": "open loop, 500 requests at QPS 4", "request_rate": "4", "notes": "multi-LoRA"})
    >>> row["regime"], row["num_prompts"], row["engine_settings"]
    ('open_loop', '500', 'enable-lora=true')
    """
    load, notes = row.get("load", ""), row.get("notes", "")
    both = f"{load}; {notes}"
    found = _read(IN_EITHER, both) | _read(IN_NOTES, notes) | _read(IN_LOAD, load) | _regime(load, row)
    sizes = (_bytes(pattern, unit, both) for pattern, unit in BYTES.items())
    found["weights_bytes"] = next(filter(None, sizes), "")
    found["engine_settings"] = ";".join(f"{name}={value}" for name, value in _settings(both).items())
    if not _is_some(row.get("output_len", "")):
        found |= _read([("context_len", DEPTH, r"\1")], both)
    elif found.get("regime") not in UNDER_LOAD and "prompt" not in notes:
        found["input_len"] = "0"  # a decode whose prompt no one mentions starts from an empty context
    return {name: cell for name, cell in found.items() if cell} | {name: cell for name, cell in row.items() if cell}


def _read(rules: Iterable[tuple[str, str, str]], text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for column, pattern, value in rules:
        if column not in found and (match := re.search(pattern, text)):
            found[column] = match.expand(value)
    return found


def _regime(load: str, row: Mapping[str, str]) -> dict[str, str]:
    """Return the column `regime`, or `not_modelled` for a load that is none of them and states no batch."""
    if not load:
        return {}
    endless = row.get("request_rate", "").lower().startswith("inf")
    known = next((regime for start, regime in REGIMES if re.match(start, load.lower())), "")
    if endless and known in ("open_loop", ""):
        known = "offline"
    if not known and _is_some(row.get("batch", "")):
        known = "fixed_batch"
    return {"regime": known} if known else {"not_modelled": load}


def _settings(text: str) -> dict[str, str]:
    cache_bytes = _bytes(KV_CACHE, 2**30, text)
    return _read(SETTINGS, text) | ({"kv-cache-memory-bytes": cache_bytes} if cache_bytes else {})


def _bytes(pattern: str, unit: int, text: str) -> str:
    found = re.search(pattern, text)
    return str(round(float(found.group(1)) * unit)) if found else ""


def _is_some(cell: str) -> bool:
    """Tell whether a cell states a number above 0."""
    return bool(re.search("[1-9]", cell))
