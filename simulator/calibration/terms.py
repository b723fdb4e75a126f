"""The constants of an engine on a device that own measurements may move, and how far: prior widths."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from simulator.engines.engine import Engine
from simulator.engines.kernels import Kernels
from simulator.hardware.hardware import Hardware
from simulator.profile import Figure, Source

KNOWN = 0.15  # guess: standard deviation of the logarithm of a share that was fitted to the device's family
NEW = 0.3  # guess: the same where nothing of the family was fitted
HOST = 1.0  # guess: the same of host times, each machine's own: a slow host takes three times as long as a fast one


@dataclass(frozen=True)
class Term:
    """One constant: a field of `FittedMultipliers` (a share of what the device reaches, or launches) or `Overheads`.

    `what`: it in plain words. `host`: it is a time of the host. `floor`: so small that a smaller value does not matter,
    in the constant's unit; a logarithm is of value + floor, so that a time of 0 may grow.
    """

    name: str
    part: Literal["fitted", "overheads"]
    what: str
    host: bool = False
    floor: float = 0.0

    @property
    def path(self) -> str:
        """The constant's key in a preset."""
        return f"kernels.fitted.{self.name}" if self.part == "fitted" else f"overheads.{self.name}"

    def of(self, engine: Engine, hardware: Hardware) -> Figure | None:
        """Return the constant of an engine on a device; None where the engine does not have it there."""
        within = engine.kernels_on(hardware).fitted if self.part == "fitted" else engine.overheads_on(hardware)
        found: Figure | None = getattr(within, self.name)
        return found

    def spread(self, kernels: Kernels, hardware: Hardware) -> float:
        """Return the prior standard deviation of ln(value + floor)."""
        if self.host:
            return HOST
        return KNOWN if kernels.devices or hardware.family in kernels.fitted_on else NEW

    def moved(self, value: float, by: float) -> float:
        """Return a value with the logarithm of value + floor moved by `by`, at least 0.

        >>> time = Term("step_s", "overheads", "", host=True, floor=1e-3)
        >>> round(time.moved(0.0, math.log(3.0)), 6), time.moved(1e-3, -9.0)
        (0.002, 0.0)
        """
        return max(0.0, (value + self.floor) * math.exp(by) - self.floor)

    def least(self, value: float) -> float:
        """Return the `by` that moves a value to 0; minus infinity without a floor."""
        return math.log(self.floor / (value + self.floor)) if self.floor else -math.inf


TERMS = (
    Term("compute", "fitted", "speed of matrix products"),
    Term("quantized", "fitted", "of fp8 and fp4 products, further"),
    Term("unpacked", "fitted", "of products with packed weights, further"),
    Term("experts", "fitted", "of experts' products, further"),
    Term("block_experts", "fitted", "of block-scaled experts' products, further"),
    Term("memory", "fitted", "speed of reading weights"),
    Term("packed", "fitted", "of reading packed weights, further"),
    Term("cache", "fitted", "speed of reading the KV cache"),
    Term("attention", "fitted", "speed of prompts' attention"),
    Term("link", "fitted", "latency of collectives", host=True, floor=0.01),
    Term("launch", "fitted", "time to launch a kernel", host=True, floor=0.02),
    Term("layer_launches", "fitted", "host time per layer and step", host=True, floor=0.1),
    Term("prompt_launch_s", "fitted", "host time per kernel of prompts", host=True, floor=1e-6),
    Term("step_s", "overheads", "host time per step", host=True, floor=100e-6),
    Term("sequence_s", "overheads", "host time per sequence and step", host=True, floor=1e-6),
    Term("request_s", "overheads", "time per request outside steps", host=True, floor=1e-3),
    Term("prompt_token_s", "overheads", "time per prompt token outside steps", host=True, floor=0.5e-6),
)


def adjusted(engine: Engine, hardware: Hardware, values: Mapping[str, float], source: Source) -> Engine:
    """Return an engine with constants of its own on a device; `values` by name of TERMS, the others stay."""
    of: dict[str, dict[str, Figure]] = {"fitted": {}, "overheads": {}}
    for term in TERMS:
        if term.name in values:
            of[term.part][term.name] = Figure(values[term.name], source)
    host = engine.overheads_on(hardware).model_copy(update=of["overheads"])
    rule = engine.kernels_on(hardware).with_fitted(**of["fitted"])
    rule = rule.model_copy(update={"families": (), "devices": (hardware.id,), "overheads": host})
    others = tuple(each for each in engine.kernels if each.devices != (hardware.id,))
    return engine.model_copy(update={"kernels": (rule, *others)})


def uncalibrated(engine: Engine, hardware: Hardware) -> Engine:
    """Return an engine without what an earlier calibration has found on a device."""
    kept = tuple(each for each in engine.kernels if not (each.residuals and each.devices == (hardware.id,)))
    return engine.model_copy(update={"kernels": kept})
