"""What one forward pass computes: ragged prompt chunks and decodes, with their places in the paged cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from simulator.calibration.step_log import Part


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a prompt: rows `start` to `end` of the batch after `past_tokens` cached ones."""

    start: int
    end: int
    past_tokens: int
    blocks: Tensor


@dataclass(frozen=True, slots=True)
class Reads:
    """The blocks that the decodes read: the block, whose it is, and 0 or -inf for each of its tokens."""

    blocks: Tensor  # [N]
    owners: Tensor  # [N], rows of the batch
    mask: Tensor  # [N, 1, 1, block size]


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass. Rows 0 to `decodes` - 1 are decoding sequences, the others the chunks."""

    tokens: Tensor  # [T]
    positions: Tensor  # [T]
    places: tuple[Tensor, Tensor]  # block and offset of each token
    last_rows: Tensor  # [sequences]: where the next token is predicted
    decodes: int
    reads: dict[int, Reads]  # by window, 0 for none
    chunks: tuple[Chunk, ...]


class Layout(NamedTuple):
    """What turns sequences into a batch: block size, the windows that layers have (0 for none), the device."""

    block_size: int
    windows: tuple[int, ...]
    device: str


def make_batch(parts: Sequence[Part], tokens: Sequence[int], tables: Sequence[list[int]], layout: Layout) -> Batch:
    """Lay sequences out for a forward pass.

    `parts` with decodes (one new token after a past) first, `tokens` all new tokens in their order, `tables` the
    blocks of each sequence.
    """
    decodes = next((row for row, part in enumerate(parts) if not _decodes(part)), len(parts))
    ends = np.cumsum([part.new_tokens for part in parts])
    positions = np.concatenate([np.arange(past, past + new) for _, new, past in parts])
    owners = np.repeat(np.arange(len(parts)), [part.new_tokens for part in parts])
    index = positions // layout.block_size
    held = np.array([tables[owner][block] for owner, block in zip(owners.tolist(), index.tolist(), strict=True)])
    lengths = [past + 1 for _, _, past in parts[:decodes]]

    def there(values: object) -> Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.int64), device=layout.device)

    chunks = tuple(
        Chunk(int(end - part.new_tokens), int(end), part.past_tokens, there(table))
        for part, end, table in list(zip(parts, ends, tables, strict=True))[decodes:]
    )
    return Batch(
        tokens=there(tokens),
        positions=there(positions),
        places=(there(held), there(positions % layout.block_size)),
        last_rows=there(ends - 1),
        decodes=decodes,
        reads={window: make_reads(lengths, tables[:decodes], window, layout) for window in layout.windows},
        chunks=chunks,
    )


def _decodes(part: Part) -> bool:
    return part.new_tokens == 1 and part.past_tokens > 0


def make_reads(lengths: Sequence[int], tables: Sequence[list[int]], window: int, layout: Layout) -> Reads:
    """List the blocks that sequences of some lengths attend to; a window leaves out those before it."""
    size = layout.block_size
    first = [max(0, length - window) // size if window else 0 for length in lengths]
    counts = [-(-length // size) - skipped for length, skipped in zip(lengths, first, strict=True)]
    owners = np.repeat(np.arange(len(lengths)), counts)
    index = np.concatenate([np.arange(f, f + n) for f, n in zip(first, counts, strict=True)] or [np.arange(0)])
    blocks = [tables[owner][block] for owner, block in zip(owners.tolist(), index.tolist(), strict=True)]
    position = index[:, None] * size + np.arange(size)
    end = np.array(lengths, dtype=np.int64)[owners][:, None]
    seen = (position < end) & (position >= end - (window or 2**40))
    mask = torch.where(torch.as_tensor(seen, device=layout.device), 0.0, -torch.inf)
    return Reads(
        torch.as_tensor(np.array(blocks, dtype=np.int64), device=layout.device),
        torch.as_tensor(owners.astype(np.int64), device=layout.device),
        mask[:, None, None, :],
    )
