"""Reference values of optimum-habana's own tests on Gaudi: which options each model runs with, and in which formats."""

from simulator.engines.engine import Engine
from simulator.validation.sources.recipe import Recipe

BUCKET = 128  # tokens: --bucket_size, with --bucket_internal
# `reuse_cache` of MODELS_TO_TEST, by the model's id and the format of its weights; StarCoder's sets a bucket instead
REUSING = {
    *((model, "bf16") for model in ("llama-2-7b", "llama-3-8b", "mistral-7b-v0.1", "codellama-34b", "chatglm2-6b")),
    *((model, "bf16") for model in ("falcon-7b", "falcon-40b", "baichuan2-7b", "qwen1.5-moe-a2.7b")),
    *((model, "fp8") for model in ("falcon-180b", "mistral-7b-v0.2", "mixtral-8x7b", "phi-2")),
}
LOOPING = {("mixtral-8x7b", "fp8"), ("deepseek-v2-lite", "bf16")}
BUCKETS = {("starcoder", "bf16"), ("llama-2-7b", "fp8"), ("llama-2-70b", "fp8"), ("mixtral-8x7b", "fp8")}


class OptimumHabana(Recipe):
    """A reference value of tests/test_text_generation_example.py of github.com/huggingface/optimum-habana.

    The test calls examples/text-generation/run_generation.py (read 2026-11-27, as of March 2025): the time of all
    tokens, prompts and tokenisation included, after three runs that compile.
    """

    @property
    def rules(self) -> dict[str, object]:
        """Return --reuse_cache, --bucket_size and whether all experts are computed, by model and format.

        A row states whether the cache is reused where the test runs a model in both ways. Values of Mixtral in fp8 and
        of DeepSeek-V2-Lite are older than the pull requests (1511, 2024-12; 1677, 2025-01) by which these models call
        torch.ops.hpu.mixture_of_experts, which reads the experts that tokens choose.
        """
        kind = self.model.id, self.setup.weight_dtype
        stated = self.setup.engine_setting("reuse_cache")
        found: dict[str, object] = {}
        if (stated == "true") if stated else self._reuses:
            found["reuse_cache"] = True
        if kind in BUCKETS and self.setup.batch > 1:
            found["bucket_size"] = BUCKET
        if kind in LOOPING:
            found["every_expert"] = True
        return found

    @property
    def _reuses(self) -> bool:
        alone = self.setup.weight_dtype == "fp8" or self.setup.tp <= 1  # in bf16 DeepSpeed's tests ask for nothing
        return alone and (self.model.id, self.setup.weight_dtype) in REUSING

    @property
    def fp8_dtype(self) -> str:
        """Mixtral's experts alone: the allowlist of quantization_config/maxabs_quant_mixtral.json."""
        return "fp8-experts" if self._has_wide_attention else super().fp8_dtype

    def cache_dtype(self, stated: str, weights: str, engine: Engine) -> str:
        """Return 16 bits for Mixtral, whose cache that allowlist leaves out, whatever is stated."""
        return self.model.dtype if self._has_wide_attention else super().cache_dtype(stated, weights, engine)

    @property
    def _has_wide_attention(self) -> bool:
        return self.model.id.startswith("mixtral") and self.setup.weight_dtype == "fp8"
