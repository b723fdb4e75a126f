"""TensorRT-LLM's own tables: docs/source/performance/perf-overview.md by release, and what its tools derive."""

import math
from dataclasses import replace

from simulator.deployment.settings import Settings
from simulator.engines.engine import Engine
from simulator.models.layers import Attention
from simulator.models.layout import Layout
from simulator.validation.sources.recipe import Limits, Recipe

BENCH_REQUESTS = {  # of trtllm-bench, by (input, output): perf-overview.md of v0.17, v1.0 and v1.2
    **dict.fromkeys(((128, 2048), (500, 2000), (1000, 1000), (1024, 1024), (2048, 128)), 3_000),
    **dict.fromkeys(((128, 4096), (1000, 2000), (2048, 2048), (5000, 500), (8192, 1024), (1024, 8192)), 1_500),
    **dict.fromkeys(((20_000, 2000), (32_768, 1024), (1024, 32_768)), 1_000),
    (128, 128): 30_000,
}
# cuda_graph_config.batch_sizes of llm_options.yml with enable_padding: perf-overview.md of v1.0 and v1.2 (and v0.21)
BENCH_GRAPHS = "1+2+4+8+16+32+64+128+256+384+512+1024+2048+4096+8192"
BENCH_SEQS, BENCH_TOKENS = 4_096, 32_768  # caps of trtllm-bench
DEFAULT_SEQS, DEFAULT_TOKENS = 2_048, 8_192  # of BuildConfig, where trtllm-bench does not tune
DEFAULT_FRACTION = 0.9  # of trtllm-bench
MEMORY_FRACTION = 0.95  # --kv_cache_free_gpu_mem_fraction "in many cases": v0.15 and v1.0, read 2026-11-22
# Sequences and tokens of a step, by model and devices: perf-overview.md of v0.11 and
# tensorrt_llm/bench/build/benchmark_config.yml until trtllm-bench tuned them itself (its last version, of commit
# 8fcf9fc2, read 2026-11-27, has Llama-3-70B on one and two devices, too); a guess for the models that followed
TABLE_LIMITS = {
    ("gpt-j-6b", 1): (128, 2048),
    ("falcon-180b", 4): (4096, 8192),
    ("falcon-180b", 8): (2048, 8192),
    ("llama-2-7b", 1): (4096, 8192),
    ("llama-2-70b", 2): (2048, 2048),
    ("llama-2-70b", 4): (4096, 8192),
    ("llama-2-70b", 8): (8192, 16_384),
    ("llama-3-8b", 1): (2048, 8192),
    ("llama-3-70b", 1): (2048, 2048),
    ("llama-3-70b", 2): (256, 1024),
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
    ("llama-3-70b", 2, 2048, 2048): 2048,
}
SONNET_TOKENS = 467  # of each prompt of the table of online serving, but those of ShareGPT
OTHER_LIMITS = 2048, 2048  # guess: of models and devices that they leave out


class TrtllmOffline(Recipe):
    """A run of TensorRT-LLM with all requests queued at the start, as its documentation measures."""

    streams = False  # its benchmarks pass requests to the engine in their own process, and wait for whole answers

    @property
    def request_count(self) -> float | None:
        """Requests of the run: as stated, or as the documented commands for these lengths send."""
        return super().request_count or self._bench_requests

    @property
    def _bench_requests(self) -> int | None:
        return BENCH_REQUESTS.get((round(self.setup.input_tokens), round(self.setup.output_tokens)))


