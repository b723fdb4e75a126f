"""Host time of an engine that no kernel hides: per step, per sequence, per request."""

import numpy as np
import numpy.typing as npt
from pydantic import Field

from simulator.arrays import Array, Floats
from simulator.models.operations import Counts
from simulator.profile import Figure, Seconds, Source, Strict

NO_TIME = Figure(0.0, Source(text="it is left out, or not known of the engine", date="", evidence="derived"))


class Overheads(Strict):
    """Seconds of an engine's host on a current x86 server.

    A request's time outside the steps is the sum of what it passes, one after the other (`request_parts`): the API
    server takes it in (`http_s`) and splits its text (`prompt_token_s`), it goes to the process of the engine's core
    and its first token back (`hop_s`; in Triton Inference Server through models before and behind it), and the engine's
    own Python (`request_s`). The rest of what a request costs goes with the load: others that the API server takes in
    at the same time (`intake_s`; docs/serving-rules.md, N), and, in the steps, waiting for the step under way, and for
    one more under asynchronous scheduling (H), kernels of a prompt that no graph launches
    (FittedMultipliers.prompt_launch_s), and other sequences' tokens in the front end (`stream_s`; E).

    All are times, measured, fitted or guessed, as the evidence of each says; none is a rule. Where the host launches
    kernels (FittedMultipliers.prompt_launch_s) `step_s` is the sampler's launches, times Hardware.host_slowness; under
    asynchronous scheduling it is what the device does between two graphs, whatever the host.

    `sequence_s` adds to a step, but where the host reads the tokens of one while the next is on the device
    (Engine.hides_sequences; TensorRT-LLM's PyExecutor): there a step takes the device's time, or the host's, launches
    and sequences together, if that is longer, times Hardware.host_slowness.

    `cached_token_s`: vLLM V0 lists the blocks of its sequences anew in each step, Python lists of block numbers that
    the scheduler copies, and into a tensor of block tables. `ranks_s`: ranks of data-parallel attention exchange how
    many prompts and tokens each has, what each has generated (TensorRT-LLM's PyExecutor: tp_allgather and tp_gather
    over MPI). `stream_s`: a front end of one process streams tokens one after the other, behind the engine; it takes as
    long for the tokens that a client receives at once (Engine.stream_interval). `message_s`: what such a token takes if
    it is a message by itself; a front end that falls behind sends several in one, so that only the first waits for the
    messages of all others of its step. `intake_s`: an event loop works on all
    requests that have come, a piece of each in turn, so that those that come together are through when the last is.
    """

    step_s: Seconds = Field(description="each step")
    serial_step_s: Seconds = Field(
        NO_TIME,
        description="each step more without asynchronous scheduling, where `step_s` is of steps with it: the device"
        " waits while tokens are read and the next step is decided",
    )
    sequence_s: Seconds = Field(description="per sequence of a step that gets a token")
    request_s: Seconds = Field(
        description="per request, what no other time says: validation, and what its first step prepares; outside the"
        " steps"
    )
    http_s: Seconds = Field(
        NO_TIME, description="per request, for the API server to take it in and begin its answer; outside the steps"
    )
    hop_s: Seconds = Field(
        NO_TIME, description="per request, to the process of the engine's core and back; outside the steps"
    )
    cached_token_s: Seconds = Field(
        NO_TIME, description="per token that a step's sequences hold in the KV cache, whose blocks are listed anew"
    )
    ranks_s: Seconds = Field(
        NO_TIME, description="each step of data-parallel attention, whose ranks exchange Python objects"
    )
    kernel_s: Seconds = Field(
        NO_TIME, description="per kernel that Python launches by itself (KernelRules.eager_kernels), while devices work"
    )
    stream_s: Seconds = Field(NO_TIME, description="per token that the front end streams; outside the steps")
    message_s: Seconds = Field(
        NO_TIME, description="per sequence of a step whose token is streamed by itself, before a first token is"
    )
    prompt_token_s: Seconds = Field(NO_TIME, description="per token of a prompt, to split its text; outside the steps")
    intake_s: Seconds = Field(
        NO_TIME, description="per other request that reaches the API server at the same time; outside the steps"
    )

    def of_rank(self, ranks: int, host_slowness: float = 1.0, *, ahead: bool = True) -> "Overheads":
        """Return the times of one rank of data-parallel attention, whose process has its own sequences alone.

        `host_slowness`: how many times longer than once on a current x86 server the host takes for a step. `ahead`:
        steps are decided while others run, where the engine can do so (`serial_step_s`).
        """
        each = {"sequence_s": self.sequence_s / ranks, "cached_token_s": self.cached_token_s / ranks}
        serial_s = 0.0 if ahead else self.serial_step_s
        step_s = (self.step_s + serial_s) * host_slowness + (self.ranks_s if ranks > 1 else 0.0)
        return self.model_copy(update={"step_s": step_s, **each})

    def request_parts(self, prompt_tokens: npt.ArrayLike) -> dict[str, Floats]:
        """Return the seconds of requests outside the steps by what takes them, in the order in which it happens.

        float64, of the shape of `prompt_tokens`. Streaming is not among them: it waits for the tokens of others.
        """
        tokens = np.asarray(prompt_tokens, np.float64)
        return {
            "HTTP": self.http_s + 0.0 * tokens,
            "tokenisation": self.prompt_token_s * tokens,
            "hop to the engine and back": self.hop_s + 0.0 * tokens,
            "engine's own": self.request_s + 0.0 * tokens,
        }

    def outside_steps_s(self, prompt_tokens: npt.ArrayLike) -> Floats:
        """Return the seconds of requests outside the steps, by the lengths of their prompts (the same shape)."""
        return np.asarray(sum(self.request_parts(prompt_tokens).values()))

    @property
    def each_s(self) -> Floats:
        """The seconds of `host_s` per step, per sequence and per cached token, shape (3,)."""
        return np.array([self.step_s, self.sequence_s, self.cached_token_s], np.float64)

    def host_s(self, counts: Counts) -> Array:
        """Return the seconds of a step that no kernel hides: step + sequences + cached tokens."""
        cached_s = self.cached_token_s * counts.decode_reads
        return self.step_s * counts.steps + self.sequence_s * counts.logits + cached_s


NO_OVERHEADS = Overheads(step_s=NO_TIME, sequence_s=NO_TIME, request_s=NO_TIME)
"""Of the speed of light."""
