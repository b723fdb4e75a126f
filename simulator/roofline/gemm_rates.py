"""GEMMs of an engine's kernels on a device: the seconds in which they multiply, those in which they read, and both."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simulator.arrays import Array
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.kernel_rules import WIDE_BYTES
from simulator.engines.marlin_tiles import EXPONENT as MARLIN_EXPONENT
from simulator.errors import ProfileError
from simulator.hardware.achievable import Gemm, PeakName
from simulator.models.number_formats import number_format
from simulator.models.operations import NOTHING, Counts, Op
from simulator.profile import Figure
from simulator.roofline.bandwidth import HIGHEST_MEMORY_FRACTION, at_most, elementwise_bytes_per_s
from simulator.roofline.gemm import (
    EXPERTS_EXPONENT,
    K_LOOP_EXPONENT,
    exponent_of,
    input_loop_s,
    panel_s,
    row_padding,
    soft_maximum,
    tile_s,
    wave_padding,
)
from simulator.roofline.scan import scan_s
from simulator.roofline.weight_only import compute_of_rows, rows_of


class AchievedGemm(NamedTuple):
    """What a GEMM reaches: shares of the peaks (0 to 1), the seconds of its launches, p of its soft maximum."""

    compute: float
    memory: float
    launch_s: float
    exponent: float


class GemmSeconds(NamedTuple):
    """Seconds of a GEMM by step: what it multiplies, what it reads, both at once, and those before it starts."""

    compute_s: Array
    memory_s: Array
    kernel_s: Array
    launch_s: float


class GemmRates:
    """GEMMs of an engine's kernels on a device."""

    def __init__(self, kernels: DeviceKernels) -> None:
        self.hardware, self.kernels = kernels.hardware, kernels

    def seconds(self, op: Op, counts: Counts, name: PeakName, peak: float) -> GemmSeconds:
        """Return the seconds of a GEMM that is multiplied in a type, of `peak` FLOP/s; by step, as the counts.

            compute = F / (c P) x what is multiplied over what is needed (`_dense_s`; of experts Kernels.padding)
            memory  = B / (m W) + the states of a scan
            read    = max(memory, panel) + s K
            kernel  = (compute^p + read^p)^(1/p), and no less than what else it waits for (`_least_s`)
            T       = kernel + what prepares its inputs (`prepared_s`) + t0

        F: FLOPs, P: `peak`, B: bytes, W: bytes/s of the device, K: inputs; c, m, p and t0 as `achieved`; panel: seconds
        in which a multiprocessor reads its columns, s: seconds of a tile per input (achievable.Gemm). A few rows of
        weight-only formats are multiplied at another rate (weight_only.compute_of_rows). On several ranks of experts
        compute and memory are those of the busiest one.

        Source: kernel tables of five devices, met within 2.6 to 5.6 % (docs/log.md, 2.2).
        """
        gemm, reached = self.gemm(name, op), self.achieved(name, op)
        compute_s = counts.dot(op.flops) / (reached.compute * peak)
        compute_s = compute_of_rows(op, counts, compute_s, self.kernels)
        memory_s = op.bytes_read(counts) / (reached.memory * self.hardware.memory_bytes_per_s)
        memory_s = memory_s + scan_s(op, counts, self.kernels)
        if op.experts is None:
            compute_s = self._dense_s(op, counts, compute_s, name, reached.compute)
        else:
            compute_s = compute_s * self.kernels.padding(op, counts.tokens)
            if op.experts.ranks > 1:  # the others wait for the busiest rank
                compute_s = compute_s * self.kernels.busiest_compute(op, counts.tokens)
                memory_s = memory_s * op.experts.busiest_experts(counts.tokens)
        read_s = np.maximum(memory_s, panel_s(gemm, op) * counts.steps) + input_loop_s(gemm, op) * counts.steps
        kernel_s = soft_maximum(compute_s, read_s, reached.exponent)
        kernel_s = self._least_s(op, counts, kernel_s, name, peak) + self.prepared_s(name, op, counts)
        kernel_s = kernel_s + self.kernels.apart_s(op, counts.tokens, name)
        return GemmSeconds(compute_s, memory_s, kernel_s, reached.launch_s)

    def _dense_s(self, op: Op, counts: Counts, seconds: Array, name: PeakName, share: float) -> Array:
        """Return the seconds in which a dense GEMM multiplies whole tiles; `seconds`: its own rows at `share` of P.

        Marlin's tiles, or the longer of the least rows of a kernel (achievable.Gemm) and waves of tiles.
        """
        gemm, hardware = self.gemm(name, op), self.hardware
        rows = rows_of(op, counts) / np.maximum(counts.steps, 1.0)
        seconds = seconds * self.kernels.dense_padding(op, rows)
        rows = rows * (counts.steps > 0)  # without steps: none, and at the rate of many
        least = gemm.least_unpacked_rows if number_format(op.format).unpacked_for(name) else gemm.least_rows
        others = self.kernels.rules.start_s is None  # whose least rows a device states: not the engine's own kernels
        padded_s = seconds * row_padding(float(least), rows) if least and others and op.weight_bytes > 0 else seconds
        if self.fills_tiles(name, op):
            shares = share, float(hardware.achievable.wave_fraction)  # type: ignore[arg-type]
            seconds = seconds * wave_padding(rows, op, *shares, float(hardware.multiprocessors))  # type: ignore[arg-type]
        return np.maximum(seconds, padded_s)  # the rows of a tile are among the least

    def _least_s(self, op: Op, counts: Counts, kernel_s: Array, name: PeakName, peak: float) -> Array:
        """Return the seconds of a kernel, no less than what it waits for beside compute and memory.

        A dense GEMM for its smallest tiles (KernelRules.gemm_tiles); routed experts, softly, for a tile's loop over K
        (KernelRules.k_loop_s), for kernels that start expert by expert (KernelRules.expert_starts), and for what
        unpacks their weights (ExpertKernels.unpack_flops).
        """
        if op.experts is None:
            rows = self.kernels.tile_rows(op)
            tiles_s = tile_s(rows, peak, self.hardware.multiprocessors, op) if rows else 0.0  # type: ignore[arg-type]
            return np.maximum(kernel_s, tiles_s * counts.steps)
        k_loop_s = self.kernels.k_loop_s(op) * counts.steps
        kernel_s = soft_maximum(kernel_s, k_loop_s, float(K_LOOP_EXPONENT))
        kernel_s = np.maximum(kernel_s, self.kernels.expert_starts_s(name, op) * counts.steps)
        return np.maximum(kernel_s, self.kernels.unpack_s(op, counts.tokens))

    def prepared_s(self, name: PeakName, op: Op, counts: Counts) -> Array:
        """Return the seconds in which kernels of their own sort inputs of experts, and quantise those of block scales.

        The latter reads numbers of 16 bits and writes bytes. Its launch is part of the GEMM's own.
        """
        late = name == "fp8" and number_format(op.format).scaled_late
        shared = op.shared_inputs != NOTHING
        own = self.kernels.own_experts(op)
        sorts = shared and (own or self.kernels.rules).sorts_inputs
        passes = float(own.passes or 0.0) if own and shared else 0.0
        if not (late or sorts or passes):
            return 0.0
        taken = counts.dot(op.flops) / (2.0 * op.columns)
        quantised = counts.dot(op.shared_inputs) if shared and not sorts else taken
        size = WIDE_BYTES if late or name not in ("fp8", "fp4") else number_format(op.format).size_bytes
        moved_bytes = (2.0 * size * sorts + WIDE_BYTES * passes) * taken + (WIDE_BYTES + 1.0) * late * quantised
        return moved_bytes / elementwise_bytes_per_s(self.hardware)

    def gemm(self, name: PeakName, op: Op) -> Gemm:
        """Return the device's own rates of GEMMs of an op's kind in a type (kernel tables, `Hardware.achievable`).

        Raises ProfileError where the profile has none.
        """
        late, routed = number_format(op.format).scaled_late, op.experts is not None
        found: Gemm | None = self.hardware.achievable.gemm_of(name, experts=routed, blocks=late)
        if found is None:
            raise ProfileError(f"{self.hardware.name} {name}", "no achievable gemm rates are known", "Add them")
        return found

    def achieved(self, name: PeakName, op: Op) -> AchievedGemm:
        """Return the shares of the compute peak and the bandwidth that an engine's GEMM reaches, its launch, and p.

        The device's own times what was fitted to the engine; no share of the peak is above 1 (2: sums_in_half), none of
        the bandwidth above HIGHEST_MEMORY_FRACTION, unless the device's own is.

        Raises ProfileError as `gemm` does.
        """
        gemm, kernels = self.gemm(name, op), self.kernels
        best = gemm.memory_fraction  # at which the device's own kernels read weights
        if kernels.rules.reads_at_best_rate:
            best = self.hardware.achievable.best_memory_fraction
        most = 2.0 if kernels.rules.sums_in_half else 1.0
        return AchievedGemm(
            compute=min(gemm.compute_fraction * kernels.compute_share(name, op), most),
            memory=at_most(best * kernels.fitted.memory * kernels.packed_share(name, op), best),
            launch_s=kernels.start_s(name, op),
            exponent=float(MARLIN_EXPONENT) if kernels.marlin(op) else exponent_of(gemm, op),
        )

    def fills_tiles(self, name: PeakName, op: Op) -> bool:
        """Whether the waves of tiles of a GEMM count: of dense ones that unpack nothing, on devices that state both."""
        known = self.hardware.multiprocessors is not None and self.hardware.achievable.wave_fraction is not None
        dense = op.experts is None and op.weight_bytes > 0 and op.columns > 0
        return known and dense and not number_format(op.format).unpacked_for(name)

    def constants(self, name: PeakName, op: Op) -> Iterator[tuple[str, Figure]]:
        """Yield the figures in Python that the time of a GEMM rests on, each by name."""
        rates = self.hardware.achievable
        if name in rates.gemm and self.achieved(name, op).memory == HIGHEST_MEMORY_FRACTION:
            yield "highest fraction of the bandwidth", HIGHEST_MEMORY_FRACTION
        own = rates.gemm_of(name, experts=True) if op.experts else None
        if self.kernels.marlin(op):
            yield "exponent of Marlin", MARLIN_EXPONENT
        elif own and (own.exponent or math.inf) > EXPERTS_EXPONENT:
            yield "exponent of routed experts", EXPERTS_EXPONENT
        if self.kernels.k_loop_s(op):
            yield "exponent of experts' loop over K", K_LOOP_EXPONENT
