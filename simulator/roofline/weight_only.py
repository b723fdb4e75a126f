"""GEMMs of weight-only formats, by the rows that share a weight: vector kernels, own GEMMs, unpacking in memory."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulator.arrays import Array, Bools
from simulator.engines.device_kernels import DeviceKernels
from simulator.hardware.achievable import PeakName
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Op


class Unpacked(NamedTuple):
    """A GEMM over weights that were unpacked into memory before: the GEMM of 16 bits, and the bytes moved before it."""

    op: Op
    moved_bytes: Array
    holds: Bools  # for which counts its weights are unpacked so


def rows_of(op: Op, counts: Counts) -> Array:
    """Return the rows that each weight of a GEMM is multiplied with, of an expert the mean; the shape of the counts."""
    rows = counts.dot(op.flops) / max(op.flops)
    if op.experts is None:
        return rows
    return rows * op.experts.chosen / np.maximum(op.experts.touched(counts.tokens), 1.0)


def unpacked(op: Op, counts: Counts, kernels: DeviceKernels, name: PeakName) -> Unpacked | None:
    """Return the GEMM that an engine's library multiplies in `name` once weights lie in 16 bits; None: it never does.

    A kernel of its own reads the weights as they are stored and writes them in 16 bits (KernelRules.unpacks_from_rows);
    experts that have kernels of their own (ExpertKernels) unpack what they read.
    """
    least, stored = kernels.rules.unpacks_from_rows, number_format(op.format)
    if least is None or kernels.own_experts(op) or not stored.unpacked_for(name):
        return None
    growth = number_format(name).bits / stored.bits
    wide = replace(op, format=name, weight_bytes=op.weight_bytes * growth, expert_bytes=op.expert_bytes * growth)
    weights = op.bytes_read(counts) - counts.dot(op.activation_bytes)
    return Unpacked(wide, weights * (1.0 + growth), np.asarray(rows_of(op, counts) >= least))


def vector_rows(op: Op, kernels: DeviceKernels) -> float:
    """Return the rows of a dense GEMM, or a batch's tokens of experts, up to which vector units multiply; 0: none."""
    rules = kernels.rules
    if not (rules.vector_rows and kernels.vector_share(op.format) and "fp32" in kernels.hardware.peak_flops_per_s):
        return 0.0
    if not number_format(op.format).unpacked_for("fp32"):
        return 0.0
    return float((rules.vector_rows if op.experts is None else rules.vector_expert_tokens) or 0.0)


def compute_of_rows(op: Op, counts: Counts, seconds: Array, kernels: DeviceKernels) -> Array:
    """Return the seconds in which the rows of a GEMM are multiplied; `seconds`: at the rate of many rows.

    A dense GEMM of a few rows (KernelRules.vector_rows), and experts of a few tokens (vector_expert_tokens): F / (v P),
    P the fp32 peak of the device, v as fitted or, for formats that unpack fast, as read (fast_vectors). On a CPU
    (KernelRules.unpack_tokens) a number is unpacked in the time of u multiplications, and then serves n rows, of an
    expert those that reach it: (1 + u / n) times as long.
    """
    rules, hardware, stored = kernels.rules, kernels.hardware, number_format(op.format)
    share, most = kernels.vector_share(op.format), vector_rows(op, kernels)
    if share and most:
        by_vectors = counts.dot(op.flops) / (share * hardware.peak_flops_per_s["fp32"])
        rows = rows_of(op, counts) if op.experts is None else counts.tokens
        seconds = np.where(np.asarray(rows) <= most, by_vectors, seconds)
    if not rules.unpack_tokens or not stored.unpacking or hardware.device_class != "cpu":
        return seconds
    shared = np.clip(rows_of(op, counts), 1.0, float(rules.unpack_tokens))
    return seconds * (1.0 + float(stored.unpacking) / shared)
