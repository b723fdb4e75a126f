"""Soft roofline of a GEMM: how its compute time and its memory time add up, and what tiles and panels cost."""

import math

import numpy as np

from simulator.arrays import Array
from simulator.hardware.achievable import Gemm
from simulator.models.operations import Op
from simulator.profile import Figure, Source

PANEL = 128  # columns of weights that one multiprocessor multiplies
TILE = 128  # rows, and columns, of the tiles of GEMMs with more than FEW_ROWS rows (Achievable.wave_fraction)
FEW_ROWS = 64
EXPERTS_EXPONENT = Figure(
    1.2,
    Source(
        text="tables of experts (aiconfigurator-core 0.12.0): their shares of the roofline at 256 and 16,384 tokens"
        " leave 1.0 to 1.3 for the exponent at 4,096, in bf16 and fp8 on H100 and in nvfp4 on B200",
        date="2026-11-22",
        evidence="derived",
    ),
)

K_LOOP_EXPONENT = Figure(
    1.5,
    Source(
        text="times of vLLM's Triton kernel of experts on an H100 (tests/fixtures/kernels-h100.csv): with 1 to 64"
        " tokens of GLM-4.6, Qwen3-235B and DeepSeek-V3 on 8 devices, between reading weights and a tile's loop over K",
        date="2026-11-26",
        evidence="measured",
    ),
)


def soft_maximum(first: Array, second: Array, exponent: float) -> Array:
    """Return (x^p + y^p)^(1/p), which is the plain maximum at p = infinity.

    >>> soft_maximum(3.0, 4.0, 2.0), soft_maximum(3.0, 4.0, float("inf"))
    (5.0, 4.0)
    """
    high, low = np.maximum(first, second), np.minimum(first, second)
    if exponent != float("inf"):
        ratio = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
        high = high * (1.0 + ratio**exponent) ** (1.0 / exponent)
    return float(high) if high.ndim == 0 else high


def exponent_of(gemm: Gemm, op: Op) -> float:
    """Return p of the soft maximum of a GEMM; infinity is the plain maximum.

    Of routed experts it is `EXPERTS_EXPONENT` at most: they have few rows for each weight that they read.
    """
    own = math.inf if gemm.exponent is None else float(gemm.exponent)
    return own if op.experts is None else min(own, float(EXPERTS_EXPONENT))


def panel_s(gemm: Gemm, op: Op) -> float:
    """Return the seconds in which one multiprocessor reads its `PANEL` columns; 0 where its rate is not known."""
    if not gemm.panel_bytes_per_s or not op.columns:
        return 0.0
    return op.weight_bytes * PANEL / op.columns / gemm.panel_bytes_per_s


def input_loop_s(gemm: Gemm, op: Op) -> float:
    """Return the seconds of a tile's loop over the inputs of a dense GEMM (achievable.Gemm.input_s); 0: not known."""
    return op.inputs * gemm.input_s if gemm.input_s and op.experts is None else 0.0


def tile_s(rows: float, flops_per_s: float, multiprocessors: int, op: Op) -> float:
    """Return the seconds in which the multiprocessors multiply all columns of a GEMM, in tiles of so many rows.

    ceil(N / 128 / M) F r (128 / N) / (P / M): F FLOPs a row and N columns of the GEMM, r rows of a tile, M
    multiprocessors, P FLOP/s of all. vLLM's fp8 kernel of 128 rows takes 49 us on an RTX 5090, for 1 to 256 rows.

    >>> from simulator.models.operations import Counts
    >>> product = Op("", "gemm", "fp8", flops=Counts(tokens=2.0 * 4096 * 6144), columns=6144)
    >>> f"{tile_s(128, 419e12, 170, product) * 1e6:.1f} us"
    '54.5 us'
    """
    tiles = op.columns / PANEL
    flops = float(max(op.flops)) * rows / tiles  # of a tile
    return math.ceil(tiles / multiprocessors) * flops / (flops_per_s / multiprocessors)


def row_padding(least_rows: float, rows: Array) -> Array:
    """Return multiplied over needed rows of a dense GEMM of `least_rows` at least.

    >>> row_padding(64.0, np.array([0.0, 16.0, 80.0])).tolist()
    [1.0, 4.0, 1.0]
    """
    return np.where(np.asarray(rows) > 0, np.maximum(1.0, least_rows / np.maximum(rows, 1.0)), 1.0)


def wave_padding(rows: Array, op: Op, share: float, wave: float, multiprocessors: float) -> Array:
    """Return the time in which the tiles of a dense GEMM are multiplied over that of its own rows at `share` of a peak.

    Rows beyond FEW_ROWS fill tiles of TILE rows. A tile has one multiprocessor to itself: as many as there are run at a
    time, a wave, each no faster than `wave` of its part of the peak (Achievable.wave_fraction). Waves are those of
    kernels with half as many rows, whose sum is never longer. Fewer tiles than multiprocessors are split along the
    inputs, and have no waves.

    >>> on_a100 = Op("", "gemm", columns=7168), 0.81, 0.93, 108.0
    >>> [round(float(wave_padding(rows, *on_a100)), 2) for rows in (64.0, 256.0, 384.0, 448.0)]
    [1.0, 1.26, 1.12, 1.14]
    """
    every, own = multiprocessors, np.maximum(rows, 1.0)
    tall, wide = np.ceil(own / TILE), math.ceil(op.columns / TILE)
    waves = np.ceil(np.ceil(2 * own / TILE) * wide / every) / 2
    in_waves = np.where(tall * wide > every, waves * every * TILE**2 / (own * op.columns), 0.0)
    longer = np.maximum(tall * TILE / own, in_waves * share / wave)
    return np.where(own > FEW_ROWS, longer, 1.0)
