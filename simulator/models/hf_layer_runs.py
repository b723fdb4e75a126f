"""Names for the blocks of a model whose layers are listed one by one, and the repetitions among them."""

from collections.abc import Sequence
from typing import Any

from simulator.models.hf_rules import LayerKind

LONGEST_PATTERN = 16


def block_names(kinds: Sequence[LayerKind]) -> list[str]:
    """Return a block name per layer, made of the parts in which its kind differs from other layers'."""
    telling = [len({kind[part] for kind in kinds if kind[part] != "none"}) > 1 for part in (0, 1)]
    halves = any("none" in kind for kind in kinds)
    return ["-".join(_telling(kind, telling, halves)) or "decoder" for kind in kinds]


def _telling(kind: LayerKind, telling: Sequence[bool], halves: bool) -> list[str]:
    return [part for part, tells in zip(kind, telling, strict=True) if part != "none" and (tells or halves)]


def runs(names: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Return layers as repeated sequences of block names, choosing each time the sequence that covers most layers.

    >>> runs(["local", "local", "global"] * 2 + ["local"])
    ({'repeat': 2, 'of': ('local', 'local', 'global')}, {'repeat': 1, 'of': ('local',)})
    """
    found: list[dict[str, Any]] = []
    start = 0
    while start < len(names):
        length, repeats = max(
            ((length, _repeats(names[start:], length)) for length in range(1, LONGEST_PATTERN + 1)),
            key=lambda run: (run[0] * run[1] if run[1] > 1 or run[0] == 1 else 0, -run[0]),
        )
        found.append({"repeat": repeats, "of": tuple(names[start : start + length])})
        start += length * repeats
    return tuple(found)


def _repeats(names: Sequence[str], length: int) -> int:
    count = 1
    while list(names[count * length : (count + 1) * length]) == list(names[:length]):
        count += 1
    return count
