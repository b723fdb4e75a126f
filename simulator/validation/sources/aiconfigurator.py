"""NVIDIA's runs to test aiconfigurator: sweeps of plain engines, and deployments that it generated itself."""

from simulator.models.layout import Layout
from simulator.validation.sources.recipe import AIPERF_PROMPTS, Limits, Recipe

# Tokens of a step beside one of each sequence and a prompt: in aiconfigurator's rules; for its sweeps of plain
# engines a guess, from a comment there ("+1000 is for holding the largest isl"): with 1,500 two prompts of 1,024
# tokens would share a step, and their TTFT is not that of two.
GENERATED_SPARE, SWEPT_SPARE = 1_500, 1_000
# free_gpu_memory_fraction of its template for TensorRT-LLM 1.0.0rc3 (0.90 in that of 1.2), which its generator calls
# mem_fraction_static in SGLang (backend_config_mapping.yaml): a guess there, by what one H100 kept of 16-bit Qwen3-32B.
SWEPT_FRACTION = 0.80
SWEPT_DRIFT = 8  # tokens by which equal requests of its sweeps of vLLM drift apart, of 1 to 8


class Aiconfigurator(Recipe):
    """A run of NVIDIA's to test aiconfigurator (github.com/ai-dynamo/aiconfigurator)."""

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
        return self.is_tensorrt and bool(self.setup.concurrency)

    @property
    def rules(self) -> dict[str, object]:
        """Whole prompts of TensorRT-LLM, mixed steps of SGLang (`enable_mixed_chunk` in sglang.rule), drift in vLLM.

        TensorRT-LLM captures every batch size (cuda_graph_batch_sizes of rule_plugin/benchmark/trtllm.rule, read
        2026-11-27; that its sweeps do is a guess). Dynamo's front end keeps the waves of generated deployments
        together: a guess. The load generator of its sweeps is not documented; that their requests drift by SWEPT_DRIFT
        was read off their own rows. Dynamo's front end, in Rust and on all cores, stands for as many API servers as
        requests.
        """
        whole: dict[str, object] = {"chunked_prefill": False, "graph_max_batch_size": 0}
        found = whole if self._computes_whole_prompts else {}
        mixed = {"policy": "continuous"} if self._is_generated and self.is_sglang else {}
        drift = {"drift_tokens": 0 if self._is_generated else SWEPT_DRIFT} if self.is_vllm else {}
        dynamo = {"api_server_count": self.setup.concurrency or 1} if self._is_generated and self.is_vllm else {}
        return found | mixed | drift | dynamo

    @property
    def fp8_dtype(self) -> str:
        """What a row calls fp8: of gpt-oss the checkpoint's mxfp4, openai/gpt-oss-120b in the names of its files."""
        return self.model.weight_dtype if self.model.weight_dtype == "mxfp4" else super().fp8_dtype

    @property
    def carries_fp8_cache(self) -> bool | None:
        """Whether its deployments ask for an fp8 KV cache: a guess, by the seconds of their steps.

        The generator sets the format of its kernel tables, else 16 bits; TensorRT-LLM's template is that of the sweeps.
        vLLM's steps leave room for a cache of 8 bits only; SGLang's take 16, by kernels whose rates two models then
        agree about.
        """
        return self.is_tensorrt or (self._is_generated and not self.is_sglang) or None

    def limits(self, layout: Layout) -> Limits:
        """Return the tokens of a TensorRT-LLM step, with room for a whole prompt, and the memory fraction of sweeps."""
        fraction = None if self._is_generated or self.is_vllm else SWEPT_FRACTION
        if not self._computes_whole_prompts:
            return Limits(None, None, fraction)
        spare = GENERATED_SPARE if self._is_generated else SWEPT_SPARE
        return Limits(None, self.setup.concurrency + self.setup.input_tokens + spare, fraction)

    @property
    def _keeps_prompts(self) -> bool:
        """Whether it is vLLM, whose cache keeps prompts (benchmark/bench_run.sh.j2 and k8s_bench.yaml.j2, vllm.rule).

        A guess for TensorRT-LLM: its template does not reuse blocks, its steps fit neither that nor a warm cache.
        """
        return self._is_generated and self.is_vllm

    @property
    def draws_prompts(self) -> bool:
        """As AIPerf before 0.3 (dataset_manager.py of 0.2.0); 0.3 sends them in turn, which fits less: a guess."""
        return self._keeps_prompts

    @property
    def warmup_requests(self) -> int:
        """--warmup-request-count $(($concurrency*2)) of its script."""
        return 2 * self.setup.concurrency if self._keeps_prompts else 0

    @property
    def distinct_prompts(self) -> int:
        """Those of AIPerf; SGLang keeps its prompts only where they share a prefix (disable_prefix_cache)."""
        usual = AIPERF_PROMPTS if self._is_generated and not self.is_sglang else 0
        return super().distinct_prompts or usual
