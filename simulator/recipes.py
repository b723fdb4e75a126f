"""What published scripts and configurations set for an engine and a load, where a measurement's row does not say."""

import math

from simulator.deployment import Settings
from simulator.engine import Engine
from simulator.hardware import Hardware
from simulator.measurements import Setup
from simulator.mlperf import entry
from simulator.model import Model
from simulator.work import Layout

BENCH_REQUESTS = {  # of trtllm-bench, by (input, output): TensorRT-LLM's perf-overview.md of v0.17, v1.0 and v1.2
    **dict.fromkeys(((128, 2048), (500, 2000), (1000, 1000), (1024, 1024), (2048, 128)), 3_000),
    **dict.fromkeys(((128, 4096), (1000, 2000), (2048, 2048), (5000, 500), (8192, 1024), (1024, 8192)), 1_500),
    **dict.fromkeys(((20_000, 2000), (32_768, 1024), (1024, 32_768)), 1_000),
    (128, 128): 30_000,
}
BENCH_SEQS, BENCH_TOKENS = 4_096, 32_768  # caps of trtllm-bench
# Sequences and tokens of a step in TensorRT-LLM's own tables, by model and devices: perf-overview.md of v0.11 and
# tensorrt_llm/bench/build/benchmark_config.yml of v0.12 (read 2026-11-22); a guess for the models that followed
TABLE_LIMITS = {
    ("gpt-j-6b", 1): (128, 2048),
    ("falcon-180b", 4): (4096, 8192),
    ("falcon-180b", 8): (2048, 8192),
    ("llama-2-7b", 1): (4096, 8192),
    ("llama-2-70b", 2): (2048, 2048),
    ("llama-2-70b", 4): (4096, 8192),
    ("llama-2-70b", 8): (8192, 16_384),
    ("llama-3-8b", 1): (2048, 8192),
    ("llama-3-70b", 4): (2048, 1024),
    ("llama-3-70b", 8): (8192, 16_384),
    ("mixtral-8x7b", 2): (2048, 3072),
    ("mixtral-8x7b", 4): (8192, 8192),
    ("mistral-7b", 1): (4098, 8192),
}
TABLE_SEQS = {  # where a prompt and an output have their own
    ("gpt-j-6b", 1, 128, 128): 2048,
    ("llama-2-70b", 4, 128, 4096): 256,
    ("llama-2-70b", 8, 128, 2048): 1024,
}
OTHER_LIMITS = 2048, 2048  # guess: of models and devices that they leave out
# Tokens of a step beside one of each sequence and a prompt: in aiconfigurator's rules; for its sweeps of plain
# engines a guess, from a comment there ("+1000 is for holding the largest isl"): with 1,500 two prompts of 1,024
# tokens would share a step, and their TTFT is not that of two.
GENERATED_SPARE, SWEPT_SPARE = 1_500, 1_000
GRAPH_TOKENS = 2048  # max-cudagraph-capture-size of InferenceMAX's scripts for gpt-oss
RETRIED_FRACTION = 0.95  # --gpu-memory-utilization of the second start (`retries`)
ANSWER_LIMITS = 256, 512  # max_tokens of the loads of arXiv:2601.09527 (output_tokens_mean in benchmark_config.json)
# Read off the measurements: what a straight line of latency over tokens leaves at no token
FIRST_CALL_S, MII_FIRST_CALL_S = 18.0, 0.5
ENDED_TOKENS = 600  # guess: where splitwise's texts end by themselves (350, 635, 580 and 651 tokens of Llama-2-70b)


