"""Ops of a step with the kernels that an engine has for some models alone (engines/model_kernels.py)."""

from collections.abc import Iterable
from dataclasses import replace

from simulator.engines.kernels import Kernels
from simulator.hardware.hardware import Hardware
from simulator.models.blocks import NORMS
from simulator.models.layers import BESIDE_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.operations import Op


def ops_of_model(
    ops: Iterable[Op], kernels: Kernels, hardware: Hardware, model: Model, layout: Layout
) -> tuple[Op, ...]:
    """Return the ops, norms that are part of all-reduces without a start, routers with all kernels that choose."""
    fused = kernels.rules.fuses_norms
    norms = 0 if fused and fused.holds(hardware, model, layout) else None
    more = next((each.kernels for each in kernels.rules.router_kernels if each.holds(hardware, model)), 0)

    def launches(op: Op) -> int:
        if op.name == NORMS and norms is not None:
            return norms
        return op.launches + more * (op.name == BESIDE_EXPERTS)

    return tuple(replace(op, launches=launches(op)) for op in ops)
