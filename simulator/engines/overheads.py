"""Host time of an engine that no kernel hides: per step, per sequence, per request."""

import numpy as np
import numpy.typing as npt
from pydantic import Field

from simulator.models.operations import Array, Counts
from simulator.profile import Figure, Seconds, Source, Strict

NO_TIME = Figure(0.0, Source(text="it is left out, or not known of the engine", date="", evidence="derived"))


class Overheads(Strict):
    """Seconds of an engine's host on a current x86 server.

    All are times, measured, fitted or guessed, as the evidence of each says; none is a rule.
    """

    step_s: Seconds = Field(
        description="each step; times Hardware.host_slowness where the host launches kernels, here the sampler's"
        " (FittedMultipliers.prompt_launch_s)"
    )
    sequence_s: Seconds = Field(description="per sequence of a step that gets a token")
    request_s: Seconds = Field(description="per request, outside the steps")
    cached_token_s: Seconds = Field(
        NO_TIME,
        description="per token that a step's sequences hold in the KV cache, of an engine that lists their blocks anew"
        " in each step (vLLM V0: Python lists of block numbers, copied by the scheduler and into a tensor)",
    )
    ranks_s: Seconds = Field(
        NO_TIME,
        description="each step where attention is data-parallel, whose ranks exchange Python objects: how many prompts"
        " and tokens each has, what each has generated (TensorRT-LLM's PyExecutor: tp_allgather, tp_gather over MPI)",
    )
    stream_s: Seconds = Field(
        NO_TIME, description="per token that a front end of one process streams, behind the engine: not of the step"
    )
    prompt_token_s: Seconds = Field(NO_TIME, description="per token of a prompt, to split its text; outside the steps")

    def answer_s(self, prompt_tokens: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the seconds of requests outside the steps, by the lengths of their prompts (the same shape)."""
        return self.request_s + self.prompt_token_s * np.asarray(prompt_tokens, np.float64)

    def host_s(self, counts: Counts) -> Array:
        """Return the seconds of a step that no kernel hides: step + sequences + cached tokens."""
        cached_s = self.cached_token_s * counts.decode_reads
        return self.step_s * counts.steps + self.sequence_s * counts.logits + cached_s