def settings_of(setup: Setup, model: Model, hardware: Hardware, layout: Layout) -> Settings:
    """Return the limits that a setup states, or else that its source's scripts are known to set."""
    seqs: float | None = None
    tokens = _imx_tokens(setup, model, hardware)
    if "trtllm-bench" in setup.notes and setup.output_tokens:
        seqs, tokens = _bench_limits(setup, model, hardware, layout)
    elif _caps_at_concurrency(setup):
        seqs = setup.concurrency
    elif _evicts(setup):
        seqs, tokens = 2048, 2048
    elif _is_table(setup):
        seqs, tokens = _table_limits(setup, model, layout)
    elif setup.is_aiconfigurator and _computes_whole_prompts(setup):
        spare = GENERATED_SPARE if setup.is_generated else SWEPT_SPARE
        tokens = setup.concurrency + setup.input_tokens + spare
    elif found := entry(setup, model.id, hardware):
        tokens = found.max_num_batched_tokens
        seqs = min(found.max_num_seqs, tokens) * layout.pp  # each takes a token of a step
    seqs = setup.noted(r"max_num_seqs (\d+)") or seqs
    tokens = setup.noted(r"max_num_batched_tokens (\d+)") or tokens
    return Settings(
        max_num_seqs=int(seqs) if seqs else None,
        max_num_batched_tokens=int(max(tokens, seqs or 1)) if tokens else None,
        memory_fraction=setup.noted(r"gpu_mem_util ([\d.]+)") or _cache_share(setup, hardware),
    )


def rules_of(setup: Setup, model: Model, hardware: Hardware, engine: Engine) -> dict[str, object]:
    """Return the engine's rules that a setup states, or that its source's scripts are known to set, by field."""
    part = setup.noted(r"n_ubatch (\d+)")
    mixed = setup.is_generated and engine.engine == "sglang"  # `agg enable_mixed_chunk = true` in its sglang.rule
    stated = {
        "policy": "continuous" if mixed else None,
        "chunked_prefill": False if _computes_whole_prompts(setup) else None,
        "admit_full_output": False if _evicts(setup) else None,
        "micro_batch_tokens": int(part) if part else None,
        "graph_tokens": _graph_tokens(setup, model, hardware),
        "one_text": _repeats_a_prompt(setup) or None,
        "adapters": _has_adapters(setup) or None,
    }
    return {name: value for name, value in stated.items() if value is not None}


def _caps_at_concurrency(setup: Setup) -> bool:
    """Tell whether scripts set max_num_seqs to the requests in flight.

    `--max-num-seqs $CONC` in InferenceMAX's of vLLM (SemiAnalysisAI/InferenceX benchmarks/, read 2026-11-22), and the
    consumer cards' runner.
    """
    return _is_consumer(setup) or _is_inferencemax_vllm(setup)


def _is_inferencemax_vllm(setup: Setup) -> bool:
    return setup.is_inferencemax and setup.engine.lower().startswith("vllm")


def _is_consumer(setup: Setup) -> bool:
    """Tell whether a run is of arXiv:2601.09527, vLLM 0.12 and AIPerf 0.3 on rented GeForce cards.

    benchmark_runner.py, Dockerfile and configs of github.com/hholtmann/llm-consumer-gpu-benchmark, read 2026-11-22.
    """
    return "arXiv:2601.09527" in setup.notes


def answer_limit(setup: Setup) -> int | None:
    """Return max_tokens of a load whose answers may end before it; None where all are as long as stated."""
    return next((each for each in ANSWER_LIMITS if _is_consumer(setup) and setup.output_tokens <= each), None)


def retries(setup: Setup) -> bool:
    """Tell whether a server that lacks memory was started again with an fp8 cache, and only then with one."""
    return _is_consumer(setup)


def _has_adapters(setup: Setup) -> bool:
    """Tell whether requests ask for low-rank adapters, as three in four of these loads do, each for one of three."""
    return _is_consumer(setup) and "multi-LoRA" in setup.notes


def runs_asynchronously(setup: Setup) -> bool:
    """Tell whether vLLM ran with `--async-scheduling`, its default from 0.14 on, which InferenceMAX set before.

    benchmarks/70b_fp8_{h100,h200,mi300x,mi325x}_slurm.sh, 70b_fp8_b200_docker.sh and gptoss_fp4_*.sh of
    github.com/SemiAnalysisAI/InferenceX (read 2026-11-22); that its other scripts do is a guess. The whole preset of
    0.14 is taken then: its host times are those of steps decided ahead.
    """
    return _is_inferencemax_vllm(setup)


