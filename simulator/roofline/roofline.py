"""Roofline of each op: its FLOPs and bytes over the rates that a device achieves -> seconds, and what binds it."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from simulator.arrays import Array
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.kernel_rules import CAPTURED_TOKENS
from simulator.hardware.achievable import PeakName
from simulator.hardware.hardware import require
from simulator.models.number_formats import number_format, type_name
from simulator.models.operations import Counts, Op, pairs
from simulator.profile import Figure
from simulator.roofline.bandwidth import HIGHEST_MEMORY_FRACTION, elementwise_bytes_per_s
from simulator.roofline.collectives import Links
from simulator.roofline.decode_attention import CONVERSION_FLOPS, DecodeAttentionRates
from simulator.roofline.gemm_rates import GemmRates
from simulator.roofline.op_time import OpTime
from simulator.roofline.speed_of_light import no_peak
from simulator.roofline.weight_only import unpacked

LONG_PROMPT = 4096  # tokens at which fused attention is compared with unfused (KernelRules.fuses_if_faster)


class Rates:
    """Achieved rates of an engine's kernels on a device; LightRates are those of its data sheet.

    `context_tokens`: of one sequence at most, by which paged attention of vLLM V0 chooses its shared memory.
    `seconds_alone`: times have their seconds and nothing that these are made of, for tables of many steps.
    """

    def __init__(
        self,
        kernels: DeviceKernels,
        *,
        context_tokens: int = CAPTURED_TOKENS,
        seconds_alone: bool = False,
    ) -> None:
        self.kernels, self.hardware, self.seconds_alone = kernels, kernels.hardware, seconds_alone
        self.decoding = DecodeAttentionRates(kernels, context_tokens)
        self.gemms = GemmRates(kernels)
        self._links = Links(kernels)
        self._time: dict[str, Callable[[Op, Counts], OpTime]] = {
            "gemm": self._gemm,
            "decode_attention": self._decode_attention,
            "prefill_attention": self._prefill_attention,
            "elementwise": self._elementwise,
            **dict.fromkeys(("all_reduce", "all_to_all", "send", "host_link"), self._linked),
        }

    def time(self, op: Op, counts: Counts) -> OpTime:
        """Return the time of all repeats of an op in a step, or in an array of steps.

        Raises ProfileError where the device's profile lacks a figure that the op rests on.
        """
        return self._time[op.rate](op, counts).map(lambda field: field * op.repeats)

    def peak(self, stored: str) -> tuple[PeakName, float]:
        """Return the type a format is multiplied in on the device, and its dense peak in FLOP/s.

        Raises ProfileError where the device has no peak for any type that the format can be multiplied in.
        """
        own, *wider = number_format(stored).compute
        weight_only = self.kernels.rules.weight_only
        if (experts := self.kernels.experts_of(stored, None)) and experts.inputs:
            own = experts.inputs
        peaks = self.peaks(stored)[1]
        for name in wider if stored in weight_only else (own, *wider):
            if name in peaks and name not in weight_only:
                return name, peaks[name]
        raise no_peak(self.hardware, stored)

    def peaks(self, stored: str) -> tuple[str, dict[PeakName, Figure]]:
        """Return the unit that multiplies a format, as a field of Hardware, and its peaks in FLOP/s."""
        rules = self.kernels.rules
        vector = rules.vector_only and type_name(stored) not in rules.amx
        if vector and self.hardware.vector_flops_per_s:
            return "vector_flops_per_s", self.hardware.vector_flops_per_s
        return "peak_flops_per_s", self.hardware.peak_flops_per_s

    def unpacks(self, stored: str) -> bool:
        """Whether weights of a format are unpacked to a wider type before they are multiplied."""
        return number_format(stored).unpacked_for(self.peak(stored)[0])

    def clocked(self, op: Op) -> bool:
        """Whether the rate of a GEMM goes by the clock of the device (KernelRules.clocked_gemms)."""
        return self.kernels.clocked_flops_per_s(self.peak(op.format)[0], op) < math.inf

    def _gemm(self, op: Op, counts: Counts) -> OpTime:
        """Return the time of a GEMM, and with many rows of the kernel before it, if one unpacks weights into memory."""
        few = self._multiplied(op, counts)
        apart = unpacked(op, counts, self.kernels, self.peak(op.format)[0])
        if apart is None:
            return few
        moved, many = apart.moved_bytes, self._multiplied(apart.op, counts)
        moved_s = moved / elementwise_bytes_per_s(self.hardware)
        many = many._replace(moved_bytes=many.moved_bytes + moved, memory_s=many.memory_s + moved_s)
        return many._replace(seconds=many.seconds + moved_s).where(apart.holds, few)

    def _multiplied(self, op: Op, counts: Counts) -> OpTime:
        """T = kernel + t0 (GemmRates.seconds)."""
        found = self.gemms.seconds(op, counts, *self.peak(op.format))
        alone_s = {"compute_s": found.compute_s, "memory_s": found.memory_s}
        return self._made(op, counts, found.kernel_s, found.launch_s, **alone_s)

    def _decode_attention(self, op: Op, counts: Counts) -> OpTime:
        """T = t0 + the longer of what attention computes and reads (DecodeAttentionRates)."""
        found = self.decoding.seconds(op, counts, self._prefill_rates()[0] * self.peak(op.format)[1])
        kernel_s = np.maximum(found.compute_s, found.memory_s)
        return self._made(op, counts, kernel_s, found.launch_s, compute_s=found.compute_s, memory_s=found.memory_s)

    def constants(self, op: Op) -> Iterator[tuple[str, Figure]]:
        """Yield the figures in Python, not in a profile, that the predicted time of an op rests on, each by name."""
        if op.rate == "gemm":
            yield from self.gemms.constants(self.peak(op.format)[0], op)
        rates = self.hardware.achievable
        if op.rate == "decode_attention" and rates.decode_attention:
            if self.decoding.cache_fraction(rates.decode_attention, op) == HIGHEST_MEMORY_FRACTION:
                yield "highest fraction of the bandwidth", HIGHEST_MEMORY_FRACTION
            if op.heads and self.decoding.converts(op):
                yield "FLOPs to convert an fp8 number", CONVERSION_FLOPS
        yield from self._links.constants(op)

    def _prefill_attention(self, op: Op, counts: Counts) -> OpTime:
        """T = f (pairs + tokens S_half / 2) / (c P): the share c S / (S + S_half) of the peak over S tokens.

        A chunk with a long past has many pairs per token and so reaches a higher share, as measured.
        """
        return self._unfused_attention(op, counts) if self.writes_scores(op) else self._fused_attention(op, counts)

    def writes_scores(self, op: Op) -> bool:
        """Whether attention of prompts is two GEMMs, and the scores between them pass through memory."""
        return bool(self.kernels.rules.score_bytes) and not self.fuses(op)

    def fuses(self, op: Op) -> bool:
        """Whether attention is fused where it may be either: if a prompt of `LONG_PROMPT` tokens is faster so.

        One kernel for all lengths keeps attention linear in its counts.
        """
        if not self.kernels.rules.fuses_if_faster:
            return False
        causal = float(pairs(LONG_PROMPT, 0))
        prompt = Counts(1.0, *(float(LONG_PROMPT),) * 2, prefill_tokens=float(LONG_PROMPT), prefill_pairs=causal)
        prompt = prompt._replace(prefill_pairs_windowed=causal)
        return bool(self._fused_attention(op, prompt).seconds <= self._unfused_attention(op, prompt).seconds)

    def _fused_attention(self, op: Op, counts: Counts) -> OpTime:
        compute, half_tokens = self._prefill_rates()
        of_pair = max(op.flops.prefill_pairs, op.flops.prefill_pairs_windowed)
        flops_per_s = self.kernels.vector_attention_flops_per_s(op) or compute * self.peak(op.format)[1]
        loaded_per_s = min(self.kernels.reread_flops_per_s(op), self.kernels.latent_flops_per_s(op))
        waits = max(1.0, flops_per_s / loaded_per_s)
        flops = waits * counts.dot(op.flops) + of_pair * counts.prefill_tokens * half_tokens / 2
        compute_s = self.kernels.head_padding(op) * flops / flops_per_s
        memory_s = op.bytes_read(counts) / self.hardware.memory_bytes_per_s
        return self._made(op, counts, compute_s, compute_s=compute_s, memory_s=memory_s)

    def _unfused_attention(self, op: Op, counts: Counts) -> OpTime:
        """T = F / (c P) + s n / (m W): two GEMMs, and n scores of s bytes that pass through memory between them."""
        flops = counts.dot(op.flops)
        scores = flops / max(op.flops) * op.heads
        name, peak = self.peak(op.format)
        gemm = self.gemms.achieved(name, op)
        compute_s = flops / (gemm.compute * peak)
        memory_s = scores * self.kernels.rules.score_bytes / (gemm.memory * self.hardware.memory_bytes_per_s)  # type: ignore[operator]
        return self._made(op, counts, compute_s + memory_s, compute_s=compute_s, memory_s=memory_s)

    def _prefill_rates(self) -> tuple[float, float]:
        require(self.hardware, "prefill_attention")
        rates, fitted = self.hardware.achievable.prefill_attention, self.kernels.fitted
        own = self.kernels.rules.split_decode.prompts(self.hardware) if self.kernels.rules.split_decode else None
        if own is not None:
            return own.compute_fraction, own.half_length_tokens
        return min(rates.compute_fraction * fitted.attention, 1.0), rates.half_length_tokens * fitted.half_length  # type: ignore[union-attr]

    def _elementwise(self, op: Op, counts: Counts) -> OpTime:
        """T = B / (m W) + launches: a norm, an activation, a rotation, a copy."""
        own_s = float(self.hardware.achievable.elementwise_launch_s or 0.0)
        own_s *= not self.kernels.overlaps_routed_experts(op)
        launch_s = own_s * self.kernels.fitted.launch * (op.launches + self.kernels.norm_launches(op))
        memory_s = op.bytes_read(counts) / elementwise_bytes_per_s(self.hardware)
        if op.experts is not None and op.experts.ranks > 1:
            memory_s = memory_s * op.experts.busiest_tokens(counts.tokens)
        return self._made(op, counts, memory_s, launch_s, memory_s=memory_s)

    def _linked(self, op: Op, counts: Counts) -> OpTime:
        link_s, latency_s = self._links.transfer(op, counts)
        return self._made(op, counts, link_s, latency_s, link_s=link_s)

    def _made(self, op: Op, counts: Counts, kernel_s: Array, launch_s: float = 0.0, **alone_s: Array) -> OpTime:
        """Return the time of an op; `alone_s`: seconds of each resource on its own (compute_s, memory_s, link_s)."""
        overhead_s = launch_s * counts.steps
        if self.seconds_alone:
            return OpTime(op.name, seconds=kernel_s + overhead_s)
        return OpTime(
            name=op.name,
            flops=counts.dot(op.flops),
            moved_bytes=op.bytes_read(counts),
            link_bytes=counts.dot(op.link_bytes),
            compute_s=alone_s.get("compute_s", 0.0),
            memory_s=alone_s.get("memory_s", 0.0),
            link_s=alone_s.get("link_s", 0.0),
            overhead_s=overhead_s,
            seconds=kernel_s + overhead_s,
        )
