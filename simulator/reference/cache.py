"""The paged cache: a pool of blocks with exact books, and the keys and values of every layer in them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simulator.reference.device import Device

NULL_BLOCK = 0  # never handed out; what pads a batch points to it, as in vLLM


class BlockPool:
    """Which sequence holds which blocks. A shuffled free list is what an engine has after an hour of work."""

    def __init__(self, num_blocks: int, block_size: int, *, shuffled: bool = True, seed: int = 0) -> None:
        order = np.arange(num_blocks, 0, -1)
        if shuffled:
            np.random.default_rng(seed).shuffle(order)
        self.block_size = block_size
        self._free: list[int] = order.tolist()
        self.held: dict[int, list[int]] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def grow(self, sequence: int, tokens: int) -> list[int]:
        """Return the blocks of a sequence of so many cached tokens, new ones taken from the free list."""
        blocks = self.held.setdefault(sequence, [])
        while len(blocks) * self.block_size < tokens:
            blocks.append(self._free.pop())
        return blocks

    def release(self, sequence: int) -> None:
        """Give all blocks of a sequence back."""
        self._free.extend(reversed(self.held.pop(sequence)))

    def keep(self, sequences: set[int]) -> None:
        """Release every sequence that is not among these: finished or preempted."""
        for sequence in [each for each in self.held if each not in sequences]:
            self.release(sequence)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one layer caches: blocks x KV heads x tokens x head width, for keys and for values."""

    num_blocks: int
    block_size: int
    kv_heads: int
    head_dim: int


class LayerCache:
    """Keys and values of one layer: [blocks + 1, KV heads, block size, head width] each."""

    def __init__(self, shape: CacheShape, device: Device) -> None:
        size = (shape.num_blocks + 1, shape.kv_heads, shape.block_size, shape.head_dim)
        # torch.zeros would map every unwritten page to one page of zeros, which reads for nothing.
        self.keys = torch.empty(size, dtype=device.dtype, device=device.kind).zero_()
        self.values = torch.empty_like(self.keys).zero_()

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return int(self.keys.nbytes + self.values.nbytes)

    def write(self, places: tuple[Tensor, Tensor], keys: Tensor, values: Tensor) -> None:
        """Store [tokens, KV heads, head width] at (block, offset) of each token."""
        self.keys[places[0], :, places[1]] = keys
        self.values[places[0], :, places[1]] = values

    def read(self, blocks: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the first tokens of some blocks as [1, KV heads, tokens, head width]."""
        size = (1, self.keys.shape[1], len(blocks) * self.keys.shape[2], self.keys.shape[3])
        keys, values = (
            each.index_select(0, blocks).transpose(0, 1).reshape(size)[:, :, :tokens]
            for each in (self.keys, self.values)
        )
        return keys, values
