"""Decode attention whose query heads each read the KV cache for themselves: TensorRT-LLM's MMHA."""

import math

from simulator.arrays import Array
from simulator.engines.conditions import OnDevices
from simulator.hardware.hardware import Hardware
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Op
from simulator.profile import Positive

FP32_LANES = {"volta": 64, "turing": 64, "turing-geforce": 64, "ampere": 64}  # of a multiprocessor, by family
OTHER_LANES = 128  # CUDA C++ Programming Guide, arithmetic throughput by compute capability: from 8.6 on


def clocks_per_s(hardware: Hardware) -> float:
    """Return the clocks per second of all multiprocessors together; infinity where no fp32 peak says.

    An fp32 lane multiplies and adds once a clock: peak / (2 lanes). 108 multiprocessors of an A100 at 1.41 GHz:

    >>> from simulator.hardware.hardware import load_hardware
    >>> f"{clocks_per_s(load_hardware('a100-sxm-80')) / 108:.3g}"
    '1.41e+09'
    """
    peak = hardware.peak_flops_per_s.get("fp32")
    lanes = FP32_LANES.get(hardware.family, OTHER_LANES)
    return float(peak) / (2 * lanes) if peak else math.inf


class ChunkedDecode(OnDevices):
    """Decode attention within chunks, where the kernel in which a group of query heads shares a KV head knows none.

    Each query head then reads the cache for itself, `numbers_per_clock` of any format in a clock of a multiprocessor. A
    context that is shorter than a chunk needs none, and runs in the usual kernel.
    """

    numbers_per_clock: Positive

    def holds(self, hardware: Hardware, op: Op, context_tokens: int) -> bool:
        """Tell whether decode attention runs so on a device, with contexts of so many tokens at most."""
        return self.covers(hardware) and 0 < op.chunk_tokens <= context_tokens

    def seconds(self, hardware: Hardware, op: Op, counts: Counts) -> Array:
        """Return the seconds in which all query heads read the cache; shape of the counts."""
        numbers = op.shared_by * counts.dot(op.cache_bytes) / number_format(op.cache_format).size_bytes
        return numbers / (float(self.numbers_per_clock) * clocks_per_s(hardware))