def _graph_tokens(setup: Setup, model: Model, hardware: Hardware) -> int | None:
    """Return the tokens of the largest graph where a script sets them: gptoss_fp4_{h100,h200,b200}.sh do."""
    asked = runs_asynchronously(setup) and "gpt-oss" in model.id and hardware.vendor == "NVIDIA"
    return GRAPH_TOKENS if asked else None


def _evicts(setup: Setup) -> bool:
    """Tell whether TensorRT-LLM ran with `--scheduler_policy max_utilization`, which admits what may have to leave.

    docs/source/performance/perf-overview.md of v0.10 asks for it, with max_batch_size and max_num_tokens of 2,048; that
    of v0.11 for guaranteed_no_evict, the default (read 2026-11-21).
    """
    return "gptManagerBenchmark" in setup.notes and setup.engine_version.startswith("0.10")


def _computes_whole_prompts(setup: Setup) -> bool:
    """Tell whether TensorRT-LLM ran without chunked prefill, its default, where the scripts are known and leave it.

    InferenceMAX's for dense models and gpt-oss, which make room for the longest request (`_imx_tokens`), and
    aiconfigurator's (rule_plugin/trtllm.rule, read 2026-11-22; an older generator says so in a comment).
    """
    roomy = setup.is_inferencemax and any(name in setup.model.lower() for name in ("70b", "gpt-oss"))
    return setup.engine.startswith("TensorRT") and bool(setup.concurrency) and (setup.is_aiconfigurator or roomy)


def request_count(setup: Setup) -> float | None:
    """Return how many requests the source says that it sent, or that its scripts send."""
    stated = None if _is_table(setup) else setup.noted(r"(\d+) (?!distinct)(?:[A-Za-z]+ )?(?:requests|prompts)")
    if stated or not setup.engine.startswith("TensorRT-LLM") or setup.regime != "offline":
        return stated
    return BENCH_REQUESTS.get((round(setup.input_tokens), round(setup.output_tokens)))


def _is_table(setup: Setup) -> bool:
    """Tell whether a run is of TensorRT-LLM's own tables of v0.11 to v0.14; their page counts requests by lengths."""
    is_offline = setup.engine == "TensorRT-LLM" and "in-flight batching" in setup.notes
    return is_offline and setup.engine_version.startswith(("0.11", "0.12", "0.13", "0.14"))


def _table_limits(setup: Setup, model: Model, layout: Layout) -> tuple[int, int]:
    kind = model.id.replace("llama-3.1", "llama-3"), layout.devices
    seqs, tokens = TABLE_LIMITS.get(kind, OTHER_LIMITS)
    return TABLE_SEQS.get((*kind, round(setup.input_tokens), round(setup.output_tokens)), seqs), tokens


def _cache_share(setup: Setup, hardware: Hardware) -> float | None:
    """Return --kv_cache_free_gpu_mem_fraction of TensorRT-LLM's own tables: 0.99 in v0.11, 0.95 "in many cases" later.

    perf-overview.md of v0.11 (0.95 on GH200), v0.15 and v1.0, read 2026-11-22.
    """
    if _is_table(setup) and setup.engine_version.startswith("0.11") and not hardware.id.startswith("gh200"):
        return 0.99
    return 0.95 if _is_table(setup) or "trtllm-bench" in setup.notes else None


