"""Tiles in which Marlin multiplies weights of four bits: their rows, how many there are, what unpacks them."""

import numpy as np

from simulator.arrays import Array
from simulator.models.routed_experts import RANK_SPREAD, Experts
from simulator.profile import Figure, Source

ROWS = (8.0, 16.0, 32.0, 48.0, 64.0)  # of a tile: vllm fused_marlin_moe.py, block_size_m, as in SGLang
FULL = 0.9  # of a tile, beyond which the next larger one is taken there
MOST_TILES = 8  # of an expert that are counted one by one; beyond them half a tile is empty
TAIL = (1.5976, 0.07056)  # of the normal distribution: 1 / (1 + exp(a x + b x^3)) is within 0.0002 of it (Page, 1977)
EXPONENT = Figure(
    2.0,
    Source(
        text="dense Marlin on an A100 (vllm-project/vllm pull request 2497, 1 to 1,024 rows) within 3 % at 2, 11 % at"
        " 1.2; its experts on an H20 (flagos-ai/FlagGems pull requests 3609 and 4350) within 4 % at both",
        date="2026-11-27",
        evidence="derived",
    ),
)


def rows_of(experts: Experts, tokens: Array) -> Array:
    """Return the rows of a tile that is taken for so many tokens, of any shape.

    The first of ROWS of which M k / E choices fill less than FULL: M tokens, k choices of each, E experts of a rank.
    Choices of other ranks' experts are among them, so that tiles grow with ranks (vllm issue 48066).

    >>> [float(rows_of(Experts(128, 4, ranks), 64.0)) for ranks in (1, 8)]
    [8.0, 32.0]
    """
    filled = np.asarray(tokens) * experts.chosen * experts.ranks / experts.total / FULL
    rows: Array = np.asarray((*ROWS, ROWS[-1]))[np.searchsorted(ROWS, filled, side="right")]
    return rows


def padding(experts: Experts, tokens: Array, unpack_rows: float) -> Array:
    """Return the rows in whose time tiles are multiplied over those that are needed; shape of the tokens.

    E T sqrt(t^2 + u^2) / (k n): each of E experts fills T tiles of t rows in the mean, whole ones; unpacking the
    weights of a tile, beside multiplying, takes the time of u rows.

    >>> [round(float(padding(Experts(128, 8, uneven=uneven), 128.0, 0.0)), 2) for uneven in (False, True)]
    [2.0, 2.11]
    """
    tokens = np.maximum(tokens, 1.0)
    rows: Array = experts.total * tiles(experts, tokens) * np.hypot(rows_of(experts, tokens), unpack_rows)
    return rows / (tokens * experts.chosen)


def dense_padding(rows: Array, unpack_rows: float) -> Array:
    """Return the rows in whose time a dense GEMM is multiplied over its own: whole tiles, each of which is unpacked.

    A tile has the fewest of ROWS that hold what is multiplied, or the most of them.

    >>> [round(float(dense_padding(rows, 8.0)), 2) for rows in (1.0, 64.0, 4096.0)]
    [11.31, 1.01, 1.01]
    """
    own = np.maximum(rows, 1.0)
    tile = np.asarray((*ROWS, ROWS[-1]))[np.searchsorted(ROWS, own)]
    padded: Array = np.ceil(own / tile) * np.hypot(tile, unpack_rows) / own
    return padded


def tiles(experts: Experts, tokens: Array) -> Array:
    """Return the mean tiles of an expert: the sum over j of P(it gets more than j t of n tokens).

    Popularities that spread as an exponential variable does make loads geometric about their mean m: q / (1 - q^t), q =
    m / (1 + m). Loads of experts that are chosen alike are binomial, taken as normal.
    """
    mean, touched = np.asarray(tokens) * experts.chosen / experts.total, experts.touched(tokens) / experts.total
    if experts.uneven:
        found: Array = touched / _last(mean, rows_of(experts, tokens))
        return found
    deviation = np.sqrt(mean * (1.0 - experts.chosen / experts.total))
    edges = np.asarray(rows_of(experts, tokens))[..., None] * np.arange(1, MOST_TILES + 4) + 0.5
    beyond = (edges - mean[..., None]) / np.maximum(deviation, 1e-9)[..., None]
    exponent = np.clip(TAIL[0] * beyond + TAIL[1] * beyond**3, -500.0, 500.0)
    counted = touched + (1.0 / (1.0 + np.exp(exponent))).sum(-1)
    return np.where(mean > MOST_TILES * rows_of(experts, tokens), mean / rows_of(experts, tokens) + 0.5, counted)


def busiest(experts: Experts, tokens: Array) -> Array:
    """Return the tiles of the busiest rank over the mean of all ranks, as Experts.busiest_tokens does for tokens.

    With the variance of geometric loads in tiles, q (1 + q^t) / (1 - q^t)^2 - T^2: experts of one tile each differ
    less than their tokens; what RANK_SPREAD adds shows beyond that one. Experts that are chosen alike are taken to
    differ as their tokens do.

    >>> [round(float(busiest(Experts(160, 8, 4, uneven=True), tokens)), 2) for tokens in (64.0, 8192.0)]
    [1.08, 1.18]
    """
    if not experts.uneven:
        return experts.busiest_tokens(tokens)
    tokens = np.maximum(tokens, 1.0)
    each, last = tiles(experts, tokens), _last(tokens * experts.chosen / experts.total, rows_of(experts, tokens))
    wider = (RANK_SPREAD - 1.0) * np.maximum(each - 1.0, 0.0) ** 2
    variance = each * (2.0 - last) / last - each**2 + wider
    return experts.busiest_load(experts.total * each, (1.0 - 1.0 / experts.ranks) * variance / each)


def _last(mean: Array, rows: Array) -> Array:
    """Return 1 - q^t: how likely a tile of an expert is its last one."""
    return -np.expm1(rows * np.log(mean / (1.0 + mean)))
