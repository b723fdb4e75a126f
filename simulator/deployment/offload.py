"""Offloading to the host: weights copied over PCIe in every step, layers that the CPU computes, evicted KV cache."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from simulator.engines.engine import Engine
from simulator.errors import Given, InfercastError, NotModelledError, Setting
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.blocks import Repeat
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.operations import Counts, Op
from simulator.models.routed_experts import Experts
from simulator.profile import Source
from simulator.roofline.collectives import host_bytes_per_s, pcie_bytes_per_s
from simulator.roofline.op_time import OpTime
from simulator.roofline.roofline import Rates
from simulator.roofline.speed_of_light import LightRates
from simulator.units import gibibytes

COPIED_FROM_TOKENS = 32  # from here on llama.cpp multiplies on the device (GGML_OP_OFFLOAD_MIN_BATCH)
HOSTS = {"consumer-gpu": "ryzen-7950x"}  # CPU profile by class of device; SERVER for the others
SERVER = "xeon-8480"
HOST_SOURCE = Source(
    text="the CPU that a device of its class usually stands beside", date="2026-11-21", evidence="guess"
)


@dataclass(frozen=True, slots=True)
class Offload:
    """What lies in the host's memory instead of the device's.

    `weight_bytes`: of each device, copied to it in every step (vLLM: --cpu-offload-gb). `gpu_layers`: the last so many
    layers stay on the device, the CPU computes the others (llama.cpp: -ngl). `cache_bytes`: room for prefix blocks that
    the device's cache has evicted. `host`: profile of the host's CPU; "" is a guess by the class of device (`HOSTS`).

    Raises InfercastError for negative sizes, for no layer on the device, and for weight_bytes with gpu_layers.
    """

    weight_bytes: float = 0.0
    gpu_layers: int | None = None
    cache_bytes: float = 0.0
    host: str = ""

    def __post_init__(self) -> None:
        if self.weight_bytes < 0 or self.cache_bytes < 0:
            raise InfercastError("a negative offload", "bytes are 0 or more", "Give 0 or more")
        if self.gpu_layers is not None and self.gpu_layers < 1:
            given: Given = Setting("gpu_layers", self.gpu_layers)
            raise InfercastError(given, "the device computes a layer at least", "Name the CPU as the device instead")
        if self.weight_bytes and self.gpu_layers is not None:
            because = "weights are either copied to the device or multiplied by the CPU"
            layers = Setting("gpu_layers", self.gpu_layers)
            given = Setting("weight_bytes", self.weight_bytes), "with", layers
            raise InfercastError(given, because, "Give one of the two")


NO_OFFLOAD = Offload()


def host_layers(model: Model, offload: Offload) -> tuple[str, ...]:
    """Return the block names of the layers that the CPU computes: the first ones, as in llama.cpp.

    >>> from simulator.models.model import load_model
    >>> len(host_layers(load_model("llama-3.1-8b"), Offload(gpu_layers=30)))
    2
    """
    names = model.layer_names
    return () if offload.gpu_layers is None else names[: max(0, len(names) - offload.gpu_layers)]


def refuse_layers_on_host(model: Model, engine: Engine, offload: Offload) -> None:
    """Raise NotModelledError for layers on the CPU in a product that has no such kernels."""
    if host_layers(model, offload) and engine.reads and not engine.is_built_on_ggml:
        given = Setting("gpu_layers", offload.gpu_layers), f"in {engine.id}"
        because = "it computes no layers on the CPU"
        raise NotModelledError(given, because, "Give --cpu-offload-gb instead, or --engine llama.cpp")


def device_part(model: Model, offload: Offload) -> Model:
    """Return the model without the layers that the CPU computes."""
    on_cpu = len(host_layers(model, offload))
    rest = model.layer_names[on_cpu:]
    return model.model_copy(update={"layers": (Repeat(of=rest),)}) if on_cpu else model


def offloaded_ops(model: Model, layout: Layout, offload: Offload) -> tuple[Op, ...]:
    """Return the ops of one step: on the host's CPU, over PCIe, on the device.

    Raises NotModelledError for layers on the CPU beside several devices, InfercastError for more offloaded weights than
    the layers have.
    """
    on_cpu = host_layers(model, offload)
    if on_cpu and layout.devices > 1:
        given = Setting("gpu_layers", offload.gpu_layers), f"on {layout.devices} devices"
        raise NotModelledError(given, "layers on the CPU are modelled beside one device", "Use one device")
    ops = device_part(model, offload).ops(layout)
    if on_cpu:
        return (*_on_host(model, layout, on_cpu), *ops)
    return (*_copies(model, layout, offload.weight_bytes), *ops) if offload.weight_bytes else ops


def _on_host(model: Model, layout: Layout, on_cpu: tuple[str, ...]) -> tuple[Op, ...]:
    """Return the ops of the layers on the CPU, and the transfer of their activations to the device."""
    hand_over = Counts(tokens=model.hidden * layout.activation_bytes)
    blocks = (
        replace(op, name=f"CPU: {op.name}", repeats=op.repeats * times, on_host=True)
        for name, times in Counter(on_cpu).items()
        for op in model.blocks[name].ops(model.hidden, layout)
    )
    return (*blocks, Op(name="activations to the device", rate="host_link", activation_bytes=hand_over))


def _copies(model: Model, layout: Layout, weight_bytes: float) -> tuple[Op, ...]:
    """Return the copies of a step: an equal share of each layer's weights, of experts those that the batch touches."""
    dense, routed = _layer_weights(model, layout)
    whole = layer_bytes(model, layout)
    if weight_bytes > whole * (1 + 1e-9):
        because = f"the layers hold {gibibytes(whole)} on each device"
        raise InfercastError(Setting("weight_bytes", weight_bytes), because, "Give less")
    share = weight_bytes / whole
    copies = [Op(name="weights from the host", rate="host_link", weight_bytes=share * dense)]
    for experts, each in routed.items():
        copies.append(Op(name="experts from the host", rate="host_link", expert_bytes=share * each, experts=experts))
    return tuple(copies)


