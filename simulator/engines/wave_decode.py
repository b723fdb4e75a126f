"""Decode attention of TensorRT-LLM on data-center Blackwell: one wave of blocks, each on a multiprocessor."""

import numpy as np

from simulator.arrays import Array
from simulator.engines.conditions import OnDevices
from simulator.hardware.hardware import Hardware
from simulator.models.operations import Counts, Op

# Seconds of a tile of the cache by the query heads of a tile, over the least: kernelMainloopCost, by which the launcher
# itself chooses tiles (flashinfer-ai/flashinfer trtllm/fmha/fmhaKernels.cuh, also in TensorRT-LLM; read 2026-11-28)
TILE_COSTS = {8: 1.0, 16: 1.2, 32: 1.48, 64: 1.68, 128: 2.2}


class WaveDecode(OnDevices):
    """Decode attention whose blocks of threads each read the cache of one sequence and KV head, or a part of it.

    A sequence's cache is split as far as a single wave of blocks fills the multiprocessors, and no further, so that the
    kernel waits for the longest sequence, and some multiprocessors idle. A block computes a whole tile of query heads
    for each tile of the cache. Source: FlashInfer's trtllm/fmha/fmhaKernels.cuh, computeCtaAndClusterConfig and
    selectTileSizeQForGqaGeneration; flashinfer-ai/flashinfer pull request 3379 and issue 4832 say what it costs.
    """

    def holds(self, hardware: Hardware, op: Op) -> bool:
        """Tell whether decode attention runs in it on a device whose multiprocessors are known: not the latent one."""
        known = self.covers(hardware) and hardware.multiprocessors is not None
        return known and op.attending_heads > 0 and not op.latent_heads

    def cost(self, op: Op) -> float:
        """Return what a tile of the cache costs with the query heads of a KV head, over the least."""
        return TILE_COSTS[min((each for each in TILE_COSTS if each >= op.shared_by), default=max(TILE_COSTS))]

    def slowdown(self, hardware: Hardware, op: Op, counts: Counts) -> Array:
        """Return how much longer it reads than all multiprocessors would in the least tile; shape of the counts.

        c P / min(n h floor(P / (n h)), P) for n sequences of h KV heads on P multiprocessors, c: `cost`. Without
        sequences (a slope of StepTable), and where there is more than one sequence and head for each: c.

        >>> from simulator.hardware.hardware import load_hardware
        >>> b200, read = load_hardware("b200-sxm"), Op("", "decode_attention", heads=12, shared_by=12)
        >>> kernel = WaveDecode(families=("blackwell",))
        >>> [round(float(kernel.slowdown(b200, read, Counts(1.0, tokens))), 2) for tokens in (1, 75, 128, 999)]
        [1.2, 2.37, 1.39, 1.2]
        """
        processors, pairs = float(hardware.multiprocessors or 0.0), self.pairs(op, counts)
        parts = np.maximum(1.0, np.floor(processors / np.maximum(pairs, 1.0)))
        busy = np.where(pairs > 0, np.minimum(np.maximum(pairs, 1.0) * parts, processors), processors)
        slower: Array = self.cost(op) * processors / busy
        return slower

    @staticmethod
    def pairs(op: Op, counts: Counts) -> Array:
        """Return the pairs of a decoding sequence and a KV head in a step."""
        sequences = (counts.tokens - counts.prefill_tokens) / np.maximum(counts.steps, 1.0)
        pairs: Array = sequences * op.attending_heads / op.shared_by
        return pairs
