"""The model, device and layout that an engine computes on: padded heads, fp32 states, split rows, threads of a CPU."""

import math
from dataclasses import replace
from typing import NamedTuple

from simulator.engines.engine import Engine
from simulator.errors import InfercastError
from simulator.hardware.hardware import Hardware, scaled_peaks
from simulator.models.layers import Attention, Dense, MixtureOfExperts, Recurrent
from simulator.models.layout import Layout
from simulator.models.model import Model

TP_DEGREES = (1, 2, 4, 8, 16, 32, 64)


class Sharded(NamedTuple):
    """A model, a device and a layout that divide each other."""

    model: Model
    hardware: Hardware
    layout: Layout
    devices_each: float = 1.0  # devices asked for over devices of the layout, which are as many times as fast


def sharded(model: Model, hardware: Hardware, engine: Engine, layout: Layout, threads: int | None = None) -> Sharded:
    """Return what an engine computes on, after padding, widening states, splitting rows and limiting threads.

    An engine that pads heads (`pads_heads`) adds heads of zeros until every core has as many. One that splits the rows
    of matrices (`splits_rows`, llama.cpp) may use any number of devices: where that does not divide the model, fewer
    devices that are as many times as fast stand for them. `threads` below a CPU's cores scale its peak FLOP/s.
    """
    if threads and hardware.cores and threads < hardware.cores:
        hardware = _on_threads(hardware, threads)
    if engine.memory.fp32_states:
        model = _with_fp32_states(model)
    if layout.dp > 1:
        return Sharded(model, hardware, layout)
    if engine.pads_heads:
        model = _padded(model, layout.tp * hardware.cores_per_device)
    if engine.splits_rows and not _divides(model, layout.tp):
        tp = next(each for each in reversed(TP_DEGREES) if each < layout.tp and _divides(model, each))
        each = layout.tp / tp
        return Sharded(model, scaled_hardware(hardware, each), replace(layout, tp=tp, ep=min(layout.ep, tp)), each)
    return Sharded(model, hardware, layout)


def _on_threads(hardware: Hardware, threads: int) -> Hardware:
    """Return a CPU with its peak FLOP/s scaled to some of its cores; its bandwidth stays, which a few cores use up."""
    share = threads / (hardware.cores or threads)
    return hardware.model_copy(update=scaled_peaks(hardware, share))


def scaled_hardware(hardware: Hardware, factor: float) -> Hardware:
    """Return a device with memory, bandwidth and peak FLOP/s multiplied by `factor`."""
    return hardware.model_copy(
        update={
            "memory_bytes_per_s": hardware.memory_bytes_per_s * factor,
            "memory_marketed_bytes": hardware.memory_marketed_bytes * factor,
            "memory_reported_bytes": hardware.memory_bytes * factor,
            **scaled_peaks(hardware, factor),
        }
    )


def _padded(model: Model, parts: int) -> Model:
    """Return a model whose heads and widths divide by `parts`; unchanged where a block has other kinds of layers.

    Transformers-NeuronX adds heads of zeros and copies those of the cache until each NeuronCore has as many
    (get_qkv_padding and round_up_to_divisor in its utils.py, read 2026-11-22).
    """
    blocks = {}
    for name, block in model.blocks.items():
        if not isinstance(block.mixer, Attention) or not isinstance(block.ffn, Dense | MixtureOfExperts):
            return model
        heads, kv_heads = _round_up(block.mixer.heads, parts), _round_up(block.mixer.kv_heads, parts)
        mixer = block.mixer.model_copy(update={"heads": heads, "kv_heads": kv_heads})
        ffn = block.ffn.model_copy(update={"intermediate": _round_up(block.ffn.intermediate, parts)})
        blocks[name] = block.model_copy(update={"mixer": mixer, "ffn": ffn})
    return model.model_copy(update={"blocks": blocks})


def _with_fp32_states(model: Model) -> Model:
    """Return a model whose recurrent states are fp32 where its config.json does not say so (MemoryRule.fp32_states)."""
    blocks = dict(model.blocks)
    for name, block in model.blocks.items():
        if isinstance(block.mixer, Recurrent):
            mixer = block.mixer.model_copy(update={"state_dtype": "fp32"})
            blocks[name] = block.model_copy(update={"mixer": mixer})
    return model.model_copy(update={"blocks": blocks})


def _round_up(number: int, multiple: int) -> int:
    return math.ceil(number / multiple) * multiple


def _divides(model: Model, tp: int) -> bool:
    try:
        return tp == 1 or bool(model.ops(Layout(tp)))
    except InfercastError:
        return False
