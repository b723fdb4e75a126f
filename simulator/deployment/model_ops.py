"""Ops of a step with the kernels that an engine has for some models alone (engines/model_kernels.py)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from simulator.engines.device_kernels import DeviceKernels
from simulator.models.blocks import NORMS
from simulator.models.layers import BESIDE_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.operations import Counts, Op


def ops_of_model(ops: Iterable[Op], kernels: DeviceKernels, model: Model, layout: Layout) -> tuple[Op, ...]:
    """Return the ops, norms that are part of all-reduces without a start, routers with all kernels that choose."""
    fused = kernels.rules.fuses_norms
    norms = 0 if fused and fused.holds(kernels.hardware, model, layout) else None
    more = next((each.kernels for each in kernels.rules.router_kernels if each.holds(kernels.hardware, model)), 0)

    def launches(op: Op) -> int:
        if op.name == NORMS and norms is not None:
            return norms
        return op.launches + more * (op.name == BESIDE_EXPERTS)

    return tuple(replace(op, launches=launches(op)) for op in ops)


def absorbed(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield the ops, latent attention of prompts with the FLOPs per pair that decoding has per cached token.

    The up-projections of keys and values are multiplied with queries and outputs instead: heads are as wide as a latent
    vector. Attention to tokens that an indexer chose is so already.
    """
    of_token = 0.0
    for op in ops:
        if op.latent_heads:
            of_token = float(op.flops.decode_reads)
        if op.rate == "prefill_attention" and of_token and op.flops.prefill_pairs:
            yield replace(op, flops=Counts(prefill_pairs=of_token))
            of_token = 0.0
        else:
            yield op
