"""InferenceMAX: benchmarks/ of github.com/SemiAnalysisAI/InferenceX, read 2026-11-21 and 2026-11-22."""

from simulator.lengths import Independent, Uniform
from simulator.measurements import Setup
from simulator.recipes.recipe import Limits, Load, Recipe
from simulator.work import Layout

SHORTEST = 0.8  # both lengths are drawn from [0.8, 1] x nominal (shared/measurements/README.md, pitfall 1)
GRAPH_TOKENS = 2048  # max-cudagraph-capture-size of the scripts for gpt-oss
GATHERED_STEPS = 20  # batch_wait_timeout_iters of the scripts for TensorRT-LLM
AMD_TOKENS = 131_072  # max-num-batched-tokens of the scripts for dense models on AMD's
DENSE_SHARE, GPT_OSS_SHARE = 0.94, 0.95  # gpu-memory-utilization of the same, and of those for gpt-oss
BLACKWELL_SEQS = 512  # max-num-seqs of 70b_fp8_b200_docker.sh and gptoss_fp4_b200*.sh


class InferenceMax(Recipe):
    """A run of InferenceMAX's scripts."""

    @staticmethod
    def wrote(setup: Setup) -> bool:
        """Tell whether a setup is of this source."""
        return "IMX workload" in setup.notes

    @property
    def _is_vllm(self) -> bool:
        return self.setup.engine.lower().startswith("vllm")

    @property
    def _is_dense(self) -> bool:
        return "70b" in self.model.id

    @property
    def _is_gpt_oss(self) -> bool:
        return "gpt-oss" in self.model.id

    @property
    def _is_amd(self) -> bool:
        return self.hardware.vendor == "AMD"

    @property
    def _is_roomy(self) -> bool:
        """Whether it is TensorRT-LLM without chunked prefill, its default: a step has room for the longest request."""
        return self.setup.engine.startswith("TensorRT") and (self._is_dense or self._is_gpt_oss)

    @property
    def decides_ahead(self) -> bool:
        """Whether it is vLLM: `--async-scheduling`, its default from 0.14 on, is set before.

        70b_fp8_{h100,h200,mi300x,mi325x}_slurm.sh, 70b_fp8_b200_docker.sh and gptoss_fp4_*.sh; that the other scripts
        do is a guess.
        """
        return self._is_vllm

    @property
    def rules(self) -> dict[str, object]:
        """Whole prompts where steps are roomy; graphs and all-reduces of vLLM.

        Larger graphs by gptoss_fp4_{h100,h200,b200}.sh, graphs of decodes alone by 70b_fp8_b200_docker.sh
        (FULL_DECODE_ONLY, no splitting ops), all-reduces in 4 bits by 70b_fp8_mi300x_*.sh and gptoss_fp4_mi300x*.sh;
        those of MI325X do not ask for them.
        """
        if self._is_roomy:
            return {"chunked_prefill": False}
        if not self._is_vllm:
            return {}
        if self._is_gpt_oss and not self._is_amd:
            return {"graph_tokens": GRAPH_TOKENS, "graph_tokens_per_seq": 0}
        if self._is_dense and self.hardware.family == "blackwell":
            return {"graph_tokens": 0}
        quick = (self._is_dense or self._is_gpt_oss) and self.hardware.id == "mi300x"
        return {"quick_reduce": True} if quick else {}

    @property
    def carries_fp8_cache(self) -> bool | None:
        """As the scripts ask: on Blackwell, and elsewhere for dense checkpoints, quantised from 16 bits."""
        if self.model.weight_dtype == "mxfp4":
            return self.hardware.family == "blackwell"
        return "fp8" not in self.model.weight_dtype or self.hardware.family == "blackwell" or None

    def limits(self, layout: Layout) -> Limits:
        """Return `--max-num-seqs $CONC` of vLLM, and what else is not the engine's default."""
        if self._is_roomy:  # for a dense model its longest context
            longest = self.setup.input_tokens + self.setup.output_tokens + 200
            return Limits(None, longest if self._is_dense else 20_000)
        if not self._is_vllm:
            return Limits()
        if self._is_gpt_oss and self._is_amd:
            return Limits(memory_fraction=GPT_OSS_SHARE)
        if self._is_dense and self._is_amd:
            return Limits(self.setup.concurrency, AMD_TOKENS, DENSE_SHARE)
        if self.hardware.family == "blackwell" and (self._is_dense or self._is_gpt_oss):
            return Limits(BLACKWELL_SEQS)
        return Limits(self.setup.concurrency)

    def load(self) -> Load | None:
        """Return lengths that are drawn from a range below the nominal ones."""
        prompt, output = self.setup.input_tokens, self.setup.output_tokens
        if not prompt or not output:
            return None
        low = [max(1, round(SHORTEST * each)) for each in (prompt, output)]
        return Load(Independent(Uniform(low[0], round(prompt)), Uniform(low[1], round(output))), 0.9 * output)

    @property
    def gathered_steps(self) -> int:
        """batch_wait_timeout_iters: 70b_*_trt_slurm.sh set it for 1,024 tokens each way on less than 8 devices.

        One of these steps a prompt waits for in any case, until it ends.
        """
        lengths = self.setup.input_tokens, self.setup.output_tokens
        asked = self._is_dense and self._is_roomy
        return GATHERED_STEPS - 1 if asked and lengths == (1024, 1024) and self.setup.tp < 8 else 0


class MiniMaxScripts(InferenceMax):
    """A run of minimaxm2.5_fp{8,4}_{h100,h200,b200}.sh, whose options changed with the release of vLLM.

    The scripts of 2026-03 and 2026-04 were read on 2026-11-22; perf-changelog.yaml says when each change came. B300
    runs those of B200.
    """

    @staticmethod
    def wrote(setup: Setup) -> bool:
        """Tell whether a setup is of these scripts."""
        return InferenceMax.wrote(setup) and "minimax" in setup.model.lower()

    @property
    def _is_tuned(self) -> bool:
        """Whether it is on Blackwell with a release of 2026-04: larger graphs, two prompts a step, an fp8 cache."""
        return self.hardware.family == "blackwell" and self.setup.engine_version.startswith("0.19")

    @property
    def rules(self) -> dict[str, object]:
        """--max-cudagraph-capture-size 2048."""
        return {"graph_tokens": GRAPH_TOKENS, "graph_tokens_per_seq": 0} if self._is_tuned else {}

    @property
    def carries_fp8_cache(self) -> bool | None:
        """--kv-cache-dtype fp8; NVIDIA's checkpoints in fp4 ask for it themselves."""
        return self._is_tuned or "fp8" not in self.setup.weight_dtype or None

    def limits(self, layout: Layout) -> Limits:
        """--max-num-seqs, --max-num-batched-tokens and --gpu-memory-utilization."""
        if self._is_tuned:
            return Limits(None, 2 * self.setup.input_tokens, 0.90)
        if self.setup.engine_version.startswith("nightly"):
            return Limits(self.setup.concurrency, None, 0.90)
        if self.hardware.id.startswith("h100"):
            return Limits(256, None, 0.90)
        return Limits(None, None, 0.95)
