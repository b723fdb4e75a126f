"""Runs on one's own machine: kernels and number formats that the benchmarks of llama.cpp and MLX state."""

import re

from simulator.engines.engine import Engine
from simulator.models.model import Model
from simulator.models.number_formats import GGUF
from simulator.validation.measurements import Setup

FARTHEST = 0.4  # guess: of a file's bits from the usual ones; a size farther off is that of something else
UNQUANTISED_BITS = 12  # from here on a checkpoint holds the model's own type: quantised ones have 9 at most, others 16


def stated_rules(setup: Setup, engine: Engine) -> dict[str, object]:
    """Return llama.cpp's settings that a setup states, by our names: flash attention, tokens of a micro-batch."""
    found: dict[str, object] = {}
    fused, part = setup.engine_setting("flash-attn"), setup.engine_setting("ubatch-size")
    if fused and engine.flash_attention is not None:
        found["flash_attention"] = fused not in ("0", "off")
    if part:
        found["micro_batch_tokens"] = int(part)
    return found


def gguf_format(weights: str, setup: Setup, model: Model) -> str:
    """Return a format as GGUF files have it, with the bits that a stated size comes to: bytes x 8 over parameters.

    Publishers mix types as they like: files of one name differ by a fifth.
    """
    if weights in ("mxfp4", "fp16"):
        return {"mxfp4": "mxfp4_MoE", "fp16": "gguf_f16"}[weights]
    if weights not in GGUF or not setup.weights_bytes:
        return weights
    bits = 8 * setup.weights_bytes / model.parameters
    return f"{weights}@{bits:.3f}" if abs(bits / GGUF[weights].bits - 1) < FARTHEST else weights


def mlx_format(setup: Setup, model: Model) -> str:
    """Return the format of an MLX checkpoint: the bits that its format or its name states, else those of its size.

    A group of 64 numbers, or as many as stated (`mlx-q4 g32`), has a scale and a bias of 16 bits each.
    """
    named = re.fullmatch(r"mlx-q(\d)(?: g(\d+))?", setup.weight_dtype) or re.search(r"(?<!\d)(\d+)bit()", setup.model)
    if named:
        bits = float(named.group(1)) + 32 / int(named.group(2) or 64)
    else:
        bits = 8 * setup.weights_bytes / model.parameters
    return f"mlx@{bits:.2f}" if 0 < bits < UNQUANTISED_BITS else model.dtype
