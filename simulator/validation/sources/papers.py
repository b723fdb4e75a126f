"""Papers and recipes that publish their scripts or data: consumer cards, Argonne, Splitwise, Google's TPUs, MLC."""

import re

from simulator.deployment.layouts import usual_cache
from simulator.engines.engine import Engine
from simulator.models.layout import Layout
from simulator.validation.measurements import Setup
from simulator.validation.sources.recipe import Balancer, Limits, Load, Recipe
from simulator.workloads.lengths import Ended, Fixed

WARMUP_REQUESTS = 5  # warmup_request_count in its configs/template.yaml
ANSWER_LIMITS = 256, 512  # max_tokens of the loads of arXiv:2601.09527 (output_tokens_mean in benchmark_config.json)
MISTRAL_LIMIT = 128  # nominal output length of mushfiqrahman.dev's runs, without --ignore-eos; the mean is theirs
PAGE_LIMIT = 600  # output length of databasemart.com's tables; the mean of the answers is theirs
# Read off the measurements: the intercept of a straight line of latency over output tokens
FIRST_CALL_S, MII_FIRST_CALL_S = 18.0, 0.5
# Read off the measurements: p99 less predicted p99 of TTFT, medians of four hybrid models from 7.2 to 14.5 s
AUTOTUNED_S = 9.0
# CPUs of deplodock's hosts per GPU. 2026: GCP's a3-highgpu, a3-ultragpu, a4-highgpu and g4-standard. 2025: H100 and
# H200 by its system_info.txt; guess: the others by names of CloudRift's instances in its hardware.py (rtxpro6000-12,
# rtx49-10c, rtx59-16c, l40s-24c)
CPUS_2026 = {"h100-sxm": 26, "h200-sxm": 28, "b200-sxm": 28, "rtx-pro-6000-server": 48}
CPUS_2025 = {"h100-sxm": 26, "h200-sxm": 14, "rtx-pro-6000-server": 12, "rtx-4090": 10, "rtx-5090": 16, "l40s": 24}
CYANKIWI_INT4 = {"Qwen3.6-27B", "GLM-4.5-Air"}  # deplodock's int4 checkpoints by cyankiwi (once cpatonn)
UNSORTED = "0.11.0"  # the last vLLM that samples with FlashInfer unasked
FIRST_V1_IMAGE = "2025-06-20"  # of rocm/vllm-dev
ROCM_TOKENS = 131_072
TPU_FRACTION = 0.98  # --gpu-memory-utilization of the recipes for Llama 3 on Trillium and Qwen3-32B on Ironwood
IRONWOOD_RATIO = 0.8  # --random-range-ratio of the recipe for Qwen3-32B on Ironwood
# --ubatch-size of DgxSparkBenches, and of StrixHaloToolboxes behind a context of 32,768 or more tokens
LONG_UBATCH = 2048
ENDED_TOKENS = 600  # guess: where Splitwise's texts end by themselves (350, 635, 580 and 651 tokens of Llama-2-70b)


