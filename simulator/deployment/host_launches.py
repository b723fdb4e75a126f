"""The least seconds of a step: as long as the host takes to launch its kernels, while the devices work."""

from collections.abc import Iterable

from simulator.engines.kernels import Kernels
from simulator.engines.overheads import Overheads
from simulator.hardware.hardware import Hardware
from simulator.models.layers import LAST_OF_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.operations import Op
from simulator.roofline.roofline import Rates


def host_slowness(hardware: Hardware) -> float:
    """Return how many times longer a device's host takes than a current x86 server."""
    return float(hardware.host_slowness or 1.0)


def step_launches_s(kernels: Kernels, hardware: Hardware, layout: Layout, model: Model, overheads: Overheads) -> float:
    """Return the least seconds of any step, where no graph launches it: 0 where one does.

    Eager kernels of a layer x seconds of each (KernelRules.eager_kernels), or what was fitted to steps
    (FittedMultipliers.layer_launches), x layers.
    """
    layers = len(model.layer_names)
    if kernels.rules.eager_kernels:
        return kernels.rules.eager_kernels * overheads.kernel_s * host_slowness(hardware) * layers
    if kernels.fitted.layer_launches is None:
        return 0.0
    gemm = hardware.achievable.gemm[Rates(hardware, kernels).peak(layout.model_dtype)[0]]
    return kernels.fitted.layer_launches * gemm.launch_s * layers


def prompt_launches_s(kernels: Kernels, hardware: Hardware, ops: Iterable[Op]) -> float:
    """Return the least seconds of a step with prompts: the host's for each kernel, and for each layer of experts."""
    every = tuple(ops)
    launches = sum((kernels.launches(op, hardware) + op.prompt_launches) * op.repeats for op in every)
    layers = sum(op.repeats for op in every if op.name == LAST_OF_EXPERTS)
    host_s = launches * (kernels.fitted.prompt_launch_s or 0.0) + layers * (kernels.fitted.experts_launch_s or 0.0)
    return float(host_s) * host_slowness(hardware)
