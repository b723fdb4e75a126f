"""Memory of one device that a step needs for its duration: activations, logits, a batch of images."""

from dataclasses import dataclass

from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import encoder_peak_bytes


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes that are alive at once in the widest op, in the sampler, and in the vision encoder, one after the other.

    `peak_bytes`: of the step or its sampler beside these, as measured.
    """

    activation_bytes: float
    sampler_bytes: float
    peak_bytes: float
    image_bytes: float

    @property
    def bytes(self) -> float:
        """The largest of the peaks: what an engine sets aside."""
        return max(max(self.activation_bytes, self.sampler_bytes) + self.peak_bytes, self.image_bytes)

    @property
    def peak(self) -> str:
        """What needs it: images, sampler or activations."""
        if self.image_bytes == self.bytes:
            return "images"
        return "sampler" if self.sampler_bytes > self.activation_bytes else "activations"


def workspace(deployment: Deployment) -> Workspace:
    """Return the workspace of a full step on one device."""
    return Workspace(
        activation_bytes=_activation_bytes(deployment),
        sampler_bytes=_sampler_bytes(deployment),
        peak_bytes=float(deployment.engine.memory.peak_bytes),
        image_bytes=encoder_peak_bytes(deployment),
    )


def _activation_bytes(deployment: Deployment) -> float:
    """Return the bytes of activations alive at once in the widest op of a full step, with the residual beside them.

    Engines hold the inputs and outputs of both GEMMs of routed experts at once (vLLM: intermediate_cache1 to 3).
    """
    gemms = [op for op in deployment.ops if op.experts is not None and op.rate == "gemm"]
    routed = sum({op.name: float(op.activation_bytes.tokens) for op in gemms}.values())
    widest = max(routed, *(float(op.activation_bytes.tokens) for op in deployment.ops))
    residual = 2 * deployment.model.hidden * deployment.layout.activation_bytes / deployment.layout.dp
    tokens = deployment.max_num_batched_tokens
    return min(tokens, deployment.engine.micro_batch_tokens or tokens) * (widest + residual)


def _sampler_bytes(deployment: Deployment) -> float:
    """Return the bytes of fp32 logits in the sampler: rows x vocabulary x 4 x copies."""
    rows = deployment.max_num_seqs // deployment.layout.dp * (1 + deployment.draft_tokens)
    return rows * deployment.model.vocab * 4 * deployment.engine.memory.logit_copies