class Deplodock(Recipe):
    """A run of cloudrift's deplodock recipes (github.com/cloudrift-ai/deplodock)."""

    @property
    def int4_dtype(self) -> str:
        """Groups of 32 in cyankiwi's checkpoints, as the sizes of their files say; 128 in others.

        Of Qwen3.6-27B-AWQ-INT4 20.5 GB; of GLM-4.5-Air's shape 59.0 GiB (huggingface.co/cyankiwi,
        GLM-4.5-Air-Derestricted-AWQ-4bit: "205.8 GB -> 59.0 GB", of 16 bits 205.8 GiB; read 2026-11-27).
        """
        return "int4-g32" if self.setup.model in CYANKIWI_INT4 else "int4"

    def cache_dtype(self, stated: str, weights: str, engine: Engine) -> str:
        """Return what the checkpoint asks for where the row infers 16 bits: nvidia/Kimi-K2.5-NVFP4 asks for fp8."""
        return super().cache_dtype("" if usual_cache(weights, engine) else stated, weights, engine)

    @property
    def rules(self) -> dict[str, object]:
        """Of SGLang: `vllm bench serve` lets random prompts ignore EOS; flags of Qwen3-Coder-Next.

        vllm/benchmarks/serve.py; --disable-radix-cache and --attention-backend triton of its experiment
        Qwen3-Coder-Next-FP8/optimal_mcr_pro6000; --quantization moe_wna16 of Qwen3-Coder-30B (vllm_vs_sglang_rtx5090),
        and modelopt of Kimi-K2.5, which 0.5.9's server_args.py leaves to cutlass_moe_fp4.

        Of vLLM 0.11.0: FlashInfer's sampler. Its image is vllm-openai:latest, which has FlashInfer; vLLM 0.11.0
        samples with what is installed, 0.11.1 sorts unless asked (v1/sample/ops/topk_topp_sampler.py). A report of
        0.11.0 lacks the line "Failed requests", which `vllm bench serve` prints from 0.11.1 on: all of 2025-10 and, of
        2025-11, those on RTX PRO 6000 and on H200 but for GLM-4.6-FP8.
        """
        if self.is_vllm:
            return {"flashinfer_sampler": True} if self.setup.engine_version == UNSORTED else {}
        if not self.is_sglang:
            return {}
        asked: dict[str, dict[str, object]] = {
            "Qwen3-Coder-Next": {"prefix_caching": False, "attention_backend": "triton"},
            "Qwen3-Coder-30B-A3B-Instruct": {"moe_backend": "triton"},
            "Kimi-K2.5": {"moe_backend": "cutlass"},
        }
        return {"ignore_eos": True, **asked.get(self.setup.model, {})}

    @property
    def first_call_s(self) -> float:
        """Seconds in which Triton tunes the kernels of gated DeltaNet: a server is started for each run.

        In vLLM, not on Hopper, which has other kernels (vLLM pull requests 36599, 37338, 54797). The test prompt of
        `vllm bench serve` warms up what a prompt alone needs: with one request in flight none waits so long.
        """
        tunes = self.is_vllm and self.hardware.family != "hopper" and self.model.recurrent_layers
        return AUTOTUNED_S if tunes and self.setup.concurrency > 1 else 0.0

    def limits(self, layout: Layout) -> Limits:
        """Return SGLang's --max-running-requests: the requests in flight, in each of its recipes (recipe.yaml)."""
        return Limits(self.setup.concurrency if self.is_sglang else None)

    @property
    def balancer(self) -> Balancer:
        """Return nginx of its deploy/compose.py: least_conn without a zone, and `worker_processes auto`: one per CPU.

        Its config.yaml of 2026-01 names hosts at GCP; two system_info.txt of 2025-11 count CPUs (H100 208, H200 112).
        """
        each = (CPUS_2025 if self.setup.date < "2026" else CPUS_2026).get(self.hardware.id)
        if self.setup.replicas < 2 or not each:
            return Balancer()
        return Balancer("least-connections", each * self.setup.devices * self.setup.replicas)


class ConsumerCards(Recipe):
    """A run of arXiv:2601.09527: vLLM 0.12 and AIPerf 0.3 on rented GeForce cards.

    benchmark_runner.py, Dockerfile and configs of github.com/hholtmann/llm-consumer-gpu-benchmark, read 2026-11-22. The
    format of the cache and the memory share of a run, also of a second start, are in its metadata.json (typed columns).
    """

    warmup_requests = WARMUP_REQUESTS  # warmup_request_count of its configurations

    @property
    def rules(self) -> dict[str, object]:
        """LoRA adapters (`--max-loras 3`) where 3 in 4 requests ask for one; a sampler that sorts the vocabulary.

        vLLM 0.12 sorts it where a request has top-k or top-p, unless asked for FlashInfer's sampler
        (vllm/v1/sample/ops/topk_topp_sampler.py), and takes both from the checkpoint's generation_config.json where the
        client, as AIPerf, sends none. gpt-oss's has none (recalled).
        """
        lora = self.setup.engine_setting("enable-lora") == "true"
        adapters = {"adapters": True, "max_loras": 3} if lora else {}
        return {**adapters, **({"sorted_sampling": True} if "gpt-oss" not in self.model.id else {})}

    def limits(self, layout: Layout) -> Limits:
        """Return max_num_seqs: the requests in flight."""
        return Limits(self.setup.concurrency)

    def load(self) -> Load | None:
        """Return equal prompts, and answers that may end before max_tokens; None where either is not known."""
        return _answered(self.setup, ANSWER_LIMITS)


