"""Tiles of AITER's routed experts in 16 bits on Instinct: their rows by the tokens of a batch, and what they pad."""

import numpy as np

from simulator.arrays import Array
from simulator.models.routed_experts import Experts

ROWS = (32.0, 64.0, 128.0)  # of a tile, of which AITER chooses one
COLUMNS = 128.0  # of a tile
FEWEST_TOKENS, MOST_TOKENS = 16.0, 1024.0  # of a batch that a tile is chosen for: the next power of two between these


def rows_of(experts: Experts, tokens: Array, units: float) -> Array:
    """Return the rows of a tile that is taken for so many tokens, of any shape, on a device of `units` compute units.

    Of ROWS those whose blocks, ceil(w / COLUMNS) (n k + E r - k) / r of them for n tokens, k choices of each and E
    experts of w columns on a device, take the fewest rounds on all units; of those, what leaves the fewest units idle
    in the last (ROCm/aiter, fused_moe.py: get_block_size_M, get_padded_M; amd-aiter 0.1.7.post2.dev18).

    >>> [float(rows_of(Experts(64, 6, width=1536), tokens, 304.0)) for tokens in (1.0, 16.0, 64.0, 100.0)]
    [32.0, 32.0, 64.0, 128.0]
    """
    padded = 2.0 ** np.ceil(np.log2(np.clip(tokens, FEWEST_TOKENS, MOST_TOKENS)))
    sizes = np.asarray(ROWS)
    choices = padded[..., None] * experts.chosen + experts.total / experts.ranks * sizes - experts.chosen
    blocks = np.floor_divide(np.ceil(experts.width / COLUMNS) * (choices + sizes - 1.0), sizes)
    idle = units - blocks % units
    rows: Array = sizes[np.argmin(np.ceil(blocks / units) * (units + 1.0) + idle, axis=-1)]
    return rows


def padding(experts: Experts, tokens: Array, units: float) -> Array:
    """Return the rows that tiles multiply over those that are needed; shape of the tokens.

    Each expert that is reached fills a whole tile, or half a tile more than it needs (Experts.padded).

    >>> [round(float(padding(Experts(64, 6, width=1536), tokens, 304.0)), 1) for tokens in (1.0, 16.0, 100.0, 4096.0)]
    [32.0, 16.9, 13.7, 1.2]
    """
    rows, needed = rows_of(experts, tokens, units), np.maximum(tokens, 1.0)
    tiles = experts.touched(needed) / (needed * experts.chosen)  # over the tokens of all experts
    found: Array = np.maximum(1.0 + rows / 2 * tiles, rows * tiles)
    return found
