"""The input of one forward pass: token ids, positions and cache blocks of prompt chunks and decodes together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simulator.calibration.step_log import StepPart


@dataclass(frozen=True, slots=True)
class Chunk:
    """A prompt chunk: rows `start` to `end` (not included) of the batch, after `past_tokens` cached tokens."""

    start: int
    end: int
    past_tokens: int
    blocks: Tensor  # [blocks of the sequence], int64


@dataclass(frozen=True, slots=True)
class Reads:
    """The N cache blocks that the decodes of a batch attend to."""

    blocks: Tensor  # [N], int64
    owners: Tensor  # [N], int64: the row of the batch that attends to the block
    mask: Tensor  # [N, 1, 1, block size], float32: 0 where a token is attended to, else -inf


@dataclass(frozen=True, slots=True)
class Ragged:
    """All sequences of a batch, decodes and prompt chunks alike, for one kernel that takes any lengths."""

    query_ends: Tensor  # [sequences + 1], int32: 0, and the row after the last new token of each sequence
    key_ends: Tensor  # [sequences + 1], int32: the same of the tokens in the cache, the new ones among them
    places: tuple[Tensor, Tensor]  # [tokens in the cache] each, int64: the block of each, and its offset there
    most_queries: int  # new tokens of a sequence, at most
    most_keys: int  # its tokens in the cache, at most


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One forward pass over T new tokens. Rows 0 to `decodes` - 1 are decodes, the others prompt chunks."""

    tokens: Tensor  # [T], int64 token ids
    positions: Tensor  # [T], int64, from 0 in each sequence
    places: tuple[Tensor, Tensor]  # [T] each, int64: the cache block of each token, and its offset there
    last_rows: Tensor  # [sequences], int64: the row of each sequence's last token, whose logits are computed
    decodes: int
    reads: dict[int, Reads]  # by sliding window in tokens, 0 for none
    chunks: tuple[Chunk, ...]
    ragged: Ragged | None = None  # in place of `reads` and `chunks`


class BatchLayout(NamedTuple):
    """How batches are laid out: tokens per cache block, the sliding windows of the layers (0 for none), the device.

    `ragged`: for one attention kernel that takes sequences of any lengths (Device.fuses_attention).
    """

    block_size: int
    windows: tuple[int, ...]
    device: str
    ragged: bool = False


def make_batch(
    parts: Sequence[StepPart], tokens: Sequence[int], tables: Sequence[list[int]], layout: BatchLayout
) -> StepBatch:
    """Return the batch of some sequences.

    `parts`: one per sequence, decodes (one new token after cached ones) first. `tokens`: the ids of all new tokens, in
    that order. `tables`: the cache blocks of each sequence, with room for its new tokens.
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

    rows = StepBatch(
        tokens=there(tokens),
        positions=there(positions),
        places=(there(held), there(positions % layout.block_size)),
        last_rows=there(ends - 1),
        decodes=decodes,
        reads={},
        chunks=(),
    )
    if layout.ragged:
        return replace(rows, ragged=_ragged(parts, tables, layout))
    reads = {window: make_reads(lengths, tables[:decodes], window, layout) for window in layout.windows}
    chunks = tuple(
        Chunk(int(end - part.new_tokens), int(end), part.past_tokens, there(table))
        for part, end, table in list(zip(parts, ends, tables, strict=True))[decodes:]
    )
    return replace(rows, reads=reads, chunks=chunks)


def _ragged(parts: Sequence[StepPart], tables: Sequence[list[int]], layout: BatchLayout) -> Ragged:
    new = np.array([part.new_tokens for part in parts])
    cached = new + [part.past_tokens for part in parts]
    index = [np.arange(count) for count in cached.tolist()]
    blocks = [np.asarray(table)[each // layout.block_size] for table, each in zip(tables, index, strict=True)]
    offsets = np.concatenate(index) % layout.block_size

    def there(values: npt.NDArray[np.int_], dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(values, dtype=dtype, device=layout.device)

    return Ragged(
        query_ends=there(np.concatenate([[0], new.cumsum()]), torch.int32),
        key_ends=there(np.concatenate([[0], cached.cumsum()]), torch.int32),
        places=(there(np.concatenate(blocks), torch.int64), there(offsets, torch.int64)),
        most_queries=int(new.max()),
        most_keys=int(cached.max()),
    )


def make_reads(lengths: Sequence[int], tables: Sequence[list[int]], window: int, layout: BatchLayout) -> Reads:
    """Return the blocks that sequences of `lengths` tokens attend to, without those before a sliding window."""
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


def _decodes(part: StepPart) -> bool:
    return part.new_tokens == 1 and part.past_tokens > 0