def layer_bytes(model: Model, layout: Layout) -> float:
    """Return the bytes of weights of all layers on each device; offloading takes the same share of each layer.

    Llama-3.1-8B: 32 layers of 4,096 x 6,144 + 4,096 x 4,096 + 3 x 4,096 x 14,336 numbers (config.json) of 2 bytes.

    >>> from simulator.models.model import load_model
    >>> layer_bytes(load_model("llama-3.1-8b"), Layout())
    13958643712.0
    """
    dense, routed = _layer_weights(model, layout)
    return (dense + sum(each * experts.total for experts, each in routed.items())) / layout.pp


def _layer_weights(model: Model, layout: Layout) -> tuple[float, dict[Experts, float]]:
    """Return the bytes that every step reads, of all stages, and the bytes of one expert of all layers, by router."""
    dense, routed = 0.0, dict[Experts, float]()
    for name, times in Counter(model.layer_names).items():
        for op in model.blocks[name].ops(model.hidden, layout):
            dense += op.weight_bytes * op.repeats * times
            if op.experts is not None:
                routed[op.experts] = routed.get(op.experts, 0.0) + op.expert_bytes * op.repeats * times
    return dense, routed


def host_of(hardware: Hardware, offload: Offload) -> Hardware:
    """Return the profile of the host's CPU."""
    return load_hardware(offload.host or HOSTS.get(hardware.device_class, SERVER))


def host_time(hardware: Hardware, engine: Engine, offload: Offload, *, light: bool) -> Callable[[Op, Counts], OpTime]:
    """Return the function that times an op whose weights lie in the host's memory, from `Op` and `Counts` to `OpTime`.

    The CPU computes it; from `COPIED_FROM_TOKENS` new tokens on, llama.cpp copies its weights to the device and
    computes it there: T = T_device + weight bytes / PCIe rate.
    """
    host = host_of(hardware, offload)
    rates = LightRates if light else Rates
    cpu, device = rates(engine.kernels_on(host)), rates(engine.kernels_on(hardware))
    link_bytes_per_s = _link_bytes_per_s(hardware, light=light)

    def time(op: Op, counts: Counts) -> OpTime:
        computed = cpu.time(op, counts)
        if not op.weight_bytes and op.experts is None:
            return computed
        copied = device.time(op, counts)
        weights = replace(op, cache_bytes=Counts(), activation_bytes=Counts())
        copy_s = weights.bytes_read(counts) * op.repeats / link_bytes_per_s
        over_link = copied._replace(link_s=copied.link_s + copy_s, seconds=copied.seconds + copy_s)
        there = np.asarray(counts.tokens) >= COPIED_FROM_TOKENS
        return over_link.where(there, computed)

    return time


def loaded_token_s(model: Model, hardware: Hardware, layout: Layout, offload: Offload, *, light: bool) -> float:
    """Return the seconds to load one token's KV cache from the host over PCIe; devices load in parallel."""
    if not offload.cache_bytes:
        return 0.0
    return model.cache_bytes(1, layout) / _link_bytes_per_s(hardware, light=light)


def _link_bytes_per_s(hardware: Hardware, *, light: bool) -> float:
    return pcie_bytes_per_s(hardware) if light else host_bytes_per_s(hardware)
