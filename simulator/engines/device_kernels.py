"""What an engine's kernels do with an op on one device, and what they reach there."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.arrays import Array
from simulator.engines import aiter_tiles, marlin_tiles
from simulator.engines.conditions import rule_of
from simulator.engines.dense_gemms import DenseMarlin, GemmCall
from simulator.engines.fitted_multipliers import FittedMultipliers
from simulator.engines.heads_alone import clocks_per_s
from simulator.engines.kernel_rules import (
    CAPTURED_TOKENS,
    CROWDED_HEADS,
    WIDE_BYTES,
    ExpertKernels,
    KernelRules,
)
from simulator.engines.kernels import Kernels
from simulator.hardware.achievable import PeakName
from simulator.hardware.hardware import Hardware
from simulator.models.model import Model
from simulator.models.number_formats import number_format, type_name
from simulator.models.operations import NOTHING, Op
from simulator.models.routed_experts import Experts

NO_ENGINE = Kernels()


@dataclass(frozen=True)
class DeviceKernels:
    """An engine's kernels on one device; without an engine, what the device's own profile says of kernels there."""

    hardware: Hardware
    of_engine: Kernels = NO_ENGINE  # on some devices, this one among them

    @property
    def rules(self) -> KernelRules:
        """What the kernels do."""
        return self.of_engine.rules

    @property
    def fitted(self) -> FittedMultipliers:
        """What they reach."""
        return self.of_engine.fitted

    def with_fitted(self, **values: float | None) -> "DeviceKernels":
        """Return the same kernels with other multipliers; those not named stay as they are."""
        return DeviceKernels(self.hardware, self.of_engine.with_fitted(**values))

    def with_rules(self, **values: Any) -> "DeviceKernels":
        """Return the same kernels with other rules; those not named stay as they are."""
        return DeviceKernels(self.hardware, self.of_engine.with_rules(**values))

    def of_model(self, model: Model) -> "DeviceKernels":
        """Return the same kernels with the norms and the attention of a model (model_norms, SplitDecode.models)."""
        own, triton = self.rules.model_norms, self.rules.split_decode and self.rules.split_decode.models
        found = self.of_engine
        if triton and triton.holds_of(self.hardware, model):
            found = found.with_attention_of("triton")
        if own and own.holds_of(self.hardware, model):
            found = found.with_rules(norm_kernels=own.kernels)
        return DeviceKernels(self.hardware, found)

    def reads_per_head(self, op: Op) -> bool:
        """Tell whether each query head reads the KV cache of an op for itself.

        vLLM's paged attention before 0.6 has one block of threads per sequence and query head (csrc/attention).
        """
        formats, group = self.rules.per_head_formats, op.shared_by
        windowed = self.rules.per_head_windowed and op.cache_bytes.decode_reads_windowed > 0
        apart = windowed or op.cache_format in (formats or (op.cache_format,))
        kept = group not in self.rules.per_head_except and group in (self.rules.per_head_groups or (group,))
        return self.fitted.per_head is not None and apart and kept

    def share_per_head(self, heads: Array, context_tokens: int, cache_format: str) -> Array:
        """Return the share of the bandwidth at which query heads read the KV cache where each reads it for itself.

        `heads`: sequences x query heads; 0: the batch is not known (a slope of StepTable), and counts as crowded. A
        head reads what another has brought into a cache of the device, and computes in 16 bits, so that a narrower
        number takes as long. For many heads vLLM V0 has a kernel that keeps a row of scores in shared memory, which
        bounds the blocks at work, and what they read: `per_head_crowded` is for rows of `CAPTURED_TOKENS`, in bytes
        of any number, and grows as they shrink. TensorRT-LLM's MMHA reads so many numbers a clock (per_head_by_clock).
        """
        if self.rules.per_head_by_clock:
            numbers_per_s = float(self.fitted.per_head or math.inf) * clocks_per_s(self.hardware)
            return np.asarray(numbers_per_s * number_format(cache_format).size_bytes / self.hardware.memory_bytes_per_s)
        few, longest = float(self.fitted.per_head or math.inf), float(self.fitted.per_head_crowded or math.inf)
        few *= min(1.0, number_format(cache_format).size_bytes / WIDE_BYTES)
        crowded = min(longest * CAPTURED_TOKENS / min(context_tokens, CAPTURED_TOKENS), few)
        return np.where((heads > 0) & (heads <= CROWDED_HEADS), few, crowded)

    def experts_of(self, stored: str, experts: Experts | None) -> ExpertKernels | None:
        """Return the kernels of routed experts in a format on a device; None where they are the engine's own GEMMs.

        `experts`: which, None for any whose tiles are tuned.
        """
        return next((each for each in self.rules.expert_kernels if each.runs(self.hardware, stored, experts)), None)

    def own_experts(self, op: Op) -> ExpertKernels | None:
        """Return the kernels of an op's routed experts as `experts_of` does; None for all other ops."""
        return None if op.experts is None else self.experts_of(op.format, op.experts)

    def padded(self, op: Op) -> Op:
        """Return an op with the columns that its experts have in these kernels (KernelRules.expert_padding)."""
        rule = rule_of(self.rules.expert_padding, self.hardware, op.format)
        return op.with_padded_experts(rule.hidden, rule.intermediate) if rule else op

    def k_loop_s(self, op: Op) -> float:
        """Return the seconds of a tile's loop over K, the inputs of a GEMM; 0 but for routed experts."""
        if op.experts is None or op.format in self.rules.k_loop_except:
            return 0.0
        own = self.own_experts(op)
        return op.inputs * float((own.k_loop_s if own else self.rules.k_loop_s) or 0.0)

    def unpack_s(self, op: Op, tokens: Array) -> Array:
        """Return the seconds in which tiles of routed experts unpack their weights; 0 where Triton unpacks none."""
        own, peaks = self.own_experts(op), self.hardware.peak_flops_per_s
        if own is None or own.unpack_flops is None or own.most_tile is None or "fp32" not in peaks:
            return 0.0
        tiles = op.experts.tiles(tokens, float(own.most_tile), float(own.least_tile or 1.0))  # type: ignore[union-attr]
        return tiles * op.inputs * op.columns * own.unpack_flops / peaks["fp32"]

    def dense_marlin(self, op: Op) -> DenseMarlin | None:
        """Return Marlin's kernel of a dense GEMM; None where it runs in another one."""
        if op.experts is not None or not op.weight_bytes:
            return None
        return rule_of(self.rules.dense_marlin, self.hardware, op.format)

    def compute_share(self, peak: PeakName, op: Op) -> float:
        """Return the factor on the compute fraction of a device's GEMM that is multiplied in a type."""
        if dense := self.dense_marlin(op):
            return float(self.fitted.compute * dense.compute)
        if (by_clock := self.clocked_flops_per_s(peak, op)) < math.inf:
            return by_clock / self.hardware.peak_flops_per_s[peak]
        own = self.own_experts(op)
        freely = type_name(op.format) in self.rules.unpacks_freely
        return self.fitted.of_compute(peak, op, own.compute if own else None, freely=freely)

    def clocked_flops_per_s(self, peak: PeakName, op: Op) -> float:
        """Return the FLOP/s of a GEMM whose rate goes by the clock (KernelRules.clocked_gemms); infinity for others."""
        rule = self.rules.clocked_gemms
        if rule is None or not number_format(op.format).unpacked_for(peak) or self.own_experts(op):
            return math.inf
        return rule.flops_per_s(self.hardware, type_name(op.format))

    def apart_s(self, op: Op, tokens: Array, peak: PeakName) -> Array:
        """Return the seconds in which experts start one after the other (KernelRules.experts_apart_from_tokens).

        Each takes the start of a dense GEMM.
        """
        least = self.rules.experts_apart_from_tokens
        if least is None or op.experts is None or self.own_experts(op):
            return 0.0
        start_s = self.start_s(peak, op) / max(1, self.launches(op))
        return np.where(np.asarray(tokens) >= least, op.experts.touched(tokens) * start_s, 0.0)

    def expert_starts_s(self, peak: PeakName, op: Op) -> float:
        """Return the seconds in which the kernels of all experts start one after the other (KernelRules.expert_starts).

        Each takes the start of a dense GEMM; those of an expert's first matrices start before its second GEMM.
        """
        if (starts := self.rules.expert_starts) is None or op.experts is None:
            return 0.0
        first = op.shared_inputs != NOTHING
        every = op.experts.chosen == op.experts.total
        kernels = 1.0 + first if every else float(starts) * first
        start_s = self.start_s(peak, op) / max(1, self.launches(op))
        return op.experts.total / op.experts.ranks * kernels * start_s

    def vector_share(self, stored: str) -> float | None:
        """Return the share of the fp32 peak at which a few rows are multiplied with a format; None: it is not known."""
        return self.rules.fast_vector if self.unpacks_fast(stored) else self.fitted.vector

    def unpacks_fast(self, stored: str) -> bool:
        """Tell whether vector kernels unpack a format faster than most (KernelRules.fast_vectors)."""
        return type_name(stored) in self.rules.fast_vectors

    def packed_share(self, peak: PeakName, op: Op) -> float:
        """Return the factor on the bandwidth fraction at which weights are read that are multiplied in a type."""
        if not number_format(op.format).unpacked_for(peak) or self.dense_marlin(op):
            return 1.0
        own = self.own_experts(op)
        return float(own.memory if own and own.memory else self.fitted.packed)

    def dense_padding(self, op: Op, rows: Array) -> Array:
        """Return the rows in whose time Marlin multiplies a dense GEMM over its own; 1 in other kernels."""
        dense = self.dense_marlin(op)
        return marlin_tiles.dense_padding(rows, float(dense.unpack_rows)) if dense else 1.0

    def padding(self, op: Op, tokens: Array) -> Array:
        """Return the tokens that experts compute over those that reach them; 1 for dense GEMMs."""
        if op.experts is None:
            return 1.0
        own, tiles = self.own_experts(op), self.rules.expert_tiles
        if tiles and not own:
            padded = op.experts.padded(tokens, np.clip(tokens, float(tiles[0]), float(tiles[1])))
            apart = self.rules.experts_apart_from_tokens
            return padded if apart is None else np.where(np.asarray(tokens) >= apart, 1.0, padded)
        if own and own.unpack_rows:
            return marlin_tiles.padding(op.experts, tokens, float(own.unpack_rows))
        if own and own.fills_units and self.hardware.multiprocessors:
            return aiter_tiles.padding(op.experts, tokens, float(self.hardware.multiprocessors))
        most = own.most_tile if own else self.fitted.expert_tile
        least = own.least_tile if own else None
        return op.experts.padded(tokens, float(most), float(least or math.inf)) if most else 1.0

    def marlin(self, op: Op) -> bool:
        """Tell whether a GEMM, dense or of routed experts, is known to run in Marlin."""
        own = self.own_experts(op)
        return bool(own and own.unpack_rows) or self.dense_marlin(op) is not None

    def busiest_compute(self, op: Op, tokens: Array) -> Array:
        """Return what experts of the busiest rank compute over the mean of all ranks; 1 on one rank."""
        if op.experts is None or op.experts.ranks == 1:
            return 1.0
        own = marlin_tiles.busiest if self.marlin(op) else Experts.busiest_tokens
        return own(op.experts, tokens)

    def tile_rows(self, op: Op) -> float:
        """Return the rows of the smallest tile of a dense GEMM; 0 where tiles are as small as its rows ask for.

        Only where the multiprocessors of the device are known.
        """
        if op.experts is not None or not op.columns or self.hardware.multiprocessors is None:
            return 0.0
        rule = rule_of(self.rules.gemm_tiles, self.hardware, op.format)
        return float(rule.rows) if rule else 0.0

    def decode_padding(self, op: Op) -> float:
        """Return the time in which decode attention computes whole tiles over that of its own FLOPs."""
        return self.rules.decode_tile.padding(op, self.hardware) if self.rules.decode_tile else 1.0

    def head_padding(self, op: Op) -> float:
        """Return the query heads that attention of prompts computes over those of a rank; 1 where they fill its tiles.

        Only sparse latent attention has a pad, and attention to compressed tokens, which runs in its kernel: heads
        share a latent, and pairs are counted in the window, or some for each token.
        """
        if op.heads or not (op.flops.prefill_pairs_windowed or op.flops.prefill_tokens):
            return 1.0
        return max(1.0, self.rules.sparse_heads.get(self.hardware.family, 1) / op.shared_by)

    def vector_attention_flops_per_s(self, op: Op) -> float | None:
        """Return the FLOP/s of attention of prompts in vector units (KernelRules.matrix_heads); None: in others."""
        widest, share = self.rules.matrix_heads, self.fitted.vector_attention
        if widest is None or share is None or (fp32 := self.hardware.peak_flops_per_s.get("fp32")) is None:
            return None
        of_pair = max(op.flops.prefill_pairs, op.flops.prefill_pairs_windowed)
        narrow = op.shared_by > 1 and of_pair <= 4 * widest * op.heads  # two products of as many numbers
        return None if narrow else float(share) * fp32

    def reread_flops_per_s(self, op: Op) -> float:
        """Return the FLOP/s of attention of prompts at which caches serve its K and V (KernelRules.strided_cache)."""
        strided = self.rules.strided_cache
        return float(self.fitted.reread) * strided.flops_per_s(self.hardware, op) if strided else math.inf

    def reads_lengths(self, ops: Iterable[Op]) -> bool:
        """Tell whether prompts read lengths back from the device (KernelRules.reads_lengths, `scans_wait`)."""
        rule, split = self.rules.reads_lengths, self.rules.split_decode
        ops = tuple(ops)
        if self.rules.scans_wait and any(op.updates_states for op in ops):
            return True
        if rule is None or not rule.covers(self.hardware):
            return False
        planned = (op for op in ops if op.heads or (op.latent_heads and rule.latent))
        return any(not (split and split.holds(self.hardware, op)) for op in planned if op.rate == "decode_attention")

    def absorbs_prompts(self, op: Op) -> bool:
        """Tell whether prompts behind a cached prefix attend to latent vectors, by decode attention of the layer."""
        split = self.rules.split_decode
        return bool(split and split.latent_prompts and op.latent_heads and split.holds(self.hardware, op))

    def latent_flops_per_s(self, op: Op) -> float:
        """Return the FLOP/s of attention of prompts at which its kernel loads latent vectors; none of others."""
        if not op.latent_heads or not self.absorbs_prompts(op):
            return math.inf
        return self.rules.split_decode.latent_prompts.flops_per_s(self.hardware.multiprocessors)  # type: ignore[union-attr,arg-type]

    def gemm_call(self, op: Op) -> GemmCall | None:
        """Return what a library's Python does for a dense GEMM before its launch; None where an operator launches."""
        if op.experts is not None or op.rate != "gemm" or not op.weight_bytes:
            return None
        return rule_of(self.rules.gemm_calls, self.hardware, op.format)

    def launches(self, op: Op) -> int:
        """Return how many kernels of an op follow one another on a device."""
        if op.at_once != "shared" and op.at_once in self.rules.at_once:
            return 0
        if op.experts is None or op.rate != "gemm":
            return op.launches
        own = self.own_experts(op)
        counted = own.launches if own else self.rules.expert_launches
        return int(counted[op.shared_inputs == NOTHING]) if counted else op.launches

    def overlaps_routed_experts(self, op: Op) -> bool:
        """Tell whether kernels of shared experts start while those of routed ones run (KernelRules.at_once)."""
        return op.at_once == "shared" and "shared" in self.rules.at_once

    def norm_launches(self, op: Op) -> float:
        """Return how many kernels of norms an elementwise op has beside `launches`."""
        return self.rules.norm_kernels.of(op) if self.rules.norm_kernels else 0.0

    def norm_calls(self, op: Op) -> int:
        """Return how many norms of an op the host launches one by one, where no graph does."""
        return self.rules.norm_kernels.calls(op) if self.rules.norm_kernels else 0

    def start_s(self, peak: PeakName, op: Op) -> float:
        """Return the seconds that all kernels of a GEMM take to start, multiplied in a type.

        Where its inputs are quantised by the kernel before (`fuses`), and for kernels of experts that are no GEMMs
        (`routes_apart`), a start is that of 16 bits if that is shorter. Experts sort their inputs before these are
        quantised, so `fuses` does not hold for them; where the first GEMM quantises for the second
        (ExpertKernels.launches), it alone has a kernel that does so before it. Shared experts have none of their own
        where they run beside others (`at_once`).
        """
        if self.overlaps_routed_experts(op):
            return 0.0
        rates, launches = self.hardware.achievable, self.launches(op)
        late = number_format(op.format).scaled_late
        own = rates.gemm_of(peak, experts=op.experts is not None, blocks=late) or rates.gemm[peak]
        wide, beside_s = rates.gemm.get("bf16"), 0.0
        own_s = own.launch_s if self.rules.start_s is None else self.rules.start_s
        least_s = min(own_s, wide.launch_s) if wide and self.rules.start_s is None else own_s
        plain = launches if op.format in self.rules.fuses else 0
        if op.experts is not None:
            plain = launches - 1 if self.rules.routes_apart else 0
            if (kernels := self.own_experts(op)) and kernels.launches:
                plain = launches - (op.shared_inputs != NOTHING)
                beside_s = float(kernels.beside_s or 0.0) * (op.shared_inputs != NOTHING)
                if kernels.start_s is not None:
                    own_s = least_s = kernels.start_s
        return float(self.fitted.launch) * (own_s * (launches - plain) + plain * least_s) + beside_s
