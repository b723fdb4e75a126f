"""The least seconds of a step: as long as the host takes to launch its kernels, while the devices work."""

from collections.abc import Iterable, Sequence

from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.overheads import Overheads
from simulator.hardware.hardware import Hardware
from simulator.models.layers import LAST_OF_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.operations import Op
from simulator.profile import Figure, Source
from simulator.roofline.graphs import NO_LAUNCHES, HostLaunch, Launches
from simulator.roofline.roofline import Rates

GAP_S = Figure(
    10e-6,
    Source(
        text="vllm-project/vllm pull request 9715, benchmark() of tests/compile/piecewise/test_toy_llama.py: two layers"
        " of tiny kernels take 18 to 20 us longer in pieces than in one graph, at 1 to 120 tokens",
        date="2024-10-28",
        evidence="measured",
    ),
)  # that a device waits longer, for each layer, where what splits the graph is launched between two pieces


def host_slowness(hardware: Hardware) -> float:
    """Return how many times longer a device's host takes than a current x86 server."""
    return float(hardware.host_slowness or 1.0)


def step_launches_s(kernels: DeviceKernels, layout: Layout, model: Model, overheads: Overheads) -> float:
    """Return the least seconds of any step, where no graph launches it: 0 where one does.

    Eager kernels of a layer x seconds of each (KernelRules.eager_kernels), or what was fitted to steps
    (FittedMultipliers.layer_launches), x layers.
    """
    layers = len(model.layer_names)
    if kernels.rules.eager_kernels:
        return kernels.rules.eager_kernels * overheads.kernel_s * host_slowness(kernels.hardware) * layers
    if kernels.fitted.layer_launches is None:
        return 0.0
    gemm = kernels.hardware.achievable.gemm[Rates(kernels).peak(layout.model_dtype)[0]]
    return kernels.fitted.layer_launches * gemm.launch_s * layers


def _experts_s(kernels: DeviceKernels, op: Op) -> float:
    """Return the host's seconds for a layer of experts beside its kernels: of those that it has, or what was fitted."""
    own = kernels.own_experts(op)
    each_s = own.host_s if own and own.host_s else kernels.fitted.experts_launch_s
    return float(each_s or 0.0) * host_slowness(kernels.hardware)


def launches_s(kernels: DeviceKernels, model: Model, ops: Iterable[Op]) -> Launches:
    """Return the host's seconds by how it launches a step; all 0 where its launches are not known to take time.

    Without a graph: for each kernel, what a library's Python does before it (KernelRules.gemm_calls), each norm that is
    one, each layer of experts, and what a mixer has for prompts beside its ops (KernelRules.prompt_kernels). In pieces:
    for the kernels that split the graph (Op.splits) and a graph of each layer and of what is behind the last, each
    taken to be a kernel's.
    """
    slowness = host_slowness(kernels.hardware)
    each_s = float(kernels.fitted.prompt_launch_s or 0.0) * slowness
    if not each_s:
        return NO_LAUNCHES
    every = tuple(ops)
    decoding = [op for op in every if op.rate != "prefill_attention"]
    of_experts_s = sum(_experts_s(kernels, op) * op.repeats for op in every if op.name == LAST_OF_EXPERTS)
    layers = len(model.layer_names)

    def called_s(op: Op) -> float:
        call = kernels.gemm_call(op)
        return slowness * call.host_s if call else 0.0

    def seconds(launched: Iterable[Op], prompts: int) -> float:
        return sum(
            (each_s * (kernels.launches(op) + prompts * op.prompt_launches) + called_s(op)) * op.repeats
            for op in launched
        )

    graphs_s = each_s * (layers + 1)
    norms_s = each_s * sum(kernels.norm_calls(op) * op.repeats for op in every)
    mixers = (model.blocks[name].mixer for name in model.layer_names)
    copies_s = each_s * sum(kernels.rules.prompt_kernels.get(mixer.kind, 0) for mixer in mixers if mixer)

    def launch(launched: Sequence[Op], prompts: int) -> HostLaunch:
        return HostLaunch(
            least_s=seconds(launched, prompts) + norms_s + of_experts_s + prompts * copies_s,
            piecewise_s=seconds((op for op in launched if op.splits), prompts) + graphs_s,
            gaps_s=float(GAP_S) * layers,
        )

    return Launches(prompts=launch(every, 1), decodes=launch(decoding, 0))