def _bench_limits(setup: Setup, model: Model, hardware: Hardware, layout: Layout) -> tuple[int, int]:
    """Return max_batch_size, of all stages, and max_num_tokens as trtllm-bench derives them from its data set.

    calc_engine_setting and finetune_setting of tensorrt_llm/bench/build/tuning.py, and what get_settings of its
    benchmark/utils/general.py does without chunked prefill (read 2026-11-21).
    """
    prompt, output = setup.input_tokens, setup.output_tokens
    one = Layout(weight_dtype=layout.weight_dtype, cache_dtype=layout.cache_dtype, model_dtype=layout.model_dtype)
    room = layout.devices * hardware.memory_bytes - one.weight_bytes(model.weights(one))
    fitting = 0.9 * room / max(1.0, model.cache_bytes(1, one) * (prompt + output))
    seqs = max(1.0, min(fitting, BENCH_SEQS) / layout.pp)
    tokens = min(seqs * (1 + prompt / output), BENCH_TOKENS)
    most = max(64, _up(seqs, 32 if seqs < 256 else 128 if seqs < 1024 else 256))
    budget = max(2048, _up(tokens, 256 if tokens < 4096 else 512 if tokens < 8192 else 1024))
    return most * layout.pp, max(budget, round(prompt) + most)


def _up(value: float, multiple: int) -> int:
    return multiple * math.ceil(value / multiple)


def _imx_tokens(setup: Setup, model: Model, hardware: Hardware) -> float | None:
    """Return max_num_tokens of InferenceMAX's scripts (read 2026-11-21) where it is not the engine's default."""
    if not setup.is_inferencemax:
        return None
    dense = "70b" in model.id
    if setup.engine.startswith("TensorRT") and (dense or "gpt-oss" in model.id):
        return setup.input_tokens + setup.output_tokens + 200 if dense else 20_000  # a dense model's longest context
    return 131_072 if dense and hardware.family.startswith("cdna") else None


def _is_argonne(setup: Setup) -> bool:
    """Tell whether a run is of Argonne's scripts (github.com/argonne-lcf/LLM-Inference-Bench, read 2026-11-22)."""
    return setup.source.startswith("argonne")


def release_of(setup: Setup) -> str:
    """Return the release of an engine, or the date where it is not stated.

    Guess: Argonne's TensorRT-LLM, whose steps over 16 and 64 sequences of Llama-3-8B and Mixtral grow with their length
    as if each of a group of four query heads read the cache for itself, on A100 and on H100, as before 0.11.
    """
    if setup.engine == "TensorRT-LLM" and not setup.engine_version and _is_argonne(setup):
        return "0.10"
    return setup.engine_version or setup.date


def _repeats_a_prompt(setup: Setup) -> bool:
    """Tell whether all sequences of a batch are one text, decoded alike.

    Argonne's pipeline.py for DeepSpeed-MII repeats a prompt; that its TensorRT-LLM runs do is a guess: examples/run.py
    takes the best token (top_k 1), and Mixtral on four A100 is faster than reading all experts would be. Its vLLM runs
    draw their prompts.
    """
    return _is_argonne(setup) and setup.engine in ("Deepspeed-MII", "TensorRT-LLM")


def output_of(setup: Setup) -> float:
    """Return the tokens that a request generates, where the source lets texts end before the stated length."""
    return min(setup.output_tokens, ENDED_TOKENS) if setup.source.startswith("splitwise") else setup.output_tokens


def first_call_s(setup: Setup, hardware: Hardware) -> float:
    """Return the seconds that a timed run spends on the first call, where its source did not warm it up.

    Argonne's pipeline.py for DeepSpeed-MII times the first call. Guess: its vLLM on Intel's Max 1550 compiles its
    kernels then. Latencies of Llama-3-8B and Qwen2-7B grow in a straight line from 18 s, at 1 and at 16 sequences, and
    a second run of a few setups lacks just these.
    """
    if "value = batch*(in+out)/latency" not in setup.notes:
        return 0.0
    if _is_argonne(setup) and setup.engine == "Deepspeed-MII":
        return MII_FIRST_CALL_S
    return FIRST_CALL_S if setup.engine == "vLLM" and hardware.family == "xe-hpc" else 0.0
