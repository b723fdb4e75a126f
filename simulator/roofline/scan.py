"""Scans of prompts by recurrent layers: kernels that pass the states of chunks through memory."""

from simulator.engines.kernel_rules import KernelRules
from simulator.hardware.hardware import Hardware
from simulator.models.op_builders import SCAN
from simulator.models.operations import Array, Counts, Op


def scan_s(op: Op, counts: Counts, rules: KernelRules, hardware: Hardware) -> Array:
    """Return the least seconds of a scan of prompts whose kernels pass states through memory; 0 of any other op.

    FLOPs / (scan_flops_per_byte W), W in bytes/s; the shape of the counts.
    """
    if op.name != SCAN or rules.scan_flops_per_byte is None:
        return 0.0
    return counts.dot(op.flops) / (rules.scan_flops_per_byte * hardware.memory_bytes_per_s)
