"""Experts in fp8 of TensorRT-LLM's CUTLASS on Hopper by published times of the whole layer alone."""

from dataclasses import replace

import numpy as np

from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layers import MixtureOfExperts
from simulator.models.layout import Layout
from simulator.models.operations import Counts
from simulator.roofline.roofline import Rates

# us by tokens of experts in fp8, scaled as a whole, in FlashInfer's cutlass_fused_moe, with what quantises, sorts and
# sums: flashinfer-ai/flashinfer pull request 5332 (2026-09). Its device is taken to be an H100. Experts, chosen ones,
# columns of the layer and of an expert, and whether these are gated
TIMES = {
    (256, 8, 2048, 512, True): {1: 72.5, 8: 135.6, 64: 324.3, 256: 339.5, 1024: 417.7, 4096: 719.9, 8192: 1301.6},
    (128, 6, 2688, 1856, False): {1: 81.2, 8: 206.4, 64: 438.6, 256: 459.2, 1024: 574.8, 4096: 1277.0, 8192: 2166.1},
}


def test_experts_of_tensorrt_llm_0_15_take_what_cutlass_takes():
    """Within 10 % on average, though their share was fitted to runs of Mixtral."""
    rates, errors = Rates(load_engine("tensorrt-llm-0.15").kernels_on(load_hardware("h100-sxm"))), []
    for (experts, chosen, hidden, width, gated), times in TIMES.items():
        layer = MixtureOfExperts(kind="experts", experts=experts, chosen=chosen, intermediate=width, gated=gated)
        routed = [op for op in layer.ops(hidden, Layout(weight_dtype="fp8")) if op.experts]
        ops = [replace(op, experts=op.experts._replace(uneven=False)) for op in routed if op.experts]
        for tokens, us in times.items():
            seconds = sum(float(rates.time(op, Counts(1.0, float(tokens))).seconds) for op in ops)
            errors.append(np.log(1e6 * seconds / us))
    assert np.abs(errors).mean() < 0.1
