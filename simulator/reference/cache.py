"""The paged KV cache: which sequence holds which blocks, and the keys and values of one layer."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simulator.reference.device import Device

NULL_BLOCK = 0  # never handed out; what pads a batch points to it, as in vLLM


class BlockPool:
    """Blocks 1 to `num_blocks`, and which sequence holds them.

    The free list is shuffled by default: blocks of a sequence lie apart, as in an engine that has run for an hour.
    """

    def __init__(self, num_blocks: int, block_size: int, *, shuffled: bool = True, seed: int = 0) -> None:
        order = np.arange(num_blocks, 0, -1)
        if shuffled:
            np.random.default_rng(seed).shuffle(order)
        self.block_size = block_size
        self._free: list[int] = order.tolist()
        self.held: dict[int, list[int]] = {}

    @property
    def free_blocks(self) -> int:
        """Number of blocks that no sequence holds."""
        return len(self._free)

    def grow(self, sequence: int, tokens: int) -> list[int]:
        """Return the blocks of a sequence, with room for so many tokens; new ones come from the free list.

        Raises IndexError where none is free: the scheduler asks for no more than there are.
        """
        blocks = self.held.setdefault(sequence, [])
        while len(blocks) * self.block_size < tokens:
            blocks.append(self._free.pop())
        return blocks

    def release(self, sequence: int) -> None:
        """Return all blocks of a sequence to the free list."""
        self._free.extend(reversed(self.held.pop(sequence)))

    def keep(self, sequences: set[int]) -> None:
        """Release all sequences but these: the others are finished or preempted."""
        for sequence in [each for each in self.held if each not in sequences]:
            self.release(sequence)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Sizes of the cache of one layer: blocks, tokens per block, KV heads, numbers per head."""

    num_blocks: int
    block_size: int
    kv_heads: int
    head_dim: int


class LayerCache:
    """Keys and values of one layer, [blocks + 1, KV heads, block size, head_dim] each, in the device's dtype."""

    def __init__(self, shape: CacheShape, device: Device) -> None:
        size = (shape.num_blocks + 1, shape.kv_heads, shape.block_size, shape.head_dim)
        # torch.zeros would map every unwritten page to one page of zeros, which reads for nothing.
        self.keys = torch.empty(size, dtype=device.dtype, device=device.kind).zero_()
        self.values = torch.empty_like(self.keys).zero_()

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return int(self.keys.nbytes + self.values.nbytes)

    def write(self, places: tuple[Tensor, Tensor], keys: Tensor, values: Tensor) -> None:
        """Store keys and values [tokens, KV heads, head_dim] at the block and offset of each token, [tokens] each."""
        self.keys[places[0], :, places[1]] = keys
        self.values[places[0], :, places[1]] = values

    def read(self, blocks: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of the first tokens of some blocks, [1, KV heads, tokens, head_dim] each."""
        size = (1, self.keys.shape[1], len(blocks) * self.keys.shape[2], self.keys.shape[3])
        keys, values = (
            each.index_select(0, blocks).transpose(0, 1).reshape(size)[:, :, :tokens]
            for each in (self.keys, self.values)
        )
        return keys, values
