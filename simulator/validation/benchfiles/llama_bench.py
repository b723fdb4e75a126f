"""Results of `llama-bench` as json, jsonl, csv or md: prompt (pp), generation (tg) or both, at a depth of context.

t/s are tokens over the time of the test, without tokenization and sampling; `-b` and `-ub` are chunks of a prompt, not
parallel sequences, so every test is a batch of one (tools/llama-bench/README.md of build b8000 and later, read
2026-11-21). The table has neither the device nor the file of the model: they are stated by the user.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from simulator.errors import InfercastError, ProfileError
from simulator.models.format_names import ending, named_format
from simulator.models.model import load_model
from simulator.validation.benchfiles.rows import Cells, Stated, measured, model_named, not_predicted, number_or_none

TESTS = {"n_prompt": "pp", "n_gen": "tg", "n_depth": "d"}
ALL_LAYERS = 99  # -ngl from which every model is offloaded whole
COLUMNS = {"model": "model_type", "backend": "backends", "ngl": "n_gpu_layers", "sm": "split_mode"}  # of the table


def is_llama_bench(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is one test of `llama-bench`."""
    return {"n_prompt", "n_gen", "avg_ts"} <= document.keys()


def from_csv(text: str) -> list[dict[str, Any]]:
    """Return the tests of a CSV."""
    return list(csv.DictReader(io.StringIO(text)))


def from_markdown(text: str) -> list[dict[str, Any]]:
    r"""Return the tests of a Markdown table as those of a JSON file, with what its columns say.

    >>> from_markdown("| ngl | test | t/s |\n|--:|--:|--:|\n| 99 | tg128 @ d512 | 9.5 ± 0.1 |")
    [{'n_gpu_layers': '99', 'n_prompt': '0', 'n_gen': '128', 'n_depth': '512', 'avg_ts': '9.5'}]
    """
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    build = re.search(r"^build: \w+ \((\d+)\)", text, re.MULTILINE)
    head, *others = lines
    tests: list[dict[str, Any]] = []
    for cells in others:
        row = dict(zip(head, cells, strict=False))
        counts = dict(re.findall(r"(pp|tg|d) ?(\d+)", row.pop("test", "")))
        if counts:  # neither the rule under the head nor a second head
            speed = row.pop("t/s", "").partition("±")[0].strip()
            named: dict[str, Any] = {COLUMNS.get(name, name): value for name, value in row.items()}
            sizes = {name: counts.get(kind, "0") for name, kind in TESTS.items()}
            tests.append({**named, **({"build_number": build.group(1)} if build else {}), **sizes, "avg_ts": speed})
    return tests


def llama_bench(test: Mapping[str, Any], stated: Stated) -> Iterator[Cells]:
    """Yield the row of one test."""
    prompt, output, depth = (number_or_none(test.get(name)) or 0 for name in TESTS)
    model = stated.model or model_named(_model_name(str(test.get("model_filename") or ""))).get("model", "")
    cells: Cells = {
        "engine": "llama.cpp",
        "engine_version": f"b{test['build_number']}" if test.get("build_number") else None,
        "source_date": str(test.get("test_time") or "")[:10],
        "model": model or None,
        "weight_dtype": stated.weight_dtype or _format(str(test.get("model_type") or "")),
        "kv_dtype": test.get("type_k") or "",
        "input_len": prompt or depth,
        "output_len": output,
        "batch": 1,
        "regime": "single",
        "client": "llama-bench",
        "context_len": depth if prompt else None,
        "engine_settings": f"ubatch-size={int(chunk)}" if (chunk := number_or_none(test.get("n_ubatch"))) else None,
    }
    metric = "throughput_total_tok_s" if prompt and output else "pp_tok_s" if prompt else "tg_tok_s"
    cells = {name: value for name, value in cells.items() if value is not None} | _devices(test)
    if why := _partial_offload(test, model):
        cells = not_predicted(cells, why)
    yield from measured(cells, [(metric, "mean", number_or_none(test["avg_ts"]))])


def _devices(test: Mapping[str, Any]) -> Cells:
    """Return the columns on devices; split mode `layer` is pipeline-, `row` and `tensor` are tensor-parallel."""
    processors = test.get("gpu_info") or test.get("cpu_info") or ""
    if str(test.get("backends")) in ("CPU", "BLAS"):
        processors = test.get("cpu_info") or processors
    found = [each.strip() for each in str(processors).split(",") if each.strip()]
    count = len(found)
    if test.get("devices") not in (None, "auto"):
        count = len(str(test["devices"]).split("/"))
    mode = str(test.get("split_mode") or "layer")
    count = 1 if mode == "none" else max(1, count)
    split = {"pp": count, "tp": 1} if mode == "layer" else {"tp": count, "pp": 1}
    named = {"hardware": ", ".join(dict.fromkeys(found))} if found else {}
    return {"n_gpus": count, **split, **named}


def _model_name(path: str) -> str:
    """Return the model's name in a file's path, without its format.

    >>> _model_name("models/Qwen2.5-7B-Instruct-Q4_K_M-00001-of-00002.gguf")
    'Qwen2.5-7B-Instruct'
    """
    name = PurePosixPath(path.replace("\\", "/")).name.removesuffix(".gguf")
    return ending(re.sub(r"-\d{5}-of-\d{5}$", "", name))[0]


def _format(kind: str) -> str:
    """Return the number format that llama.cpp names in words, as of a file's type ("Q4_K - Medium", "mostly Q4_0").

    ProfileError for a type that infercast does not have.

    >>> _format("qwen2 7B Q4_K - Medium"), _format("llama 7B mostly Q4_0"), _format("gpt-oss 20B MXFP4 MoE")
    ('q4_K_M', 'q4_0', 'mxfp4_MoE')
    """
    words = kind.split()
    for first in range(len(words)):
        with suppress(ProfileError):
            return named_format(" ".join(words[first:]))
    because = "no word of it names a number format that is known"
    raise ProfileError(f"model_type {kind!r}", because, "Give --weight-dtype")


def _partial_offload(test: Mapping[str, Any], model: str) -> str:
    """Return why a test is not predicted: layers, experts or the KV cache stay on the CPU; "" where none do."""
    layers = number_or_none(test.get("n_gpu_layers"))
    if number_or_none(test.get("n_cpu_moe")) or str(test.get("no_kv_offload")).lower() in ("1", "true"):
        return "experts or the cache on the CPU"
    if layers is None or layers < 0 or layers >= ALL_LAYERS or str(test.get("backends")) in ("CPU", "BLAS"):
        return ""
    try:
        whole = len(load_model(model).layer_names)
    except InfercastError:
        return ""  # the model is named as missing later
    return "" if layers > whole or not test.get("gpu_info", "GPU") else f"{layers:.0f} of {whole} layers on the GPU"