class TrtllmBench(TrtllmOffline):
    """A run of trtllm-bench (v0.15 and later)."""

    @property
    def rules(self) -> dict[str, object]:
        """Graphs of the listed sizes, filled up, of the PyTorch engine; the C++ engine had none.

        gpt-oss on Blackwell runs in CUTLASS (moe_config of perf-overview.md v1.2), all else in what the engine chooses.
        """
        if self.setup.engine_version.startswith("0."):
            return {}
        is_asked = self.model.weight_dtype == "mxfp4" and self.hardware.family == "blackwell"
        asked: dict[str, object] = {"moe_backend": "cutlass"} if is_asked else {}
        return {"graph_batch_sizes": BENCH_GRAPHS, "graph_padding": True, **asked}

    @property
    def fp8_dtype(self) -> str:
        """NVIDIA's checkpoint, scaled as a whole (nvidia/Qwen3-235B-A22B-FP8 in perf-overview.md), but of DeepSeek."""
        return super().fp8_dtype if self.model.weight_dtype == "fp8-block" else "fp8"

    @property
    def fp4_dtype(self) -> str:
        """nvidia/DeepSeek-R1-0528-NVFP4-v2 from v1.2 on, which "additionally quantizes the wo module" (its card)."""
        return "nvfp4-mlp-wo" if self.model.id.startswith("deepseek") else super().fp4_dtype

    def cache_dtype(self, stated: str, weights: str, engine: Engine) -> str:
        """Return 16 bits for gpt-oss on Hopper, whatever is stated; else what the checkpoint carries.

        perf-overview.md v1.2 asks for fp8 with gpt-oss, "Hopper: use auto", and with DeepSeek-R1. For all else the
        checkpoint decides, and those of ModelOpt carry an fp8 cache: kv_cache_quant_algo FP8 beside quant_algo FP8 of
        Qwen3-235B-A22B and both Llama 4 in tests/integration/defs/accuracy/references/gsm8k.yaml, by which
        test_llm_api_pytorch.py looks up the loaded checkpoint (read 2026-11-27).
        """
        if self.model.weight_dtype == "mxfp4" and self.hardware.family == "hopper":
            return self.model.dtype
        return super().cache_dtype(stated, weights, engine)

    def settings(self, layout: Layout) -> Settings:
        """Return the limits and max_seq_len, the longest sequence of the data set (bench/benchmark/throughput.py)."""
        own = super().settings(layout)
        longest = math.ceil(self.setup.input_tokens) + math.ceil(self.setup.output_tokens)
        return replace(own, max_model_len=min(own.max_model_len or longest, self.model.max_context_tokens) or None)

    def limits(self, layout: Layout) -> Limits:
        """Return max_batch_size, of all stages, and max_num_tokens as trtllm-bench derives them from its data set.

        get_benchmark_engine_settings of tensorrt_llm/bench/build/build.py (fp8, nvfp4 and 16 bits are tuned, mxfp4 has
        the defaults), calc_engine_setting and finetune_setting of tuning.py, and what get_settings of its
        benchmark/utils/general.py does without chunked prefill (read 2026-11-21 and 27).
        """
        prompt, output = self.setup.input_tokens, self.setup.output_tokens
        if not output:
            return Limits(memory_fraction=MEMORY_FRACTION)
        if self.model.weight_dtype == "mxfp4":
            return Limits(DEFAULT_SEQS, max(DEFAULT_TOKENS, round(prompt) + DEFAULT_SEQS), MEMORY_FRACTION)
        one = replace(layout, tp=1, pp=1, ep=1, dp=1)
        packs = 2 if layout.weight_dtype.startswith("nvfp4") else 1  # two in a byte count as one, of half a byte
        room = layout.devices * self.hardware.memory_bytes - one.weight_bytes(self.model.weights(one)) / packs
        fitting = MEMORY_FRACTION * room / (self._token_bytes(layout) * (prompt + output))
        seqs = max(1.0, min(fitting, BENCH_SEQS) / layout.pp)
        tokens = min(seqs * (1 + prompt / output), BENCH_TOKENS)
        most = max(64, _round_up(seqs, 32 if seqs < 256 else 128 if seqs < 1024 else 256))
        budget = max(2048, _round_up(tokens, 256 if tokens < 4096 else 512 if tokens < 8192 else 1024))
        return Limits(most * layout.pp, max(budget, round(prompt) + most), MEMORY_FRACTION)

    def _token_bytes(self, layout: Layout) -> float:
        """Bytes of a cached token of all layers as trtllm-bench counts them: each of the --tp devices has a KV head."""
        mixers = [self.model.blocks[name].mixer for name in self.model.layer_names]
        heads = max((each.kv_heads for each in mixers if isinstance(each, Attention)), default=0)
        own = self.model.cache_bytes(1, replace(layout, tp=1, pp=1, ep=1, dp=1))
        return own * max(layout.tp * layout.dp, heads) / heads if heads else own


