"""From a batch to seconds: every op over the rates that a device achieves, summed; and what binds it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.engine import Kernels, Overheads
from simulator.errors import NotModelledError, ProfileError
from simulator.hardware import Collective, Gemm, Hardware, PeakName, require
from simulator.work import FORMATS, Array, Counts, Op

NODE_DEVICES = 8  # reached over PCIe where no link goes further
SEND_LATENCY_S = 10e-6  # point to point; aiconfigurator-core 0.12.0 default


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
    if exponent == float("inf"):
        return _unboxed(high)
    ratio = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
    return _unboxed(high * (1.0 + ratio**exponent) ** (1.0 / exponent))


def _unboxed(value: npt.NDArray[np.float64]) -> Array:
    return float(value) if value.ndim == 0 else value


class Rates:
    """The rates that kernels reach on a device; `light` replaces them with the data sheet's peaks and no overhead."""

    def __init__(self, hardware: Hardware, kernels: Kernels | None = None, *, light: bool = False) -> None:
        self.hardware, self.light = hardware, light
        self.kernels = kernels or Kernels()
        self._cost: dict[str, Callable[[Op, Counts], Cost]] = {
            "gemm": self._gemm,
            "decode_attention": self._decode_attention,
            "prefill_attention": self._prefill_attention,
            "stream": self._stream,
            "all_reduce": self._all_reduce,
            "send": self._send,
        }

    def cost(self, op: Op, counts: Counts) -> Cost:
        """Return what all repeats of an op cost in a batch."""
        cost = self._cost[op.rate](op, counts)
        return Cost(cost.name, *(field * op.repeats for field in cost[1:]))

    def peak(self, number_format: str) -> tuple[PeakName, float]:
        """Return the type a device multiplies a format in, and its dense peak in FLOP/s."""
        for name in FORMATS[number_format].compute:
            if name in self.hardware.peak_flops_per_s:
                return name, self.hardware.peak_flops_per_s[name]
        raise ProfileError(f"{self.hardware.name} with {number_format}", "the profile has no peak for it", "Add one")

    def _gemm(self, op: Op, counts: Counts) -> Cost:
        name, peak = self.peak(op.format)
        gemm = _IDEAL_GEMM if self.light else self._achieved_gemm(name, op)
        compute_s = counts.dot(op.flops) / (gemm.compute * peak)
        memory_s = op.bytes_read(counts) / (gemm.memory * self.hardware.memory_bytes_per_s)
        kernel_s = soft_maximum(compute_s, memory_s, gemm.exponent)
        return _cost(op, counts, kernel_s, gemm.launch_s, compute_s=compute_s, memory_s=memory_s)

    def _achieved_gemm(self, name: PeakName, op: Op) -> "_Gemm":
        gemm: Gemm | None = self.hardware.achievable.gemm.get(name)
        if gemm is None:
            raise ProfileError(f"{self.hardware.name} {name}", "no achievable gemm rates are known", "Add them")
        exponent = float("inf") if gemm.exponent is None else float(gemm.exponent)
        ours, stored = self.kernels, FORMATS[op.format]
        compute = gemm.compute_fraction * ours.compute * (ours.experts_share(name) if op.experts else 1.0)
        compute *= ours.unpacked if stored.is_packed else 1.0
        memory = gemm.memory_fraction * ours.memory * (ours.packed if stored.is_packed else 1.0)
        return _Gemm(min(compute, 1.0), min(memory, 1.0), gemm.launch_s * ours.launch * op.launches, exponent)

    def _decode_attention(self, op: Op, counts: Counts) -> Cost:
        """T = t0 + max(F / (c P), B / (m W)); linear in the tokens read, so that steps can be added up."""
        compute, memory, launch_s = 1.0, 1.0, 0.0
        if not self.light:
            require(self.hardware, "decode_attention")
            rates = self.hardware.achievable.decode_attention
            compute = self._prefill_rates()[0]
            memory = min(rates.memory_fraction * self.kernels.cache, 1.0)  # type: ignore[union-attr]
            launch_s = rates.launch_s * self.kernels.launch  # type: ignore[union-attr]
        compute_s = counts.dot(op.flops) / (compute * self.peak(op.format)[1])
        memory_s = op.bytes_read(counts) / (memory * self.hardware.memory_bytes_per_s)
        kernel_s = soft_maximum(compute_s, memory_s, float("inf"))
        return _cost(op, counts, kernel_s, launch_s, compute_s=compute_s, memory_s=memory_s)

    def _prefill_attention(self, op: Op, counts: Counts) -> Cost:
        """T = f (pairs + tokens S_half / 2) / (c P): the share c S / (S + S_half) of the peak over S tokens.

        A chunk with a long past has many pairs per token and so reaches a higher share, as measured.
        """
        compute, half_tokens = (1.0, 0.0) if self.light else self._prefill_rates()
        per_pair = max(op.flops)
        flops = counts.dot(op.flops)
        compute_s = (flops + per_pair * counts.prefill_tokens * half_tokens / 2) / (compute * self.peak(op.format)[1])
        memory_s = op.bytes_read(counts) / self.hardware.memory_bytes_per_s
        return _cost(op, counts, compute_s, compute_s=compute_s, memory_s=memory_s)

    def _prefill_rates(self) -> tuple[float, float]:
        require(self.hardware, "prefill_attention")
        rates = self.hardware.achievable.prefill_attention
        return min(rates.compute_fraction * self.kernels.attention, 1.0), rates.half_length_tokens  # type: ignore[union-attr]

    def _stream(self, op: Op, counts: Counts) -> Cost:
        fraction = 1.0
        if not self.light:
            require(self.hardware, "stream_memory_fraction")
            fraction = float(self.hardware.achievable.stream_memory_fraction)  # type: ignore[arg-type]
        memory_s = op.bytes_read(counts) / (fraction * self.hardware.memory_bytes_per_s)
        return _cost(op, counts, memory_s, memory_s=memory_s)

    def _all_reduce(self, op: Op, counts: Counts) -> Cost:
        """T = latency + 2 (n-1)/n bytes / bus bandwidth."""
        devices = op.link_devices
        latency_s, bus_bytes_per_s = self._collective(devices)
        link_s = counts.dot(op.link_bytes) * 2 * (devices - 1) / devices / bus_bytes_per_s
        return _cost(op, counts, link_s, latency_s, link_s=link_s)

    def _collective(self, devices: int) -> tuple[float, float]:
        link = self.hardware.link
        reach = max(NODE_DEVICES, link.devices if link else 0)
        if devices > reach:
            given = f"{devices} devices of {self.hardware.name}"
            raise NotModelledError(given, f"a tensor-parallel group beyond {reach} crosses nodes", "Lower tp; use pp")
        if self.light:
            return 0.0, self._link_bytes_per_s()
        known: dict[int, Collective] = self.hardware.achievable.all_reduce
        size = min((each for each in known if each >= devices), default=max(known, default=0))
        if not size:
            raise ProfileError(self.hardware.name, "no achievable all_reduce is known", "Add one")
        return known[size].latency_s * self.kernels.link, known[size].bus_bytes_per_s / self.kernels.link

    def _link_bytes_per_s(self) -> float:
        if self.hardware.link:
            return self.hardware.link.bytes_per_s
        if self.hardware.pcie_bytes_per_s:
            return self.hardware.pcie_bytes_per_s
        raise NotModelledError(
            f"several {self.hardware.name}", "the profile has no link between devices", "Use one device"
        )

    def _send(self, op: Op, counts: Counts) -> Cost:
        link_s = counts.dot(op.link_bytes) / self._link_bytes_per_s()
        return _cost(op, counts, link_s, 0.0 if self.light else SEND_LATENCY_S, link_s=link_s)


