"""InferenceMAX: benchmarks/ of github.com/SemiAnalysisAI/InferenceX, read 2026-11-21 and 2026-11-22."""

from simulator.engines.engine import release_of
from simulator.errors import NotModelledError
from simulator.models.layout import Layout
from simulator.validation.sources.recipe import Limits, Load, Recipe

SHORTEST = 0.8  # both lengths are drawn from [0.8, 1] x nominal (random-range-ratio 0.8 of benchmark_serving.py)
GRAPH_TOKENS = 2048  # max-cudagraph-capture-size, and cuda-graph-sizes before, of the scripts for gpt-oss and MiniMax
LARGER_GRAPHS: dict[str, object] = {
    "graph_tokens": GRAPH_TOKENS,
    "graph_tokens_per_seq": 0,
    "decode_graph_tokens": GRAPH_TOKENS,
}
FUSED_NORMS: dict[str, object] = {"fuse_allreduce_rms": True}
MOST_TP = 8  # of its scripts for one engine; those for several nodes split prompts from decodes
STREAM_INTERVAL, GPT_OSS_STREAM_INTERVAL = 10, 20  # stream_interval of TensorRT-LLM: {70b,dsr1}_*_trt_*.sh; gptoss_*
TRTLLM_GRAPHS, DENSE_TRTLLM_GRAPHS = 512, 1024  # cuda_graph_config.max_batch_size: dsr1_fp4_b200_trt_*.sh; 70b_*_trt_*
BLACKWELL_SEQS = 512  # max-num-seqs of 70b_fp{4,8}_b200_docker.sh and gptoss_fp4_b200*.sh


class InferenceMax(Recipe):
    """A run of InferenceMAX's scripts; scripts that were read for a model have a subclass."""

    client = "inferencemax"  # its own benchmark_serving.py
    random_range_ratio = SHORTEST  # --random-range-ratio 0.8: both lengths are drawn from 0.8 x nominal to nominal
    mean_of_nominal = (1 + SHORTEST) / 2

    @property
    def release(self) -> tuple[int, ...]:
        """The release of vLLM; () where none is stated."""
        return release_of("vllm", self.setup.engine_version)

    @property
    def is_amd(self) -> bool:
        """Whether the device is AMD's."""
        return self.hardware.vendor == "AMD"

    @property
    def is_blackwell(self) -> bool:
        """Whether the device is of NVIDIA's Blackwell generation."""
        return self.hardware.family == "blackwell"

    @property
    def decides_ahead(self) -> bool:
        """Whether it is vLLM: `--async-scheduling`, its default from 0.14 on, is set in older releases.

        70b_fp8_{h100,h200,mi300x,mi325x}_slurm.sh, 70b_fp{4,8}_b200_docker.sh and gptoss_fp4_*.sh; that the other
        scripts do is a guess.
        """
        return self.is_vllm

    @property
    def rules(self) -> dict[str, object]:
        """TensorRT-LLM streams ten tokens at once, and fills up its graphs, as in all its scripts (enable_padding).

        In vLLM 0.17.1 and later all-reduces norm by default on NVIDIA, which the preset 0.14 does not know.
        """
        if self.is_tensorrt:
            graphs = {"graph_max_batch_size": TRTLLM_GRAPHS, "graph_padding": True}
            return {"stream_interval": STREAM_INTERVAL, **graphs}
        return FUSED_NORMS if self.is_vllm and not self.is_amd and self.release >= (0, 17, 1) else {}

    @property
    def carries_fp8_cache(self) -> bool | None:
        """On Blackwell, and elsewhere for checkpoints that were not published in fp8: a guess."""
        return "fp8" not in self.model.weight_dtype or self.is_blackwell or None

    def limits(self, layout: Layout) -> Limits:
        """Return `--max-num-seqs $CONC` of vLLM."""
        return Limits(self.setup.concurrency if self.is_vllm else None)

    def load(self) -> Load | None:
        """Refuse a tensor degree that is the sum of a disaggregated run's engines; None otherwise.

        aiconfigurator's tables, from which these rows come, call such degrees odd and likely a disaggregated total.
        """
        if self.setup.tp > MOST_TP and self.setup.dp <= 1:
            because = f"its scripts give one engine up to {MOST_TP} devices: it is a disaggregated run's total"
            raise NotModelledError(f"tp {self.setup.tp} in InferenceMAX", because, "State the engines, or leave it out")
        return super().load()


