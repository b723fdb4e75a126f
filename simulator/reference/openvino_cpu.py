"""Record openvino-genai's continuous batching on a CPU, in an environment of its own, as a StepLog.

Run with that environment's Python and this repository on PYTHONPATH (docs/reference.md). The pipeline does not say what
a step consists of; it is worked out from the tokens that come (`Progress`), and a run that contradicts it is refused.
4-bit weights stay as they are and activations are int8, so its steps are its own, not those of the other engines.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from simulator.calibration.step_log import StepPart
from simulator.errors import InfercastError
from simulator.reference.adapter import step_log_of
from simulator.reference.small_loads import record

CACHE_GIB, BLOCK_SIZE = 1, 32  # openvino-genai's block size on a CPU
BLOCKS = 2452  # that 1 GiB holds of SmolLM2-135M in u8 with scales, as the library says


class Progress:
    """The steps that dynamic split-fuse takes: one token per decode, prompts in their order share what is left.

    `budget`: tokens per step. `left`: by request its tokens [computed, known, in all].
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.left: dict[int, list[int]] = {}

    def next_step(self) -> list[StepPart]:
        """Return the sequences of the next step."""
        parts, budget = list[StepPart](), self._budget
        for decoding in (True, False):
            for request, (computed, known, _) in self.left.items():
                if (known - computed == 1 and computed > 0) == decoding and budget > 0:
                    parts.append(StepPart(request, min(known - computed, budget), computed))
                    budget -= parts[-1].new_tokens
        return parts

    def advance(self, parts: list[StepPart]) -> set[int]:
        """Advance by a step; return the requests that got a token. Those that got their last are no longer `left`."""
        produced = set()
        for request, new, past in parts:
            state = self.left[request]
            state[0] = past + new
            if state[0] == state[1]:
                state[1] += 1
                produced.add(request)
            if state[1] == state[2]:
                del self.left[request]
        return produced


class OpenvinoCpu:
    """A continuous batching pipeline that is driven step by step."""

    def __init__(self, weights: Path, threads: int, max_num_batched_tokens: int = 256) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GIB
        scheduler.max_num_batched_tokens = max_num_batched_tokens  # split-fuse heeds no number of sequences
        scheduler.dynamic_split_fuse, scheduler.enable_prefix_caching = True, False
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline: Any = genai.ContinuousBatchingPipeline(str(weights), scheduler, "CPU", properties)
        self._progress, self._handles = Progress(max_num_batched_tokens), dict[int, Any]()
        self.about = {"engine": "openvino-genai", "version": genai.__version__}
        self.limits = {
            "max_num_seqs": max_num_batched_tokens,
            "max_num_batched_tokens": max_num_batched_tokens,
            "num_blocks": BLOCKS,
            "block_size": BLOCK_SIZE,
            "admit_full_prompt": 0,
        }

    def send(self, request: int, prompt: list[int], output_tokens: int) -> None:
        """Queue a request: its number, its prompt's token ids, and the number of tokens to generate."""
        wanted = genai.GenerationConfig()
        wanted.max_new_tokens, wanted.ignore_eos, wanted.do_sample = output_tokens, True, False
        tokens = openvino.Tensor(np.array([prompt], dtype=np.int64))
        self._handles[request] = self._pipeline.add_request(request, tokens, wanted)
        self._progress.left[request] = [0, len(prompt), len(prompt) + output_tokens]

    def step(self) -> tuple[list[StepPart], set[int]]:
        """Compute one step; return its sequences by the rules, and the numbers of the requests that got a token.

        Raises InfercastError where tokens came for other requests than the rules say.
        """
        parts = self._progress.next_step()
        self._pipeline.step()
        came = {request for request, handle in self._handles.items() if handle.can_read() and handle.read()}
        if came != self._progress.advance(parts):
            because = f"a step produced tokens for {sorted(came)}, and the adapter's rules say others"
            raise InfercastError("openvino-genai's schedule", because, "Correct the adapter's rules")
        for request in came - self._progress.left.keys():
            del self._handles[request]
        return parts, came


def main(weights: str, logs: str, threads: str, load: str, count: str) -> None:
    """Write the logs of the small loads and of a Poisson load into a folder: `infercast check-log` reads them."""
    record(partial(step_log_of, OpenvinoCpu(Path(weights), int(threads))), Path(logs), float(load), int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