class _Gemm(NamedTuple):
    compute: float
    memory: float
    launch_s: float
    exponent: float


_IDEAL_GEMM = _Gemm(1.0, 1.0, 0.0, float("inf"))


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


class StepTable(NamedTuple):
    """A step model tabulated for the event loop: seconds = token_s[T] + logit_s[n] + slopes . attention counts."""

    token_s: npt.NDArray[np.float64]
    logit_s: npt.NDArray[np.float64]
    slopes: npt.NDArray[np.float64]


SLOPES = ("decode_reads", "decode_reads_windowed", "prefill_tokens", "prefill_pairs", "prefill_pairs_windowed")


@dataclass(frozen=True)
class StepModel:
    """Seconds of one engine step, as the sum of its ops and the engine's host time."""

    ops: tuple[Op, ...]
    hardware: Hardware
    overheads: Overheads
    light: bool = False
    kernels: Kernels | None = None

    @cached_property
    def _rates(self) -> Rates:
        return Rates(self.hardware, self.kernels, light=self.light)

    def explain(self, counts: Counts) -> list[Cost]:
        """Return one row per op, in the order of execution, and one for the engine's host time."""
        host_s = 0.0 if self.light else self.overheads.step_s * counts.steps + self.overheads.sequence_s * counts.logits
        host = Cost("engine host time", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, host_s, host_s)
        return [*(self._rates.cost(op, counts) for op in self.ops), host]

    def seconds(self, counts: Counts) -> Array:
        """Return the seconds of a step."""
        return sum((cost.seconds for cost in self.explain(counts)), start=0.0)

    def table(self, max_tokens: int, max_sequences: int) -> StepTable:
        """Tabulate what depends on tokens alone and on sequences alone; the rest is linear."""
        tokens = np.arange(max_tokens + 1, dtype=np.float64)
        sequences = np.arange(max_sequences + 1, dtype=np.float64)
        by_sequence = [op for op in self.ops if op.flops.logits or op.link_bytes.logits]
        by_token = [op for op in self.ops if op not in by_sequence]
        token_s = self._only(by_token).seconds(Counts(steps=np.ones_like(tokens), tokens=tokens))
        logit_s = self._only(by_sequence).seconds(Counts(steps=np.ones_like(sequences), logits=sequences))
        host_s = 0.0 if self.light else self.overheads.step_s
        zero = float(self.seconds(Counts()))
        slopes = [float(self.seconds(Counts(**{name: 1.0}))) - zero for name in SLOPES]
        return StepTable(
            np.ascontiguousarray(token_s - host_s, dtype=np.float64),
            np.ascontiguousarray(logit_s, dtype=np.float64),
            np.array(slopes, dtype=np.float64),
        )

    def _only(self, ops: list[Op]) -> "StepModel":
        return replace(self, ops=tuple(ops))