class TrtllmTable(TrtllmOffline):
    """A run of the tables of v0.11 to v0.14, by gptManagerBenchmark and the first trtllm-bench."""

    @property
    def request_count(self) -> float | None:
        """Requests that the documented commands for these lengths send; the page counts them by lengths, not by row."""
        return self._bench_requests

    def limits(self, layout: Layout) -> Limits:
        """Return the table's limits; --kv_cache_free_gpu_mem_fraction is 0.99 in v0.11, but 0.95 on GH200.

        Later pages build and run with trtllm-bench and do not give it: 0.90 (its bench/run/run.py, read 2026-11-27).
        """
        kind = self.model.id.replace("llama-3.1", "llama-3"), layout.devices
        seqs, tokens = TABLE_LIMITS.get(kind, OTHER_LIMITS)
        seqs = TABLE_SEQS.get((*kind, round(self.setup.input_tokens), round(self.setup.output_tokens)), seqs)
        if not self.setup.engine_version.startswith("0.11"):
            return Limits(seqs, tokens, DEFAULT_FRACTION)
        return Limits(seqs, tokens, MEMORY_FRACTION if self.hardware.id.startswith("gh200") else 0.99)


class TrtllmEvicting(TrtllmOffline):
    """A run of v0.10's table, with `--scheduler_policy max_utilization`: requests are admitted that may be preempted.

    docs/source/performance/perf-overview.md of v0.10 asks for it, with max_batch_size and max_num_tokens of 2,048; that
    of v0.11 for guaranteed_no_evict, the default (read 2026-11-21).
    """

    @property
    def rules(self) -> dict[str, object]:
        """max_utilization: a request is admitted before its whole output is sure to fit."""
        return {"admit_full_output": False}

    def limits(self, layout: Layout) -> Limits:
        """Return the max_batch_size and max_num_tokens that the page asks for."""
        return Limits(2048, 2048)


class TrtllmStatic(Recipe):
    """A run of the tables of v0.5 to v0.9: docs/source/performance.md calls gptSessionBenchmark with one batch.

    That holds a session, without a batch manager: a batch runs as a whole or not at all. perf-overview.md of v0.10 says
    that it is the first of in-flight batching (read 2026-11-27).
    """

    @property
    def rules(self) -> dict[str, object]:
        """Static batches of one prompt: no sequence waits for the cache of another, and all decode the same tokens.

        benchmarks/cpp/gptSessionBenchmark.cpp fills every prompt with the padding token and takes the best token
        (topK 1; copies of 2023 and 2024, read 2026-11-28).
        """
        return {"policy": "static", "identical_prompts": True}


class TrtllmOnline(Recipe):
    """A run of the table of online serving: Triton under the client of vLLM's nightly benchmarks of autumn 2024.

    Its 500 requests, rates of 2 to 32 and inf, models over one and four devices and outputs of 16 and 256 tokens after
    some 462 are those of vllm-project/vllm .buildkite/nightly-benchmarks/nightly-descriptions.md (commit 43479b60), and
    its columns those of benchmark_serving.py, which pools all gaps (read 2026-11-27). That page names neither: a guess.
    """

    pools_gaps = True

    @property
    def rules(self) -> dict[str, object]:
        """Five instances of the models for preprocessing and postprocessing in Triton Inference Server.

        preprocessing_instance_count and postprocessing_instance_count of launch-server.sh in
        .buildkite/nightly-benchmarks/scripts (read 2026-11-28).
        """
        return {"api_server_count": 5}

    @property
    def has_data_set(self) -> bool:
        """Whether lengths are those of ShareGPT; the other prompts are lines of sonnets up to one length."""
        return round(self.setup.input_tokens) != SONNET_TOKENS


def _round_up(value: float, multiple: int) -> int:
    return multiple * math.ceil(value / multiple)
