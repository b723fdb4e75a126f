"""Decode attention whose query heads each read the KV cache for themselves: TensorRT-LLM's MMHA."""

import math

from simulator.hardware.hardware import Hardware

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
