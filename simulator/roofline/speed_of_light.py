"""The speed of light: what a data sheet's peaks allow an op, whatever kernels an engine has."""

import math
from collections.abc import Callable

import numpy as np

from simulator.arrays import Array
from simulator.engines.device_kernels import DeviceKernels
from simulator.errors import ProfileError
from simulator.hardware.hardware import Hardware
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Op
from simulator.roofline.between_nodes import Shape, least_all_reduce_s, least_all_to_all_s, network_of
from simulator.roofline.collectives import link_bytes_per_s, pcie_bytes_per_s, quick_reduced, sends_away
from simulator.roofline.op_time import OpTime


class LightRates:
    """Costs of ops at a device's peaks, without launches and latencies.

    Of an engine's kernels only what they multiply and send in fewer bits than data sheets and others do
    (KernelRules.sums_in_half, reduced_bits). `seconds_alone` as for `Rates`.
    """

    def __init__(self, kernels: DeviceKernels, *, seconds_alone: bool = False) -> None:
        self.hardware, self.seconds_alone = kernels.hardware, seconds_alone
        self.reduced_bits = kernels.rules.reduced_bits
        self.peaks = 2.0 if kernels.rules.sums_in_half else 1.0  # of a GEMM, over the data sheet's
        self._time: dict[str, Callable[[Op, Counts], OpTime]] = {
            "gemm": self._multiplied,
            "decode_attention": self._computed,
            "prefill_attention": self._prompts,
            "elementwise": self._moved,
        }
        self._link_s: dict[str, Callable[[Op, Counts], Array]] = {
            "all_reduce": self._all_reduce_s,
            "all_to_all": self._all_to_all_s,
            "send": self._send_s,
            "host_link": self._host_link_s,
        }

    def time(self, op: Op, counts: Counts) -> OpTime:
        """Return the time of all repeats of an op in a step, or in an array of steps.

        Raises ProfileError or NotModelledError where the device's profile lacks a peak or a link.
        """
        if op.rate in self._link_s:
            link_s = self._link_s[op.rate](op, counts)
            found = OpTime(op.name, link_s=link_s, seconds=link_s)
        else:
            found = self._time[op.rate](op, counts)
        if self.seconds_alone:
            return OpTime(op.name, seconds=found.seconds * op.repeats)
        flops, moved_bytes, link_bytes = counts.dot(op.flops), op.bytes_read(counts), counts.dot(op.link_bytes)
        found = found._replace(flops=flops, moved_bytes=moved_bytes, link_bytes=link_bytes)
        return found.map(lambda field: field * op.repeats)

    def peak_flops_per_s(self, stored: str) -> float:
        """Return the peak of the narrowest type in which the device multiplies a format."""
        peaks = self.hardware.peak_flops_per_s
        known = (peaks[name] for name in number_format(stored).compute if name in peaks)
        if (peak := next(known, None)) is None:
            raise no_peak(self.hardware, stored)
        return peak

    def _computed(self, op: Op, counts: Counts) -> OpTime:
        """T = max(F / P, B / W)."""
        compute_s = counts.dot(op.flops) / self.peak_flops_per_s(op.format)
        memory_s = op.bytes_read(counts) / self.hardware.memory_bytes_per_s
        return OpTime(op.name, compute_s=compute_s, memory_s=memory_s, seconds=np.maximum(compute_s, memory_s))

    def _multiplied(self, op: Op, counts: Counts) -> OpTime:
        """T = max(F / P, B / W), with twice the peak where sums are in 16 bits, as on GeForce."""
        found = self._computed(op, counts)
        compute_s = found.compute_s / self.peaks
        return found._replace(compute_s=compute_s, seconds=np.maximum(compute_s, found.memory_s))

    def _prompts(self, op: Op, counts: Counts) -> OpTime:
        """T = F / P: what attention of prompts reads hides behind it, and so it is linear in its counts."""
        found = self._computed(op, counts)
        return found._replace(seconds=found.compute_s)

    def _moved(self, op: Op, counts: Counts) -> OpTime:
        """T = B / W."""
        memory_s = op.bytes_read(counts) / float(self.hardware.memory_bytes_per_s)
        return OpTime(op.name, memory_s=memory_s, seconds=memory_s)

    def _all_reduce_s(self, op: Op, counts: Counts) -> Array:
        """T = 2 (n-1)/n S / link; over nodes, the slower of its two links (least_all_reduce_s)."""
        devices, sent_bytes = op.link_devices, counts.dot(op.link_bytes)
        if devices > self.hardware.node_devices:
            shape = Shape.of(op, self.hardware)
            return least_all_reduce_s(shape, sent_bytes, self._inside(shape), self.hardware)
        link_s = sent_bytes * 2 * (devices - 1) / devices / link_bytes_per_s(self.hardware)
        return quick_reduced(op, counts, link_s, link_s, self.reduced_bits)

    def _all_to_all_s(self, op: Op, counts: Counts) -> Array:
        sent_bytes = counts.dot(op.link_bytes)
        if op.link_devices <= self.hardware.node_devices:
            return sent_bytes / link_bytes_per_s(self.hardware)
        shape = Shape.of(op, self.hardware)
        return least_all_to_all_s(shape, op, sent_bytes, self._inside(shape), self.hardware)

    def _send_s(self, op: Op, counts: Counts) -> Array:
        away = sends_away(op, self.hardware)
        each_s = away / float(network_of(self.hardware).bytes_per_s) if away else 0.0
        inside_s = (1 - away) / link_bytes_per_s(self.hardware) if away < 1 else 0.0
        return counts.dot(op.link_bytes) * (each_s + inside_s)

    def _host_link_s(self, op: Op, counts: Counts) -> Array:
        return op.bytes_read(counts) / pcie_bytes_per_s(self.hardware)

    def _inside(self, shape: Shape) -> float:
        """Return the bytes/s of a device's link within its node."""
        return link_bytes_per_s(self.hardware) if shape.each > 1 else math.inf


def no_peak(hardware: Hardware, stored: str) -> ProfileError:
    """Return the error of a device without a peak for any type that a format can be multiplied in."""
    return ProfileError(f"{hardware.name} with {stored}", "the profile has no peak for it", "Add one")
