"""What published scripts and configurations set for an engine and a load, where a measurement's row does not say."""

import math

from simulator.deployment import Settings
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
FIRST_CALL_S = 18.0  # read off the measurements: what a straight line of latency over tokens leaves at no token


def settings_of(setup: Setup, model: Model, hardware: Hardware, layout: Layout) -> Settings:
    """Return the limits that a setup states, or else that its source's scripts are known to set."""
    seqs: float | None = None
    tokens = _imx_tokens(setup, model, hardware)
    if "trtllm-bench" in setup.notes and setup.output_tokens:
        seqs, tokens = _bench_limits(setup, model, hardware, layout)
    elif evicts(setup):
        seqs, tokens = 2048, 2048
    elif found := entry(setup, model.id, hardware):
        tokens = found.max_num_batched_tokens
        seqs = min(found.max_num_seqs, tokens) * layout.pp  # each takes a token of a step
    seqs = setup.noted(r"max_num_seqs (\d+)") or seqs
    tokens = setup.noted(r"max_num_batched_tokens (\d+)") or tokens
    return Settings(
        max_num_seqs=int(seqs) if seqs else None,
        max_num_batched_tokens=int(max(tokens, seqs or 1)) if tokens else None,
        memory_fraction=setup.noted(r"gpu_mem_util ([\d.]+)"),
    )


def evicts(setup: Setup) -> bool:
    """Tell whether TensorRT-LLM ran with `--scheduler_policy max_utilization`, which admits what may have to leave.

    docs/source/performance/perf-overview.md of v0.10 asks for it, with max_batch_size and max_num_tokens of 2,048; that
    of v0.11 for guaranteed_no_evict, the default (read 2026-11-21).
    """
    return "gptManagerBenchmark" in setup.notes and setup.engine_version.startswith("0.10")


def request_count(setup: Setup) -> float | None:
    """Return how many requests the source says that it sent, or that its scripts send."""
    stated = setup.noted(r"(\d+) (?!distinct)(?:[A-Za-z]+ )?(?:requests|prompts)")
    if stated or not setup.engine.startswith("TensorRT-LLM") or setup.regime != "offline":
        return stated
    return BENCH_REQUESTS.get((round(setup.input_tokens), round(setup.output_tokens)))


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
    if "IMX workload" not in setup.notes:
        return None
    dense = "70b" in model.id
    if setup.engine.startswith("TensorRT") and (dense or "gpt-oss" in model.id):
        return setup.input_tokens + setup.output_tokens + 200 if dense else 20_000  # a dense model's longest context
    return 131_072 if dense and hardware.family.startswith("cdna") else None


def first_call_s(setup: Setup, hardware: Hardware) -> float:
    """Return the seconds that a timed run spends on the first call, where its source did not warm it up.

    Guess: Argonne's vLLM on Intel's Max 1550 compiles its kernels then. Latencies of Llama-3-8B and Qwen2-7B grow in a
    straight line from 18 s, at 1 and at 16 sequences, and a second run of a few setups lacks just these.
    """
    timed = "value = batch*(in+out)/latency" in setup.notes and setup.engine == "vLLM"
    return FIRST_CALL_S if timed and hardware.family == "xe-hpc" else 0.0
