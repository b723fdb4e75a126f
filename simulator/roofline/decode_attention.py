"""Decode attention: reads of a KV cache, and what kernels on a device make of them."""

from typing import NamedTuple

import numpy as np

from simulator.arrays import Array
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.empty_blocks import EmptyBlocks
from simulator.engines.heads_alone import ChunkedDecode
from simulator.engines.split_decode import SplitDecode
from simulator.engines.wave_decode import WaveDecode
from simulator.hardware.achievable import DecodeAttention
from simulator.hardware.hardware import require
from simulator.models.operations import Counts, Op
from simulator.profile import Figure, Source
from simulator.roofline.bandwidth import at_most

CONVERSION_FLOPS = Figure(
    70.0,
    Source(
        text="fp32 FLOPs of an fp8 number's conversion to fp16: between A100s in vLLM (104) and in TensorRT-LLM (49)",
        date="2026-11-22",
        evidence="guess",
    ),
)


class DecodeSeconds(NamedTuple):
    """Seconds in which decode attention computes and reads, by step, and those before it starts."""

    compute_s: Array
    memory_s: Array
    launch_s: float


class DecodeAttentionRates:
    """Decode attention of an engine's kernels on a device.

    `context_tokens`: of one sequence at most, by which paged attention of vLLM V0 chooses its shared memory, and
    AITER's has blocks.
    """

    def __init__(self, kernels: DeviceKernels, context_tokens: int) -> None:
        self.hardware, self.kernels, self.context_tokens = kernels.hardware, kernels, context_tokens

    def seconds(self, op: Op, counts: Counts, flops_per_s: float) -> DecodeSeconds:
        """Return F / P + t_fp8, max(B / (m W), B g / (h W)) and t0; linear in the tokens read, so that steps add up.

        F: FLOPs, P: FLOP/s that attention reaches (`flops_per_s`), B: bytes of the cache, W: bytes/s, t0: launch,
        t_fp8: software conversion of an fp8 cache; F of whole tiles of query rows (DecodeTile). The last term where
        each of the g query heads of a group reads the cache for itself (reads_per_head). Not less than blocks of
        Triton's kernel take (SplitDecode), or heads that read chunks alone (ChunkedDecode), or than empty blocks take
        to be sent off (EmptyBlocks). In a kernel of one wave as much longer as multiprocessors idle and its tiles cost
        (WaveDecode).

        Raises ProfileError where the device's profile has no rates of decode attention.
        """
        compute_s = counts.dot(op.flops) / flops_per_s
        memory_s = op.bytes_read(counts) / self.hardware.memory_bytes_per_s
        require(self.hardware, "decode_attention")
        rates = self.hardware.achievable.decode_attention
        memory = self.cache_fraction(rates, op)  # type: ignore[arg-type]
        memory_s = memory_s / memory
        if op.heads:
            compute_s = compute_s * self.kernels.decode_padding(op) + self._conversion_s(op, counts)
            if self.kernels.reads_per_head(op):
                heads = op.heads / self.hardware.seen_as * (counts.tokens - counts.prefill_tokens)
                share = self.kernels.share_per_head(heads, self.context_tokens, op.cache_format)
                alone = share / op.shared_by
                memory_s = memory_s * np.maximum(1.0, memory / alone)
        if wave := self.wave(op):
            memory_s = memory_s * wave.slowdown(self.hardware, op, counts)
        for kernel in (self.split(op), self.chunked(op)):
            memory_s = np.maximum(memory_s, kernel.seconds(self.hardware, op, counts)) if kernel else memory_s
        if empty := self.empty(op):
            memory_s = np.maximum(memory_s, empty.seconds(op, counts, self.context_tokens))
        own_s = self.kernels.rules.state_start_s if op.updates_states else None
        start_s = (rates.launch_s if own_s is None else own_s) + self._copied_s(op)  # type: ignore[union-attr]
        return DecodeSeconds(compute_s, memory_s, start_s * self.kernels.fitted.launch)

    def split(self, op: Op) -> SplitDecode | None:
        """Return the kernel of attention that reads a sequence's cache in parts, None where an op runs in another."""
        split = self.kernels.rules.split_decode
        return split if split and split.holds(self.hardware, op) else None

    def wave(self, op: Op) -> WaveDecode | None:
        """Return the kernel of attention that runs in one wave of blocks, None where an op runs in another."""
        wave = self.kernels.rules.wave_decode
        return wave if wave and wave.holds(self.hardware, op) else None

    def _copied_s(self, op: Op) -> float:
        """Return the seconds before the copies that Triton's latent attention reads."""
        split = self.split(op) if op.latent_heads else None
        kernels = float(split.latent_copies or 0.0) if split else 0.0
        return kernels * float(self.hardware.achievable.elementwise_launch_s or 0.0)

    def empty(self, op: Op) -> EmptyBlocks | None:
        """Return what attention launches behind the ends of sequences; None where an op has no such blocks."""
        empty = self.kernels.rules.empty_blocks
        runs = empty and empty.holds(self.hardware, op) and not (op.updates_states or self.split(op))
        return empty if runs else None

    def chunked(self, op: Op) -> ChunkedDecode | None:
        """Return the kernel of attention within chunks, None where an op has none or runs in the usual kernel."""
        chunked = self.kernels.rules.chunked_decode
        return chunked if chunked and chunked.holds(self.hardware, op, self.context_tokens) else None

    def cache_figure(self, rates: DecodeAttention, op: Op) -> str:
        """Return the name of the figure of decode attention at which it reads an op's cache."""
        if op.latent_heads and rates.latent_memory_fraction:
            return "latent_memory_fraction"
        own = op.cache_format == "fp8" and self.kernels.rules.slow_fp8_cache and rates.fp8_memory_fraction
        return "fp8_memory_fraction" if own else "memory_fraction"

    def cache_fraction(self, rates: DecodeAttention, op: Op) -> float:
        """Return the share of the bandwidth at which decode attention reads the cache."""
        own = float(getattr(rates, self.cache_figure(rates, op)))
        return at_most(own * self.kernels.fitted.cache, own)

    def converts(self, op: Op) -> bool:
        """Whether attention reads an fp8 cache on a device of a known fp32 peak and no fp8."""
        peaks = self.hardware.peak_flops_per_s
        return op.cache_format == "fp8" and "fp8" not in peaks and "fp32" in peaks

    def _conversion_s(self, op: Op, counts: Counts) -> Array:
        """Return the seconds in which fp8 numbers of the cache are converted in software, for each query head."""
        if not self.converts(op):
            return 0.0
        numbers = counts.dot(op.cache_bytes) * op.shared_by
        return numbers * float(CONVERSION_FLOPS) / self.hardware.peak_flops_per_s["fp32"]
