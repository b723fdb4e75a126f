"""Decode attention in Triton: blocks of threads that each read a part of one sequence's KV cache, tile after tile."""

import math
from typing import Self

import numpy as np

from simulator.arrays import Array
from simulator.engines.model_kernels import OfModels
from simulator.hardware.achievable import PrefillAttention
from simulator.hardware.hardware import Hardware
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Op
from simulator.profile import BytesPerS, Number, Positive, Strict


class LatentPrompts(Strict):
    """Latent attention of prompts in Triton's kernel: `rows` queries of a head load each latent vector from caches.

    As keys and again as values, one load after the other, so that a multiprocessor multiplies no more than `rows` of
    them with what it loads, `bytes_per_s`.
    """

    rows: Positive
    bytes_per_s: BytesPerS

    def flops_per_s(self, multiprocessors: float) -> float:
        """Return the FLOP/s at which tiles are loaded: two for each row and number, of two bytes.

        >>> from simulator.engines.engine import load_engine
        >>> from simulator.hardware.hardware import load_hardware
        >>> triton = load_engine("sglang").kernels_on(load_hardware("h100-sxm")).rules.split_decode
        >>> f"{triton.latent_prompts.flops_per_s(132) / 1e12:.0f} TFLOP/s"
        '80 TFLOP/s'
        """
        return float(multiprocessors * self.rows * self.bytes_per_s)


class SplitDecode(Strict):
    """Flash decoding in Triton: a block of threads waits for each tile of a part of a sequence's cache.

    So it reads no faster than `block_bytes_per_s`, whatever the bandwidth of the device, and a sequence has few blocks.
    It runs where the engine has no other kernel, latent attention on the families `latent`, or where it is asked for.
    Where it is asked for, prompts run in Triton, too, at the rate `prefill` of a family of devices; on others theirs is
    not known, and is taken to be the device's own. `other_latent_heads`: of a rank, whose latent attention has a kernel
    of its own; `other_widths`: of heads in layers without a window, likewise. `models`: whose attention runs in it by
    default, all of it, as if it were asked for. `latent_prompts`: prompts attend to latent vectors as decodes do where
    any of a step has a cached prefix; none: they attend to keys and values.
    """

    parts: Positive  # of the cache of one sequence, at most
    heads: Positive  # query heads of a block; those of a KV head beyond them read the cache again
    block_bytes_per_s: BytesPerS
    blocks: Positive  # at work on a multiprocessor at once
    latent: tuple[str, ...] = ()
    latent_parts: Positive | None = None  # as `parts`, of latent attention; none: as many
    other_latent_heads: tuple[int, ...] = ()
    other_widths: tuple[int, ...] = ()
    latent_copies: Number | None = None  # kernels that put queries together, and latent vectors, for latent attention
    latent_prompts: LatentPrompts | None = None
    everywhere: bool = False
    models: OfModels | None = None
    prefill: dict[str, PrefillAttention] = {}

    def asked(self) -> Self:
        """Return the same kernel, run wherever there is attention."""
        return self.model_copy(update={"everywhere": True})

    def holds(self, hardware: Hardware, op: Op) -> bool:
        """Tell whether decode attention runs in it on a device whose multiprocessors are known."""
        if hardware.multiprocessors is None or not op.attending_heads:
            return False
        if op.latent_heads and op.shared_by in self.other_latent_heads:
            return False
        latent = op.latent_heads > 0 and hardware.family in self.latent
        return latent or (self.everywhere and unwindowed_width(op) not in self.other_widths)

    def prompts(self, hardware: Hardware) -> PrefillAttention | None:
        """Return the rate of attention of prompts where Triton was asked for; None where it is the device's own."""
        return self.prefill.get(hardware.family) if self.everywhere else None

    def seconds(self, hardware: Hardware, op: Op, counts: Counts) -> Array:
        """Return the seconds in which its blocks read the cache of all decoding sequences; shape of the counts.

        T = g B / (r min(n p, P)): B bytes of the cache, read by g blocks of heads of each KV head; n sequences of p
        blocks, P at work on the device at once, each at r bytes/s. Without sequences (a slope of StepTable): P blocks.

        >>> from simulator.hardware.hardware import load_hardware
        >>> from simulator.engines.engine import load_engine
        >>> h100 = load_hardware("h100-sxm")
        >>> triton = load_engine("sglang").kernels_on(h100).rules.split_decode
        >>> read = Op("", "decode_attention", cache_bytes=Counts(decode_reads=4096.0), heads=32, shared_by=4)
        >>> f"{triton.seconds(h100, read, Counts(1.0, 1.0, decode_reads=1.0)) * 1e9:.1f} ns"
        '12.3 ns'
        """
        groups = math.ceil(op.shared_by / self.heads)
        kv_heads = op.attending_heads / op.shared_by  # or latent vectors, x a rank's share of the batch
        at_once = float(hardware.multiprocessors or 0.0) * self.blocks
        sequences = (counts.tokens - counts.prefill_tokens) / np.maximum(counts.steps, 1.0)
        parts = self.latent_parts if op.latent_heads and self.latent_parts else self.parts
        blocks = np.where(sequences > 0, np.minimum(sequences * groups * kv_heads * parts, at_once), at_once)
        found: Array = groups * counts.dot(op.cache_bytes) / (self.block_bytes_per_s * blocks)
        return found


def unwindowed_width(op: Op) -> int:
    """Return the columns of a KV head of an op whose layers have no window; 0 for windows and for latent attention."""
    read = float(op.cache_bytes.decode_reads)
    if not op.heads or not read:
        return 0
    return round(read * op.shared_by / (2.0 * op.heads * number_format(op.cache_format).size_bytes))
