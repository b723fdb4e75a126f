"""Routed experts: how many a batch touches, the tiles that they compute, and how unevenly ranks share them."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from simulator.arrays import Array

# Variance of experts' popularity over its squared mean, as ranks feel it: ranks of 8 of DeepSeek-R1's 256 experts get
# 1,024 (491) choices in a step (NVIDIA/TensorRT-LLM examples/ep_load_balancer, 58 layers); Qwen3-30B-A3B: layers.py
RANK_SPREAD = 1.9


class Experts(NamedTuple):
    """Routed experts: each of `tokens` (of any shape) goes to `chosen` of `total`, on `ranks` devices.

    `uneven`: their popularity spreads as an exponential variable does, whose variance is its squared mean (of ranks'
    loads: RANK_SPREAD); else all are chosen alike. `width`: intermediate numbers of one on a device.
    """

    total: int
    chosen: int
    ranks: int = 1
    uneven: bool = False
    width: int = 0

    def touched(self, tokens: Array) -> Array:
        """Return the expected number of distinct experts that `tokens` tokens reach.

        E (1 - (1 - k/E)^n) if they are chosen alike; its mean over an exponential popularity, E n k / (E - k + n k).

        >>> [round(float(Experts(8, 2).touched(tokens)), 6) for tokens in (1, 2, 1000)]
        [2.0, 3.5, 8.0]
        >>> [round(float(Experts(128, 8, uneven=uneven).touched(16)), 1) for uneven in (False, True)]
        [82.4, 66.1]
        >>> [float(Experts(8, 8, uneven=True).touched(tokens)) for tokens in (0.0, 1.0)]
        [0.0, 8.0]
        """
        if self.uneven and self.chosen < self.total:
            draws = np.asarray(tokens) * float(self.chosen)
            reached: Array = self.total * draws / (self.total - self.chosen + draws)
            return reached
        missed = math.log1p(-self.chosen / self.total) if self.chosen < self.total else -1e3  # its logarithm, per token
        touched: Array = -self.total * np.expm1(tokens * missed)
        return touched

    def padded(self, tokens: Array, tile: Array, least: float = math.inf) -> Array:
        """Return computed over needed tokens, because each expert computes a multiple of `tile` tokens in its GEMM.

        1 + (t / 2) touched / (k n): half a tile more per expert touched; a single token is a matrix-vector product.
        `least`: with fewer than `tile` tokens per expert, the tile shrinks to that number, down to `least`, of which
        each expert touched computes a whole one, for a single token, too.

        >>> float(Experts(8, 2).padded(1, 32)), round(float(Experts(8, 2).padded(64, 32)), 2)
        (1.0, 2.0)
        >>> [round(float(Experts(8, 2).padded(tokens, 128, least=16)), 2) for tokens in (64, 32, 1)]
        [1.5, 2.0, 16.0]
        """
        tiles = self.touched(tokens) / (np.maximum(tokens, 1.0) * self.chosen)  # over the tokens of all experts
        if least == math.inf:
            return 1.0 + tile / 2 * np.where(np.asarray(tokens) > 1, tiles, 0.0)
        rows = np.clip(1.0 / np.maximum(tiles, 1e-9), least, tile)
        return np.maximum(1.0 + rows / 2 * tiles, least * tiles)

    def tiles(self, tokens: Array, most: float, least: float) -> Array:
        """Return the tiles of `least` to `most` rows, as `padded` shrinks them, that all experts compute.

        >>> [round(float(Experts(8, 2).tiles(tokens, 64, least=16)), 1) for tokens in (1, 16, 512)]
        [2.0, 7.9, 20.0]
        """
        routed = np.maximum(tokens, 1.0) * self.chosen
        rows = np.clip(routed / np.maximum(self.touched(tokens), 1e-9), least, most)
        return routed * self.padded(tokens, most, least) / rows

    def busiest_tokens(self, tokens: Array) -> Array:
        """Return the tokens of the busiest rank over the mean of all ranks, whose experts are placed at random.

        exp(z s - s^2 / 2), at most R: loads are binomial about the popularity of a rank's experts, so their variance is
        (1 - 1/R) (1 / mean + v R / E) = exp(s^2) - 1, v RANK_SPREAD, 0 if all are alike; taken as log-normal (as
        recorded loads of ranks are: deepseek-ai/DeepEP pull request 393), and z is the expected maximum of R standard
        normals (Blom, Statistical Estimates and Transformed Beta-Variables, 1958).

        >>> [round(float(Experts(256, 8, 8, uneven=True).busiest_tokens(tokens)), 2) for tokens in (1.0, 1e6)]
        [2.3, 1.35]
        >>> float(Experts(8, 2).busiest_tokens(1.0))
        1.0
        """
        draws = tokens * self.chosen
        variance = 1.0 + RANK_SPREAD * self.uneven * draws / self.total  # of a rank's draws, over that of a binomial
        return self.busiest_load(draws, (1.0 - 1.0 / self.ranks) * variance)

    def busiest_experts(self, tokens: Array) -> Array:
        """Return the most distinct experts touched on a rank over the mean of all ranks; 1 once all are touched.

        Shapes as in `touched`.
        """
        touched = self.touched(tokens)
        return self.busiest_load(touched, 1.0 - touched / self.total)

    def busiest_load(self, load: Array, variance: Array) -> Array:
        """Return the largest of all ranks' loads over their mean; `load`: of all; `variance`: of one, over its mean."""
        largest = NormalDist().inv_cdf((self.ranks - 0.375) / (self.ranks + 0.25))
        mean = np.maximum(load, 1e-9) / self.ranks
        squared = np.log1p(variance / mean)
        factor: Array = np.clip(np.exp(largest * np.sqrt(squared) - squared / 2), 1.0, float(self.ranks))
        return factor

    @property
    def other_ranks(self) -> float:
        """Expected number of other ranks to which a token's experts belong."""
        return others(self.ranks, self.chosen)


def others(places: int, chosen: int) -> float:
    """Return how many other places, of equal ones, an item is sent to that draws `chosen`: (R - 1)(1 - (1 - 1/R)^k).

    >>> others(2, 8), others(4, 2)
    (0.99609375, 1.3125)
    """
    return (places - 1) * (1.0 - (1.0 - 1.0 / places) ** chosen)
