"""From an op to seconds: its work over the rates that a device achieves, and what binds it."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from simulator.engines.kernel_rules import CAPTURED_TOKENS, WIDE_BYTES, Kernels
from simulator.errors import ProfileError
from simulator.hardware.hardware import Gemm, Hardware, PeakName, require
from simulator.models.number_formats import number_format
from simulator.models.operations import NOTHING, Array, Counts, Op
from simulator.roofline.collectives import Links


class Cost(NamedTuple):
    """What one op costs: the work, the time of each resource alone, and the seconds predicted for it."""

    name: str
    flops: Array
    moved_bytes: Array
    link_bytes: Array
    compute_s: Array
    memory_s: Array
    link_s: Array
    overhead_s: Array
    seconds: Array

    @property
    def bound(self) -> str:
        """The resource that takes longest: compute, memory, link or overhead."""
        return max(("compute", "memory", "link", "overhead"), key=lambda name: float(getattr(self, f"{name}_s")))


def mostly_bound(costs: Iterable[Cost]) -> tuple[str, float]:
    """Return the resource that binds the ops that take most of the time, and the share of the time that they take."""
    seconds: dict[str, float] = {}
    for cost in costs:
        seconds[cost.bound] = seconds.get(cost.bound, 0.0) + float(cost.seconds)
    resource = max(seconds, key=lambda name: seconds[name])
    return resource, seconds[resource] / sum(seconds.values())


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


PANEL = 128  # columns of weights that one multiprocessor multiplies
# Derived: tables of experts (aiconfigurator-core 0.12.0), whose shares of the roofline at 256 and 16,384 tokens leave
# 1.0 to 1.3 for the exponent at 4,096: bf16 and fp8 on H100, nvfp4 on B200
EXPERTS_EXPONENT = 1.2
# Of fp32, to turn an fp8 number into fp16 in software: a guess, between A100s in vLLM (104) and in TensorRT-LLM (49)
CONVERSION_FLOPS = 70.0
STREAMED = 0.95  # of the bandwidth: what streams of weights or of a cache reach at most (an LM head on the RTX 4090)


class Rates:
    """The rates that kernels reach on a device; `light` replaces them with the data sheet's peaks and no overhead."""

    def __init__(
        self,
        hardware: Hardware,
        kernels: Kernels | None = None,
        *,
        light: bool = False,
        context_tokens: int = CAPTURED_TOKENS,
    ) -> None:
        self.hardware, self.light, self.context_tokens = hardware, light, context_tokens
        self.kernels = kernels or Kernels()
        self._links = Links(hardware, self.kernels, light=light)
        self._cost: dict[str, Callable[[Op, Counts], Cost]] = {
            "gemm": self._gemm,
            "decode_attention": self._decode_attention,
            "prefill_attention": self._prefill_attention,
            "stream": self._stream,
            **dict.fromkeys(("all_reduce", "all_to_all", "send", "host_link"), self._linked),
        }

    def cost(self, op: Op, counts: Counts) -> Cost:
        """Return what all repeats of an op cost in a batch."""
        cost = self._cost[op.rate](op, counts)
        return Cost(cost.name, *(field * op.repeats for field in cost[1:]))

    def peak(self, stored: str) -> tuple[PeakName, float]:
        """Return the type a format is multiplied in on the device, and its dense peak in FLOP/s."""
        own, *wider = number_format(stored).compute
        widened = () if self.light else self.kernels.widened
        for name in wider if stored in widened else (own, *wider):
            if name in self.hardware.peak_flops_per_s and name not in widened:
                return name, self.hardware.peak_flops_per_s[name]
        raise ProfileError(f"{self.hardware.name} with {stored}", "the profile has no peak for it", "Add one")

    def unpacks(self, stored: str) -> bool:
        """Whether weights of a format are unpacked to a wider type before they are multiplied."""
        return number_format(stored).unpacked_for(self.peak(stored)[0])

    def _gemm(self, op: Op, counts: Counts) -> Cost:
        name, peak = self.peak(op.format)
        gemm = _IDEAL_GEMM if self.light else self.achieved(name, op)
        compute_s = counts.dot(op.flops) / (gemm.compute * peak) * self._unpacking(op, counts)
        rows = 1.0 if self.light else self.kernels.share_of_rows(op, counts.tokens, self.hardware)
        memory_s = op.bytes_read(counts) / (gemm.memory * rows * self.hardware.memory_bytes_per_s)
        if not self.light:
            compute_s = compute_s * self.kernels.padding(op, counts.tokens, unpacked=self.unpacks(op.format))
        if op.experts is not None and op.experts.ranks > 1 and not self.light:  # the others wait for the busiest rank
            compute_s = compute_s * op.experts.busiest_tokens(counts.tokens)
            memory_s = memory_s * op.experts.busiest_experts(counts.tokens)
        kernel_s = soft_maximum(compute_s, np.maximum(memory_s, gemm.panel_s * counts.steps), gemm.exponent)
        kernel_s = kernel_s + self._prepared_s(name, op, counts)
        return _cost(op, counts, kernel_s, gemm.launch_s, compute_s=compute_s, memory_s=memory_s)

    def _prepared_s(self, name: PeakName, op: Op, counts: Counts) -> Array:
        """Return the seconds in which kernels of their own sort inputs of experts, and quantise those of block scales.

        The latter reads numbers of 16 bits and writes bytes. How it starts is part of the product's own start.
        """
        late = name == "fp8" and number_format(op.format).scaled_late
        shared = op.shared_inputs != NOTHING
        sorts = shared and self.kernels.sorts_inputs
        if self.light or not (late or sorts):
            return 0.0
        taken = counts.dot(op.flops) / (2.0 * op.columns)
        quantised = counts.dot(op.shared_inputs) if shared and not sorts else taken
        size = WIDE_BYTES if late or name not in ("fp8", "fp4") else number_format(op.format).size_bytes
        moved_bytes = 2.0 * size * sorts * taken + (WIDE_BYTES + 1.0) * late * quantised
        return moved_bytes / self._stream_bytes_per_s

    @property
    def _stream_bytes_per_s(self) -> float:
        """Bytes per second of kernels that move numbers and hardly compute."""
        if self.light:
            return float(self.hardware.memory_bytes_per_s)
        require(self.hardware, "stream_memory_fraction")
        return float(self.hardware.achievable.stream_memory_fraction) * self.hardware.memory_bytes_per_s  # type: ignore[arg-type]

    def _unpacking(self, op: Op, counts: Counts) -> Array:
        """Return (1 + u / n): a number takes u products to unpack on a CPU, which then serve n tokens."""
        at_once, products = self.kernels.unpack_tokens, number_format(op.format).unpacking
        if self.light or not at_once or not products:
            return 1.0
        share = op.experts.chosen / op.experts.total if op.experts else 1.0
        tokens = counts.dot(op.flops) / max(op.flops) * share
        return 1.0 + products / np.clip(tokens, 1.0, float(at_once))

    def achieved(self, name: PeakName, op: Op) -> "AchievedGemm":
        """Return the shares of the compute peak and the bandwidth that an engine's product reaches, and its launch."""
        gemm: Gemm | None = self.hardware.achievable.gemm.get(name)
        if gemm is None:
            raise ProfileError(f"{self.hardware.name} {name}", "no achievable gemm rates are known", "Add them")
        ours, stored = self.kernels, number_format(op.format)
        compute = gemm.compute_fraction * ours.compute_share(name, op)
        compute *= ours.unpacked if stored.unpacked_for(name) else 1.0
        streamed = self.hardware.achievable.best_memory_fraction if ours.streams else gemm.memory_fraction
        memory = streamed * ours.memory * (ours.packed if stored.unpacked_for(name) else 1.0)
        shares = min(compute, 1.0), min(memory, max(STREAMED, streamed))
        start_s = ours.start_s(self.hardware.achievable, name, op)
        return AchievedGemm(*shares, start_s, exponent_of(gemm, op), panel_s(gemm, op))

    def _decode_attention(self, op: Op, counts: Counts) -> Cost:
        """T = t0 + max(F / (c P) + t_fp8, B / (m W), B g / (h W)); linear in the tokens read, so that steps add up.

        The last term where each of the g query heads of a group reads the cache for itself (Kernels.per_head).
        """
        compute, memory, launch_s = 1.0, 1.0, 0.0
        if not self.light:
            require(self.hardware, "decode_attention")
            rates = self.hardware.achievable.decode_attention
            compute = self._prefill_rates()[0]
            reached = float(rates.memory_fraction)  # type: ignore[union-attr]
            memory = min(reached * self.kernels.cache, max(STREAMED, reached))
            launch_s = rates.launch_s * self.kernels.launch  # type: ignore[union-attr]
        compute_s = counts.dot(op.flops) / (compute * self.peak(op.format)[1])
        memory_s = op.bytes_read(counts) / (memory * self.hardware.memory_bytes_per_s)
        if op.heads and not self.light:
            compute_s = compute_s + self._conversion_s(op, counts)
            if self.kernels.reads_per_head(op.cache_format, op.shared_by):
                heads = op.heads / self.hardware.seen_as * (counts.tokens - counts.prefill_tokens)
                alone = self.kernels.share_per_head(heads, self.context_tokens, op.cache_format) / op.shared_by
                memory_s = memory_s * np.maximum(1.0, memory / alone)
        return _cost(op, counts, np.maximum(compute_s, memory_s), launch_s, compute_s=compute_s, memory_s=memory_s)

    def _conversion_s(self, op: Op, counts: Counts) -> Array:
        """Return the seconds in which a device of a known fp32 peak and no fp8 converts an fp8 cache, for each head."""
        if op.cache_format != "fp8" or "fp8" in self.hardware.peak_flops_per_s:
            return 0.0
        numbers = counts.dot(op.cache_bytes) * op.shared_by
        return numbers * CONVERSION_FLOPS / self.hardware.peak_flops_per_s.get("fp32", math.inf)

    def _prefill_attention(self, op: Op, counts: Counts) -> Cost:
        """T = f (pairs + tokens S_half / 2) / (c P): the share c S / (S + S_half) of the peak over S tokens.

        A chunk with a long past has many pairs per token and so reaches a higher share, as measured.
        """
        if self.kernels.score_bytes and not self.light:
            return self._unfused_attention(op, counts)
        compute, half_tokens = (1.0, 0.0) if self.light else self._prefill_rates()
        flops = counts.dot(op.flops) + max(op.flops) * counts.prefill_tokens * half_tokens / 2
        compute_s = flops / (compute * self.peak(op.format)[1])
        memory_s = op.bytes_read(counts) / self.hardware.memory_bytes_per_s
        return _cost(op, counts, compute_s, compute_s=compute_s, memory_s=memory_s)

    def _unfused_attention(self, op: Op, counts: Counts) -> Cost:
        """T = F / (c P) + s n / (m W): two products, and n scores of s bytes that pass through memory between them."""
        flops = counts.dot(op.flops)
        scores = flops / max(op.flops) * op.heads
        name, peak = self.peak(op.format)
        product = self.achieved(name, op)
        compute_s = flops / (product.compute * peak)
        memory_s = scores * self.kernels.score_bytes / (product.memory * self.hardware.memory_bytes_per_s)  # type: ignore[operator]
        return _cost(op, counts, compute_s + memory_s, compute_s=compute_s, memory_s=memory_s)

    def _prefill_rates(self) -> tuple[float, float]:
        require(self.hardware, "prefill_attention")
        rates, ours = self.hardware.achievable.prefill_attention, self.kernels
        return min(rates.compute_fraction * ours.attention, 1.0), rates.half_length_tokens * ours.half_length  # type: ignore[union-attr]

    def _stream(self, op: Op, counts: Counts) -> Cost:
        launch_s = 0.0
        if not self.light:
            launch_s = float(self.hardware.achievable.stream_launch_s or 0.0) * self.kernels.launch * op.launches
        memory_s = op.bytes_read(counts) / self._stream_bytes_per_s
        if op.experts is not None and op.experts.ranks > 1 and not self.light:
            memory_s = memory_s * op.experts.busiest_tokens(counts.tokens)
        return _cost(op, counts, memory_s, launch_s, memory_s=memory_s)

    def _linked(self, op: Op, counts: Counts) -> Cost:
        link_s, latency_s = self._links.transfer(op, counts)
        return _cost(op, counts, link_s, latency_s, link_s=link_s)