class SglangCookbook(Recipe):
    """A run of SGLang's cookbook (github.com/sgl-project/sgl-cookbook, read 2026-11-27)."""

    @property
    def rules(self) -> dict[str, object]:
        """--attention-backend triton of GLM-4.7-Flash on B200: its GLM47FlashConfigGenerator/index.js."""
        asks = self.setup.model == "GLM-4.7-Flash" and self.hardware.family == "blackwell"
        return {"attention_backend": "triton"} if asks else {}


class DatabaseMart(Recipe):
    """A run of databasemart.com: 50 or 300 requests at once on rented cards, whose answers may end early."""

    def load(self) -> Load | None:
        """Return equal prompts, and answers that may end before the page's "output length 600"."""
        return _answered(self.setup, (PAGE_LIMIT,))


class MushfiqRahman(Recipe):
    """A run of mushfiqrahman.dev: `vllm bench serve` on an RTX 4090, whose answers may end early."""

    def load(self) -> Load | None:
        """Return equal prompts, and answers that may end before the nominal 128 tokens."""
        return _answered(self.setup, (MISTRAL_LIMIT,))


def _answered(setup: Setup, limits: tuple[int, ...]) -> Load | None:
    """Return equal prompts, and answers that end early or at the least of the limits that their mean allows."""
    prompt, output = setup.input_tokens, setup.output_tokens
    limit = next((each for each in limits if output <= each), None)
    if not prompt or not output or not limit:
        return None
    return Load(Fixed(round(prompt)), Ended(output, limit), output)


class Argonne(Recipe):
    """A run of Argonne's scripts (github.com/argonne-lcf/LLM-Inference-Bench, read 2026-11-22)."""

    @property
    def preset(self) -> tuple[str, str]:
        """Name and release of the engine.

        TensorRT-LLM on GH200 is 0.12 (TensorRT-LLM/GH200/run-throughput-bench.sh). Guess: elsewhere it is older than
        0.11. Steps over 16 and 64 sequences of Llama-3-8B and Mixtral grow with their length as if each of a group of
        four query heads read the cache for itself, on A100 and on H100.
        """
        if self.setup.engine == "TensorRT-LLM" and not self.setup.engine_version:
            return self.setup.engine, "0.12" if self.hardware.id.startswith("gh200") else "0.10"
        return super().preset

    @property
    def rules(self) -> dict[str, object]:
        """Identical prompts where all sequences of a batch are one text, decoded alike.

        pipeline.py for DeepSpeed-MII repeats a prompt; that its TensorRT-LLM runs do is a guess: examples/run.py takes
        the best token (top_k 1), and Mixtral on four A100 is faster than reading all experts would be. Its vLLM runs
        draw their prompts.
        """
        return {"identical_prompts": True} if self.setup.engine in ("Deepspeed-MII", "TensorRT-LLM") else {}

    @property
    def first_call_s(self) -> float:
        """Seconds of the first call, which pipeline.py for DeepSpeed-MII times.

        Guess: vLLM on Intel's Max 1550 compiles its kernels then. Latencies of Llama-3-8B and Qwen2-7B grow in a
        straight line from 18 s, at 1 and at 16 sequences, and a second run of a few setups lacks just these.
        """
        if self.setup.client != "LLM-Inference-Bench":
            return 0.0
        if self.setup.engine == "Deepspeed-MII":
            return MII_FIRST_CALL_S
        return FIRST_CALL_S if self.setup.engine == "vLLM" and self.hardware.family == "xe-hpc" else 0.0


class Splitwise(Recipe):
    """A run of Splitwise (arXiv:2311.18677), whose outputs may end before the length asked for."""

    @property
    def output_tokens(self) -> float:
        """Output tokens of each request: those asked for, up to ENDED_TOKENS."""
        return min(self.setup.output_tokens, ENDED_TOKENS)


