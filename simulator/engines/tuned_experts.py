"""Sizes of routed experts for which SGLang comes with tuned tiles of its Triton kernel, by device and format."""

import csv
from functools import cache
from pathlib import Path

from simulator.files import read_text
from simulator.models.routed_experts import Experts

TILES_OF = {"fp16": "bf16"}  # a format that takes the tiles of another


def is_tuned(device: str, experts: Experts, stored: str) -> bool:
    """Tell whether SGLang has tuned tiles for experts of a format on a device; else it takes default ones.

    The files' names say how many experts a device holds and how wide each is there: SGLang 0.5.10,
    srt/layers/moe/fused_moe_triton/configs.

    >>> is_tuned("h100-sxm", Experts(128, 8, width=768), "bf16")  # Qwen3-30B-A3B
    True
    >>> is_tuned("b200-sxm", Experts(64, 4, width=1536), "bf16")  # GLM-4.7-Flash
    False
    """
    return (device, f"{experts.total // experts.ranks}", f"{experts.width}", TILES_OF.get(stored, stored)) in _tuned()


@cache
def _tuned() -> frozenset[tuple[str, ...]]:
    lines = read_text(Path(__file__).with_suffix(".csv")).splitlines()
    return frozenset(tuple(row) for row in csv.reader(lines))
