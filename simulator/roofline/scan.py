"""Scans of prompts by recurrent layers: kernels that pass the states of chunks through memory."""

from simulator.arrays import Array
from simulator.engines.device_kernels import DeviceKernels
from simulator.models.op_builders import SCAN
from simulator.models.operations import Counts, Op


def scan_s(op: Op, counts: Counts, kernels: DeviceKernels) -> Array:
    """Return the least seconds of a scan of prompts whose kernels pass states through memory; 0 of any other op.

    FLOPs / (scan_flops_per_byte W), W in bytes/s; the shape of the counts.
    """
    flops_per_byte = kernels.rules.scan_flops_per_byte
    if op.name != SCAN or flops_per_byte is None:
        return 0.0
    return counts.dot(op.flops) / (flops_per_byte * kernels.hardware.memory_bytes_per_s)
