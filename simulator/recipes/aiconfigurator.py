"""NVIDIA's runs to test aiconfigurator: sweeps of plain engines, and deployments that it generated itself."""

from simulator.measurements import Setup
from simulator.recipes.recipe import AIPERF_PROMPTS, Limits, Recipe
from simulator.work import Layout

# Tokens of a step beside one of each sequence and a prompt: in aiconfigurator's rules; for its sweeps of plain
# engines a guess, from a comment there ("+1000 is for holding the largest isl"): with 1,500 two prompts of 1,024
# tokens would share a step, and their TTFT is not that of two.
GENERATED_SPARE, SWEPT_SPARE = 1_500, 1_000
SWEPT_FRACTION = 0.80  # free_gpu_memory_fraction of its template for TensorRT-LLM 1.0.0rc3 (0.90 in that of 1.2)


class Aiconfigurator(Recipe):
    """A run of NVIDIA's, to test aiconfigurator."""

    @staticmethod
    def wrote(setup: Setup) -> bool:
        """Tell whether a setup is of this source."""
        return "AIC run" in setup.notes

    @property
    def _is_generated(self) -> bool:
        """Whether its own deployment and AIPerf script made the run: their lengths are in thousands.

        Its sweeps of plain engines have lengths of powers of two.
        """
        return self.setup.input_tokens % 1000 == 0

    @property
    def _computes_whole_prompts(self) -> bool:
        """Whether it is TensorRT-LLM without chunked prefill, its default (rule_plugin/trtllm.rule, read 2026-11-22).

        An older generator says so in a comment.
        """
        return self.setup.engine.startswith("TensorRT") and bool(self.setup.concurrency)

    @property
    def _is_sglang(self) -> bool:
        return self.setup.engine.lower().startswith("sglang")

    @property
    def rules(self) -> dict[str, object]:
        """Whole prompts of TensorRT-LLM, and mixed steps of SGLang (`enable_mixed_chunk` in sglang.rule)."""
        found: dict[str, object] = {"chunked_prefill": False} if self._computes_whole_prompts else {}
        mixed = {"policy": "continuous"} if self._is_generated and self._is_sglang else {}
        return found | mixed

    @property
    def fp8_dtype(self) -> str:
        """Qwen/Qwen3-32B-FP8, whose scales are of blocks (tools/automation/README.md), stands for Qwen3: a guess."""
        return "fp8-block" if self.model.id.startswith("qwen3") else super().fp8_dtype

    @property
    def carries_fp8_cache(self) -> bool | None:
        """Whether its deployments ask for it: a guess, by what their steps take.

        The generator sets the format of its kernel tables, else 16 bits. vLLM's steps leave room for one of 8 bits
        only; SGLang's take 16, by kernels whose rates two models then agree about.
        """
        return (self._is_generated and not self._is_sglang) or None

    def limits(self, layout: Layout) -> Limits:
        """Return the tokens of a step that has room for one whole prompt."""
        if not self._computes_whole_prompts:
            return Limits()
        spare, fraction = (GENERATED_SPARE, None) if self._is_generated else (SWEPT_SPARE, SWEPT_FRACTION)
        return Limits(None, self.setup.concurrency + self.setup.input_tokens + spare, fraction)

    @property
    def distinct_prompts(self) -> int:
        """Those of AIPerf; SGLang keeps its prompts only where they share a prefix (disable_prefix_cache)."""
        usual = AIPERF_PROMPTS if self._is_generated and not self._is_sglang else 0
        return super().distinct_prompts or usual
