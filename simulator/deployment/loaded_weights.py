"""What an engine loads beside the language model's own weights, and what it profiles with them."""

from simulator.deployment.deployment import Deployment
from simulator.models.vision import VisionEncoder


def vision_of(deployment: Deployment) -> VisionEncoder | None:
    """Return the vision encoder that is loaded: none where the engine or the user leaves it out."""
    loaded = deployment.engine.memory.loads_vision and not deployment.settings.language_model_only
    return deployment.model.vision if loaded else None


def vision_bytes(deployment: Deployment) -> float:
    """Return the bytes of the vision encoder on each device."""
    vision = vision_of(deployment)
    return vision.weight_bytes(deployment.layout.tp) if vision else 0.0


def encoder_peak_bytes(deployment: Deployment) -> float:
    """Return the bytes of the largest batch of images, which vLLM profiles: those of max_num_batched_tokens.

    vLLM 0.33.0, multimodal/encoder_budget.py: the budget is the larger of max_num_batched_tokens and one image.
    """
    vision = vision_of(deployment)
    tokens = deployment.max_num_batched_tokens // deployment.layout.dp
    return vision.peak_bytes(tokens, deployment.layout.tp) if vision else 0.0


def padding_bytes(deployment: Deployment) -> float:
    """Return the bytes by which padding makes experts larger on each device (KernelRules.expert_padding).

    gpt-oss has 2,880 columns both ways, which become 3,072 and 2,944: 9 % more. vLLM logs 65.97 GiB for gpt-oss-120b in
    Marlin on one H100 (vllm-project/vllm issue 23278), of which this is 5.1. On B200 they become 3,072 both ways in
    releases before 0.33.
    """
    kernels = deployment.kernels
    added = (
        (kernels.padded(op).expert_bytes - op.expert_bytes) * op.experts.total * op.repeats
        for op in deployment.ops
        if op.experts is not None and not op.on_host
    )
    return sum(added, 0.0) / deployment.layout.pp


def loaded_bytes(deployment: Deployment) -> float:
    """Return the bytes of one device's weights of all kinds: the model's, a draft's, adapters', an encoder's."""
    layout, part = deployment.layout, deployment.device_part
    own = layout.weight_bytes(part.weights(layout)) - deployment.settings.offload.weight_bytes
    others = deployment.draft.weight_bytes + deployment.adapter_bytes
    return own + others + padding_bytes(deployment) + vision_bytes(deployment)
