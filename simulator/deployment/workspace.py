"""Memory of one device that a step needs for its duration: activations, logits, a batch of images."""

from dataclasses import dataclass
from math import ceil

from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import encoder_peak_bytes

# fp32 copies of the logits in FlashInfer's sampler: those in 16 bits (half), in fp32, masked and their probabilities
# (vLLM 0.11.0 flashinfer_sample, flashinfer.sampling.top_k_top_p_sampling_from_logits)
FLASHINFER_COPIES = 3.5


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes that are alive at once in the widest op, in the sampler, and in the vision encoder, one after the other.

    `peak_bytes`: of the step or its sampler beside these, as measured. `keeps_sampler`: the sampler's buffers are
    allocated once, beside those of the activations.
    """

    activation_bytes: float
    sampler_bytes: float
    peak_bytes: float
    image_bytes: float
    keeps_sampler: bool = False

    @property
    def bytes(self) -> float:
        """The largest of the peaks: what an engine sets aside."""
        both = self.activation_bytes, self.sampler_bytes
        return max((sum(both) if self.keeps_sampler else max(both)) + self.peak_bytes, self.image_bytes)

    @property
    def peak(self) -> str:
        """What needs it: images, sampler or activations."""
        if self.image_bytes == self.bytes:
            return "images"
        return "sampler" if self.sampler_bytes > self.activation_bytes else "activations"


def workspace(deployment: Deployment) -> Workspace:
    """Return the workspace of a full step on one device.

    Where an engine's graphs keep a step of their own (`held_by_graphs`), the step that it measures holds prompts alone,
    whose few rows of logits are not counted.
    """
    held, tokens = deployment.engine.memory.graphs_hold_step, deployment.max_num_batched_tokens
    return Workspace(
        activation_bytes=min(tokens, deployment.engine.micro_batch_tokens or tokens) * _token_bytes(deployment),
        sampler_bytes=0.0 if held else _sampler_bytes(deployment, deployment.max_num_seqs // deployment.layout.dp),
        peak_bytes=float(deployment.engine.memory.peak_bytes),
        image_bytes=encoder_peak_bytes(deployment),
        keeps_sampler=deployment.engine.memory.keeps_sampler,
    )


def held_by_graphs(deployment: Deployment) -> float:
    """Return the bytes of activations and logits that captured graphs keep beside those of a step without a graph.

    Those of the largest captured batch. TensorRT-LLM captures graphs into one pool of memory before it measures what is
    free for the cache, and again afterwards. While it measures, the cache has room for max_num_tokens on each rank, of
    all ranks' prompts: if that has fewer blocks than the largest batch has sequences, no graph is captured and none is
    counted (NVIDIA/TensorRT-LLM _torch/pyexecutor/model_engine.py, _capture_generation_cuda_graphs; _util.py,
    KvCacheCreator; modules/logits_processor.py: logits in the model's type and in fp32; read 2026-11-28). 128 rows by
    default, six bytes for each of 128,256 logits, and activations:

    >>> from simulator.deployment.deployment import deploy
    >>> round(held_by_graphs(deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm")) - 128 * 128_256 * 6, -6)
    13000000.0
    """
    sizes = deployment.graphs.batch_sizes
    if not deployment.engine.memory.graphs_hold_step or not sizes:
        return 0.0
    rows = max(sizes) // deployment.layout.dp // (1 + deployment.draft_tokens)
    if rows > ceil(deployment.max_num_batched_tokens / int(deployment.engine.block_size)):
        return 0.0
    return max(sizes) * _token_bytes(deployment) + _sampler_bytes(deployment, rows)


def _token_bytes(deployment: Deployment) -> float:
    """Return the bytes per token of activations alive at once in the widest op, with the residual beside them."""
    whole = (float(op.activation_bytes.tokens) for op in deployment.ops if op.experts is None)
    widest = max(_routed_bytes(deployment), *whole)
    residual = 2 * deployment.model.hidden * deployment.layout.activation_bytes / deployment.layout.dp
    return widest + residual


def _routed_bytes(deployment: Deployment) -> float:
    """Return the bytes per token of routed experts: the outputs of either GEMM, in one buffer, and of the activation.

    k (max(2 m, h) + m) numbers for k experts of m columns (vLLM 0.33.0, fused_moe.py and experts/marlin_moe.py:
    intermediate_cache13 is shared, intermediate_cache2); the first GEMM reads its k inputs in place.

    Where it sorts copies of them (KernelRules.sorts_inputs) they lie where the second GEMM's outputs of h columns find
    room, too, and those of the first GEMM in another buffer. A rank has room for all k copies of every token, its own
    experts' or not, because which it gets is known on the device alone (NVIDIA/TensorRT-LLM moe_kernels.cu,
    getWorkspaceDeviceBufferSizes: num_moe_inputs = experts_per_token * num_rows, read 2026-11-27).
    """
    gemms = [op for op in deployment.ops if op.experts is not None and op.rate == "gemm"]
    kernels, most = deployment.kernels, 0.0
    for up, down in zip(gemms[::2], gemms[1::2], strict=True):
        inputs = down.columns  # of the first GEMM: what the second one puts out
        number = float(up.activation_bytes.tokens) / (inputs + up.columns)  # bytes of one column of all chosen experts
        middle = float(down.activation_bytes.tokens) / number - down.columns
        columns = max(up.columns, down.columns) + middle
        if (kernels.own_experts(up) or kernels.rules).sorts_inputs:
            number = deployment.layout.activation_bytes * up.experts.chosen  # type: ignore[union-attr]
            columns = down.columns + max(up.columns, down.columns)
        most = max(most, number * columns)
    return most


def _sampler_bytes(deployment: Deployment, seqs: int) -> float:
    """Return the bytes of fp32 logits in the sampler, rows x vocabulary x 4 x copies, and what else sequences have."""
    rule = deployment.engine.memory
    copies = float(rule.logit_copies)
    if deployment.settings.flashinfer_sampler:
        copies = min(copies, FLASHINFER_COPIES)
    logits = deployment.model.vocab * 4 * copies * (1 + deployment.draft_tokens)
    return seqs * (logits + rule.sequence_bytes)