class RocmImages(Recipe):
    """A run of AMD's images of vLLM: docs/dev-docker/README.md of github.com/ROCm/vllm.

    Its commands with vLLM 0.6.6 and 0.10, and the changelog of its images, read 2026-11-27.
    """

    @property
    def is_v0(self) -> bool:
        """Whether the image runs V0: those before 20250620, the first in which V1 is the default."""
        dates = re.findall(r"20\d\d-\d\d(?:-\d\d)?", self.setup.engine_version)
        return max(dates, default=self.setup.date) < FIRST_V1_IMAGE

    @property
    def preset(self) -> tuple[str, str]:
        """Name and release of the engine: of V0 the preset of these images."""
        return ("vllm-rocm", "0.6") if self.is_v0 else super().preset

    @property
    def rules(self) -> dict[str, object]:
        """`--num-scheduler-steps 10` of V0's runs of throughput; VLLM_V1_USE_PREFILL_DECODE_ATTENTION=1 of V1.

        V1's images set the latter from vLLM 0.10.1 on (changelog of rocm6.4.1_vllm_0.10.1_20250909), its users before.
        """
        if not self.is_v0:
            return {"attention_backend": "rocm"}
        return {"num_scheduler_steps": 10} if self.setup.regime == "offline" else {}

    def limits(self, layout: Layout) -> Limits:
        """Return `--max-num-batched-tokens 131072` of runs of throughput, and `--gpu-memory-utilization 0.9`."""
        return Limits(None, ROCM_TOKENS if self.setup.regime == "offline" else None, 0.9)


class TpuRecipes(Recipe):
    """A run of Google's recipe for Llama 3 on eight chips of Trillium.

    inference/trillium/vLLM/Llama3.x/README.md of github.com/AI-Hypercomputer/tpu-recipes, the commands of `vllm serve`
    and its table of limits, as forks of 2026 hold them, read 2026-11-22.
    """

    @property
    def rules(self) -> dict[str, object]:
        """`--async-scheduling`."""
        return {"async_scheduling": True}

    def limits(self, layout: Layout) -> Limits:
        """Return the table's limits: of 8B; of 70B with prompts longer than outputs, and with others."""
        if "8b" in self.model.id:
            return Limits(128, 1024, TPU_FRACTION)
        return Limits(256, 2048 if self.setup.input_tokens > self.setup.output_tokens else 512, TPU_FRACTION)


class IronwoodRecipes(TpuRecipes):
    """A run of Google's recipe for Qwen3-32B on one chip of Ironwood, all of whose requests are sent at once.

    inference/ironwood/vLLM/Qwen3-32B of github.com/AI-Hypercomputer/tpu-recipes: qwen3_32b-server.yaml, and the
    commands of InferenceX's benchmark_serving.py in README.md, read 2026-11-28. The server of 1,024 in and out differs
    in --max-model-len alone.
    """

    client = "inferencemax"
    random_range_ratio = IRONWOOD_RATIO
    mean_of_nominal = (1 + IRONWOOD_RATIO) / 2
    carries_fp8_cache = True  # --kv-cache-dtype=fp8
    request_count = 320.0  # --num-prompts, as many as --max-concurrency

    def limits(self, layout: Layout) -> Limits:
        """Return `--max-num-seqs=135 --max-num-batched-tokens=4096`, and the share of the memory."""
        return Limits(135, 4096, TPU_FRACTION)


class StrixHaloToolboxes(Recipe):
    """A run of github.com/kyuz0/amd-strix-halo-toolboxes (a copy of its benchmark/run_benchmarks.sh of 2026)."""

    @property
    def rules(self) -> dict[str, object]:
        """Micro-batches where a context precedes the prompt: `-ub 2048` but over Vulkan, else the default of 512."""
        long = self.setup.context_len and "Vulkan" not in self.setup.engine
        return {"micro_batch_tokens": LONG_UBATCH} if long else {}

    def file_format(self, stated: str) -> str:
        """Return ud-q3_K_S for q3_K_S: of MiniMax-M2.7 unsloth has that alone, in three files of 87 GB in all."""
        return f"ud-{stated}" if stated == "q3_K_S" else stated


class DgxSparkBenches(Recipe):
    """A run of ggml-org/llama.cpp benches/dgx-spark.md, whose logs of llama-batched-bench say `n_ubatch = 2048`."""

    @property
    def rules(self) -> dict[str, object]:
        """Micro-batches of a whole batch."""
        return {"micro_batch_tokens": LONG_UBATCH}


class LlmPerfBench(Recipe):
    """A run of github.com/mlc-ai/llm-perf-bench (README.md, read 2026-11-22), which says int4 of each engine's own."""

    @property
    def int4_dtype(self) -> str:
        """Q4_K_M in llama.cpp, q4f16_1 in MLC-LLM, GPTQ and AWQ elsewhere."""
        return {"llama.cpp": "q4_K_M", "MLC-LLM": "mlc-q4f16"}.get(self.setup.engine, super().int4_dtype)
