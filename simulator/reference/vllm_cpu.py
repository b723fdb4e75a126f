"""Real vLLM on a CPU, in an environment of its own, as a step log in our schema: an engine that nobody of us wrote.

Run with that environment's Python and this repository on PYTHONPATH (`make check-vllm`). The recipe is in
docs/reference.md; this module is the only one that imports vllm. vLLM 0.32 looks at every name of every loaded module
when an engine is made and stumbles over llvmlite's, so numba is imported after that: nothing here needs it.
"""

import os
import sys
import time
from collections.abc import Sequence
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

from simulator.reference.miniloads import record  # noqa: E402
from simulator.steplog import LoggedRequest, LoggedStep, Part, StepLog  # noqa: E402
from simulator.workload import Requests  # noqa: E402


class VllmCpu:
    """A vLLM engine whose every scheduling decision is written down."""

    def __init__(self, folder: Path, dtype: str, max_num_seqs: int = 16, max_num_batched_tokens: int = 256) -> None:
        max_model_len, self._dtype = 2048, dtype
        self._llm = LLM(
            model=str(folder),
            dtype=dtype,
            enforce_eager=True,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            enable_prefix_caching=False,
            async_scheduling=False,
            skip_tokenizer_init=True,
        )
        self.engine: Any = self._llm.llm_engine
        core = self.engine.engine_core.engine_core
        self._limits = {
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "num_blocks": core.scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1,
            "block_size": core.vllm_config.cache_config.block_size,
            "admit_full_prompt": 1,
        }
        self._decided: list[tuple[Part, ...]] = []
        decide = core.scheduler.schedule

        def schedule(*given: Any, **named: Any) -> Any:
            decision = decide(*given, **named)
            self._decided.append(_parts(decision))
            return decision

        core.scheduler.schedule = schedule

    def serve(self, requests: Requests, prompts: Sequence[list[int]]) -> StepLog:
        """Serve a workload in real time."""
        first_s, last_s = [0.0] * len(requests), [0.0] * len(requests)
        steps: list[LoggedStep] = []
        sent, origin_s = 0, time.perf_counter()
        while sent < len(requests) or self.engine.has_unfinished_requests():
            now_s = time.perf_counter() - origin_s
            while sent < len(requests) and requests.arrival_s[sent] <= now_s:
                self._send(sent, prompts[sent], int(requests.output_tokens[sent]))
                sent += 1
            if not self.engine.has_unfinished_requests():
                time.sleep(max(0.0, float(requests.arrival_s[sent]) - now_s))
                continue
            self._decided.clear()
            outputs = self.engine.step()
            end_s = time.perf_counter() - origin_s
            steps += [LoggedStep(now_s, end_s - now_s, parts) for parts in self._decided if parts]
            for output in outputs:
                row = int(output.request_id)
                first_s[row] = first_s[row] or end_s
                last_s[row] = end_s
        columns = (requests.arrival_s, requests.prompt_tokens, requests.output_tokens)
        rows = zip(*(each.tolist() for each in columns), first_s, last_s, strict=True)
        return StepLog(
            {"engine": "vllm", "version": vllm.__version__, "dtype": self._dtype},
            self._limits,
            tuple(steps),
            tuple(LoggedRequest(*row) for row in rows),
        )

    def _send(self, row: int, prompt: list[int], output_tokens: int) -> None:
        wanted = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True, detokenize=False)
        self.engine.add_request(str(row), {"prompt_token_ids": prompt}, wanted)


def _parts(decision: Any) -> tuple[Part, ...]:
    """Return what vLLM's scheduler decided: request, new tokens, tokens computed before."""
    past = {each.req_id: each.num_computed_tokens for each in decision.scheduled_new_reqs}
    again = decision.scheduled_cached_reqs
    past |= dict(zip(again.req_ids, again.num_computed_tokens, strict=True))
    # vLLM appends a random suffix to the name of a request
    return tuple(
        Part(int(name.partition("-")[0]), new, past[name]) for name, new in decision.num_scheduled_tokens.items()
    )


def main(folder: str, logs: str, dtype: str, load: str, count: str) -> None:
    """Write the logs of the small loads and of a Poisson load into a folder: `infercast check-log` reads them."""
    record(VllmCpu(Path(folder), dtype).serve, Path(logs), float(load), int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
