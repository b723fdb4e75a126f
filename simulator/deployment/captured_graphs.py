"""Which steps with prompts SGLang captures as CUDA graphs in pieces."""

from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout
from simulator.models.model import Model

QWEN_3 = "qwen3-"  # how the names of its mixtures of experts begin: Qwen3MoeForCausalLM


def captures_pieces(model: Model, hardware: Hardware, layout: Layout) -> bool:
    """Tell whether SGLang captures steps with prompts in pieces; without drafts and adapters, with which it does not.

    Nor on devices of others than NVIDIA, with stages, data-parallel attention, vision encoders, sparse attention,
    gated DeltaNet, and where `has_trtllm_experts`: _handle_piecewise_cuda_graph and _handle_moe_kernel_config of
    server_args.py, piecewise_cuda_graph_disabled_model_archs of model_config.py, sglang 0.5.10.post1 (read 2026-11-27).
    """
    sparse = model.latent is not None and model.latent.indexer is not None
    delta = any(block.mixer is not None and block.mixer.kind == "gated_delta_net" for block in model.blocks.values())
    plain = model.vision is None and not sparse and not delta and layout.pp == 1 and layout.dp == 1
    return plain and hardware.vendor == "NVIDIA" and not has_trtllm_experts(model, hardware, layout)


def has_trtllm_experts(model: Model, hardware: Hardware, layout: Layout) -> bool:
    """Tell whether SGLang's experts are TensorRT-LLM's kernels, in FlashInfer, by default (`flashinfer_trtllm`).

    On data-center Blackwell: DeepSeek's and Kimi's in fp8 and nvfp4, Qwen 3's in 16 bits, too
    (_handle_model_specific_adjustments of server_args.py, sglang 0.5.10.post1, read 2026-11-27). Those of gpt-oss are
    another choice (`flashinfer_mxfp4`).

    >>> from simulator.deployment.layouts import default_layout
    >>> from simulator.hardware.hardware import load_hardware
    >>> from simulator.models.model import load_model
    >>> model = load_model("deepseek-v3")
    >>> layout = default_layout(model, tp=8)
    >>> [has_trtllm_experts(model, load_hardware(device), layout) for device in ("b200", "h200")]
    [True, False]
    """
    if hardware.family != "blackwell":
        return False
    experts = any(block.ffn is not None and block.ffn.kind == "experts" for block in model.blocks.values())
    few_bits = layout.weight_dtype.startswith(("fp8", "nvfp4"))
    if model.id.startswith(QWEN_3):
        return experts and (few_bits or layout.weight_dtype == model.dtype)
    return experts and few_bits and model.latent is not None
