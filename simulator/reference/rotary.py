"""Rotary position embeddings (Su et al. 2021), with Llama 3's scaling of long wavelengths."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from simulator.limits import refuse_beyond_memory
from simulator.reference.checkpoint import Numerics


def rotary_table(numerics: Numerics, width: int, positions: int) -> tuple[Tensor, Tensor]:
    """Return cosine and sine, [positions, width] each, float32, of angle = position / theta^(2 i / width) radians.

    Raises InfercastError for tables that exceed the memory.
    """
    given = f"rotary tables of {positions:,} positions"
    refuse_beyond_memory(given, 24.0 * positions * width, "Lower max_position_embeddings in config.json")
    frequency = 1.0 / numerics.rope_theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    if numerics.rope_scaling is not None:
        frequency = _stretched(frequency, numerics.rope_scaling)
    angle = torch.arange(positions).float()[:, None] * frequency[None]
    both = torch.cat((angle, angle), dim=-1)
    return both.cos(), both.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the pairs (i, i + width/2) of x [T, heads, width] by tables [T, 1, width]; the dtype is that of x."""
    low, high = x.chunk(2, dim=-1)
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    return x * cosine + torch.cat((-high, low), dim=-1) * sine


def _stretched(frequency: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Divide the frequencies of long wavelengths by `factor`, keep short ones, blend between (rope_type `llama3`)."""
    factor, low, high = (float(scaling[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    wavelength = 2 * math.pi / frequency
    turns = float(scaling["original_max_position_embeddings"]) / wavelength
    blend = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - blend) * frequency / factor + blend * frequency
