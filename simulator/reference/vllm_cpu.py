"""Record real vLLM on a CPU, in an environment of its own, as a StepLog.

Run with that environment's Python and this repository on PYTHONPATH (`make check-vllm`). The recipe is in
docs/reference.md; this module is the only one that imports vllm. vLLM 0.32 looks at every name of every loaded module
when an engine is made and stumbles over llvmlite's, so numba is imported after that: nothing here needs it.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's loop in this process: one step per call
    "VLLM_NO_USAGE_STATS": "1",
}
os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})

import vllm  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402

from simulator.calibration.step_log import StepPart  # noqa: E402
from simulator.reference.adapter import step_log_of  # noqa: E402
from simulator.reference.small_loads import record  # noqa: E402


class VllmCpu:
    """A vLLM engine whose scheduling decisions are recorded, step by step."""

    def __init__(self, folder: Path, dtype: str, max_num_seqs: int = 16, max_num_batched_tokens: int = 256) -> None:
        llm = LLM(
            model=str(folder),
            dtype=dtype,
            enforce_eager=True,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=2048,
            enable_prefix_caching=False,
            async_scheduling=False,
            skip_tokenizer_init=True,
        )
        self._engine: Any = llm.llm_engine
        core = self._engine.engine_core.engine_core
        self.about = {"engine": "vllm", "version": vllm.__version__, "dtype": dtype}
        self.limits = {
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "num_blocks": core.scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1,
            "block_size": core.vllm_config.cache_config.block_size,
            "admit_full_prompt": 1,
        }
        self._decided: tuple[StepPart, ...] = ()
        decide = core.scheduler.schedule

        def schedule(*given: Any, **named: Any) -> Any:
            decision = decide(*given, **named)
            self._decided = _parts(decision)
            return decision

        core.scheduler.schedule = schedule

    def send(self, request: int, prompt: list[int], output_tokens: int) -> None:
        """Queue a request: its number, its prompt's token ids, and the number of tokens to generate."""
        wanted = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True, detokenize=False)
        self._engine.add_request(str(request), {"prompt_token_ids": prompt}, wanted)

    def step(self) -> tuple[tuple[StepPart, ...], list[int]]:
        """Compute one step; return the sequences scheduled for it, and the numbers of the requests that got a token."""
        self._decided = ()
        outputs = self._engine.step()
        return self._decided, [int(output.request_id) for output in outputs]


def _parts(decision: Any) -> tuple[StepPart, ...]:
    """Return the sequences of a decision of vLLM's scheduler: request, new tokens, tokens computed before."""
    past = {each.req_id: each.num_computed_tokens for each in decision.scheduled_new_reqs}
    again = decision.scheduled_cached_reqs
    past |= dict(zip(again.req_ids, again.num_computed_tokens, strict=True))
    # vLLM appends a random suffix to the name of a request
    return tuple(
        StepPart(int(name.partition("-")[0]), new, past[name]) for name, new in decision.num_scheduled_tokens.items()
    )


def main(folder: str, logs: str, dtype: str, load: str, count: str) -> None:
    """Write the logs of the small loads and of a Poisson load into a folder: `infercast check-log` reads them."""
    record(partial(step_log_of, VllmCpu(Path(folder), dtype)), Path(logs), float(load), int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