class AchievedGemm(NamedTuple):
    """What a matrix product reaches: shares of the peaks, its launch, the soft maximum, seconds of a panel (Gemm)."""

    compute: float
    memory: float
    launch_s: float
    exponent: float
    panel_s: float = 0.0


def exponent_of(gemm: Gemm, op: Op) -> float:
    """Return p of the soft maximum; of routed experts `EXPERTS_EXPONENT` at most: few rows for each weight read."""
    own = math.inf if gemm.exponent is None else float(gemm.exponent)
    return own if op.experts is None else min(own, EXPERTS_EXPONENT)


def panel_s(gemm: Gemm, op: Op) -> float:
    """Return the seconds in which one multiprocessor streams its `PANEL` columns; 0 where its rate is not known."""
    if not gemm.panel_bytes_per_s or not op.columns:
        return 0.0
    return op.weight_bytes * PANEL / op.columns / gemm.panel_bytes_per_s


_IDEAL_GEMM = AchievedGemm(1.0, 1.0, 0.0, float("inf"))


def _cost(op: Op, counts: Counts, kernel_s: Array, launch_s: float = 0.0, **alone_s: Array) -> Cost:
    """Put a cost together; `alone_s` are the seconds of each resource on its own (compute_s, memory_s, link_s)."""
    overhead_s = launch_s * counts.steps
    return Cost(
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
