"""Runs on one's own machine: kernels and number formats that the benchmarks of llama.cpp and MLX state."""

from simulator.engines.engine import Engine
from simulator.errors import NotModelledError
from simulator.models.format_names import ending
from simulator.models.model import Model
from simulator.models.number_formats import DYNAMIC, GGUF, UD, number_format
from simulator.questions.words import whole
from simulator.validation.measurements import Setup

FARTHEST = 0.4  # guess: of a file's bits from the usual ones; a size farther off is that of something else
DYNAMIC_SINCE = "2026-02-27"  # attention in more bits than experts: unsloth.ai/docs/models/qwen3.5/gguf-benchmarks
UNQUANTISED_BITS = 12  # from here on a checkpoint holds the model's own type: quantised ones have 9 at most, others 16


def stated_rules(setup: Setup, engine: Engine) -> dict[str, object]:
    """Return llama.cpp's settings that a setup states, by our names: flash attention, tokens of a micro-batch."""
    found: dict[str, object] = {}
    fused, part = setup.engine_setting("flash-attn"), setup.engine_setting("ubatch-size")
    if fused and engine.flash_attention is not None:
        found["flash_attention"] = fused not in ("0", "off")
    if part:
        found["micro_batch_tokens"] = whole(part, "engine_settings ubatch-size")
    return found


def sized_format(weights: str, setup: Setup, model: Model) -> str:
    """Return a format of GGUF files with the bits that a stated size comes to: bytes x 8 over parameters.

    Publishers mix types as they like: files of one name differ by a fifth. Unsloth's of before `DYNAMIC_SINCE` do not
    tell experts from all else by their types.
    """
    if weights not in (*GGUF, *UD) or not setup.weights_bytes:
        return weights
    bits = 8 * setup.weights_bytes / model.parameters
    stored = f"{weights}@{bits:.3f}" if abs(bits / number_format(weights).bits - 1) < FARTHEST else weights
    alike = weights in DYNAMIC and model.is_routed and "" < setup.date < DYNAMIC_SINCE
    return f"{stored}+{stored}" if alike else stored


def mlx_format(setup: Setup, model: Model) -> str:
    """Return the format of an MLX checkpoint whose row says "mlx" alone: that of its name, else by its size.

    NotModelledError where neither says how many bits it has.
    """
    _, named = ending(setup.model)
    if named or not setup.weights_bytes:
        return named or _refused(setup)
    bits = 8 * setup.weights_bytes / model.parameters
    return f"mlx@{bits:.2f}" if bits < UNQUANTISED_BITS else model.dtype


def _refused(setup: Setup) -> str:
    because = "neither the format, nor the model's name, nor a size says how many bits it has"
    raise NotModelledError(f"mlx weights of {setup.model}", because, "Write, say, mlx-q4")