class DenseScripts(InferenceMax):
    """A run of 70b_fp{4,8}_*.sh, of 2025-10: vLLM 0.10.2 (0.10.1 on AMD's) and TensorRT-LLM 1.1.0rc2.

    Llama left the runs then (pull request 149 of the repository). TensorRT-LLM's step has room for 16,384 tokens in
    70b_fp4_b200_trt_docker.sh, the last of its scripts, and in all that were forked after the repository opened.
    """

    carries_fp8_cache = True  # --kv-cache-dtype fp8

    @property
    def rules(self) -> dict[str, object]:
        """Whole prompts in TensorRT-LLM; all-reduces in 4 bits on AMD's; CUDA graphs of decodes alone on Blackwell.

        There all-reduces norm, too. Graphs and norms: FULL_DECODE_ONLY, no splitting ops, enable_fi_allreduce_fusion
        (read 2026-11-28). All-reduces in 4 bits: VLLM_ROCM_QUICK_REDUCE_QUANTIZATION in 70b_fp8_mi300x_*.sh and
        70b_fp4_mi355x_slurm.sh, not in the other scripts for AMD. Attention: AMD's images of vLLM 0.10.1 set
        VLLM_V1_USE_PREFILL_DECODE_ATTENTION (their changelog).
        """
        if self.is_tensorrt:
            return {"chunked_prefill": False} | super().rules | {"graph_max_batch_size": DENSE_TRTLLM_GRAPHS}
        if self.is_amd:
            is_fp4 = "fp4" in self.setup.weight_dtype
            return {"quick_reduce": self.hardware.id == "mi300x" or is_fp4, "attention_backend": "rocm"}
        return {"graph_tokens": 0, **FUSED_NORMS} if self.is_blackwell else {}

    def limits(self, layout: Layout) -> Limits:
        """Return vLLM's --max-num-{seqs,batched-tokens}, --gpu-memory-utilization; TensorRT-LLM's --max_num_tokens."""
        if self.is_tensorrt:
            return Limits(None, 16_384)
        if self.is_amd:
            return Limits(self.setup.concurrency, 131_072, 0.94)
        return Limits(BLACKWELL_SEQS) if self.is_blackwell else super().limits(layout)

    @property
    def gathered_steps(self) -> int:
        """batch_wait_timeout_iters: 70b_*_trt_slurm.sh set 20 for 1,024 tokens each way on less than 8 devices.

        A prompt waits for one of these steps in any case, until it ends.
        """
        lengths = self.setup.input_tokens, self.setup.output_tokens
        return 20 - 1 if self.is_tensorrt and lengths == (1024, 1024) and self.setup.tp < 8 else 0


class GptOssScripts(InferenceMax):
    """A run of gptoss_fp4_*.sh, from vLLM 0.10.2 in 2025-10 to 0.18 in 2026-04, and of TensorRT-LLM from 1.1 to 1.3.

    perf-changelog.yaml says when options came. Piecewise graphs without attention (PIECEWISE, vLLM 0.10.2 and 0.11.0)
    count as whole graphs.
    """

    @property
    def rules(self) -> dict[str, object]:
        """Whole prompts in TensorRT-LLM, 20 tokens streamed at once; larger CUDA graphs on NVIDIA; 4-bit sums on AMD.

        TensorRT-LLM's graphs end at $CONC sequences (cuda_graph_config.max_batch_size of gptoss_fp4_*_trt*.sh).
        VLLM_ROCM_QUICK_REDUCE_QUANTIZATION is INT4 on MI300X, from vLLM 0.17 on (pull request 889) on the others too.
        VLLM_MXFP4_USE_MARLIN=1 in gptoss_fp4_h{100,200}.sh, which came with vLLM 0.13 (AGENTS.md), and
        fuse_allreduce_rms in gptoss_fp4_b200.sh (read 2026-11-28).
        """
        if self.is_tensorrt:
            own = {"stream_interval": GPT_OSS_STREAM_INTERVAL, "graph_max_batch_size": self.setup.concurrency}
            return {"chunked_prefill": False} | super().rules | own
        if self.is_amd:
            return {"quick_reduce": self.hardware.id == "mi300x" or self.release >= (0, 17)}
        if not self.is_vllm:
            return {}
        marlin = {"moe_backend": "marlin"} if self.release >= (0, 13) and not self.is_blackwell else {}
        return super().rules | LARGER_GRAPHS | marlin | (FUSED_NORMS if self.is_blackwell else {})

    @property
    def carries_fp8_cache(self) -> bool | None:
        """On Blackwell; in vLLM from 0.11.2 on (pull request 273).

        That rows of 2025-11 without a release are of 0.11.0 is a guess.
        """
        dated_early = not self.setup.engine_version and "" < self.setup.date < "2025-12"
        is_early = () < self.release < (0, 11, 1) or dated_early
        return self.is_blackwell and not (self.is_vllm and is_early)

    def limits(self, layout: Layout) -> Limits:
        """Return --max-num-seqs, --gpu-memory-utilization; TensorRT-LLM's --max_num_tokens and the cache's share."""
        if self.is_tensorrt:
            return Limits(None, 20_000, 0.85)
        if self.is_amd:
            return Limits(memory_fraction=0.95)
        return Limits(BLACKWELL_SEQS) if self.is_blackwell else super().limits(layout)


class MiniMaxScripts(InferenceMax):
    """A run of minimaxm2.5_fp{8,4}_{h100,h200,b200}.sh, whose options changed with the release of vLLM.

    The scripts of 2026-03 and 2026-04 were read on 2026-11-22; perf-changelog.yaml says when each change came. B300
    runs the scripts of B200.
    """

    @property
    def _is_tuned(self) -> bool:
        """Whether it is on Blackwell with a release of 2026-04: larger graphs, two prompts a step, an fp8 KV cache."""
        return self.is_blackwell and self.release[:2] == (0, 19)

    @property
    def rules(self) -> dict[str, object]:
        """--max-cudagraph-capture-size 2048, whatever max_num_seqs is."""
        return super().rules | (LARGER_GRAPHS if self._is_tuned else {})

    @property
    def carries_fp8_cache(self) -> bool | None:
        """--kv-cache-dtype fp8; NVIDIA's checkpoints in fp4 ask for it themselves."""
        return self._is_tuned or "fp8" not in self.setup.weight_dtype or None

    def limits(self, layout: Layout) -> Limits:
        """Return --max-num-seqs, --max-num-batched-tokens and --gpu-memory-utilization."""
        if self._is_tuned:
            return Limits(None, 2 * self.setup.input_tokens, 0.90)
        if self.setup.engine_version.startswith("nightly"):
            return Limits(self.setup.concurrency, None, 0.90)
        if self.hardware.id.startswith("h100"):
            return Limits(256, None, 0.90)
        return Limits(None, None, 0.95)


class QwenScripts(InferenceMax):
    """A run of qwen3.5_{bf16,fp8}_{b200,b300,h200}.sh in SGLang (read 2026-11-28).

    That fp4 has the options of fp8, and B300 those of B200 in 16 bits, is a guess.
    """

    @property
    def _is_wide(self) -> bool:
        """Whether it is the script for 16 bits."""
        return self.setup.weight_dtype == "bf16"

    @property
    def rules(self) -> dict[str, object]:
        """--disable-radix-cache and --stream-interval; on Blackwell --scheduler-recv-interval."""
        interval = 30 if self._is_wide and self.setup.concurrency >= 16 else 10
        polls = {"scheduler_recv_interval": interval} if self.is_blackwell else {}
        return {"prefix_caching": False, "stream_interval": 30 if self._is_wide else 50, **polls}

    @property
    def carries_fp8_cache(self) -> bool | None:
        """--kv-cache-dtype fp8_e4m3, but in 16 bits."""
        return not self._is_wide

    def limits(self, layout: Layout) -> Limits:
        """Return --max-running-requests, --chunked-prefill-size and --mem-fraction-static."""
        if self._is_wide:
            return Limits(128, 32_768, 0.82)
        return Limits(self.setup.concurrency if self.is_blackwell else 128, 16_384, 0.8)
