"""The constants of an engine on a device that own measurements may move, and how far: prior widths."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from simulator.engines.engine import Engine
from simulator.hardware.hardware import Hardware
from simulator.profile import Figure, Source
from simulator.reports.interval_widths import EvidenceLevel

# guesses: standard deviation of the logarithm of a share, by what a deployment rests on (reports/intervals.py)
SHARES: Mapping[EvidenceLevel, float] = {"fitted": 0.15, "family": 0.2, "guess": 0.3}
NARROW = 0.5  # guess: of that for bandwidths, which vary by 0.2 over the shipped presets where compute varies by 0.6
HOST = 1.0  # guess: the same of host times, each machine's own: a slow host takes three times as long as a fast one
LAUNCH = 0.5  # guess: the same of what host and device share, launches and collectives


@dataclass(frozen=True)
class Constant:
    """One constant: a field of `FittedMultipliers` (a share of what the device reaches, or launches) or `Overheads`.

    `what`: it in plain words. `host`: prior standard deviation of the logarithm of a time of the host; 0 is a share,
    whose prior is `width` x that of SHARES. `floor`: so small that a smaller value does not matter, in the constant's
    unit; a logarithm is of value + floor, so that a time of 0 may grow.
    """

    name: str
    part: Literal["fitted", "overheads"]
    what: str
    host: float = 0.0
    width: float = 1.0
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

    def spread(self, basis: EvidenceLevel) -> float:
        """Return the prior standard deviation of ln(value + floor) for a deployment that rests on `basis`."""
        return self.host or self.width * SHARES[basis]

    def moved(self, value: float, by: float) -> float:
        """Return a value with the logarithm of value + floor moved by `by`, at least 0.

        >>> time = Constant("step_s", "overheads", "", host=1.0, floor=1e-3)
        >>> round(time.moved(0.0, math.log(3.0)), 6), time.moved(1e-3, -9.0)
        (0.002, 0.0)
        """
        return max(0.0, (value + self.floor) * math.exp(by) - self.floor)

    def least(self, value: float) -> float:
        """Return the `by` that moves a value to 0; minus infinity without a floor."""
        return math.log(self.floor / (value + self.floor)) if self.floor else -math.inf


CONSTANTS = (
    Constant("compute", "fitted", "speed of GEMMs"),
    Constant("quantized", "fitted", "of fp8 and fp4 GEMMs, further"),
    Constant("unpacked", "fitted", "of GEMMs with packed weights, further"),
    Constant("experts", "fitted", "of experts' GEMMs, further"),
    Constant("block_experts", "fitted", "of block-scaled experts' GEMMs, further"),
    Constant("memory", "fitted", "speed of reading weights", width=NARROW),
    Constant("packed", "fitted", "of reading packed weights, further"),
    Constant("cache", "fitted", "speed of reading the KV cache", width=NARROW),
    Constant("attention", "fitted", "speed of prompts' attention"),
    Constant("link", "fitted", "latency of collectives", host=LAUNCH, floor=0.01),
    Constant("launch", "fitted", "time to launch a kernel", host=LAUNCH, floor=0.02),
    Constant("layer_launches", "fitted", "host time per layer and step", host=LAUNCH, floor=0.1),
    Constant("prompt_launch_s", "fitted", "host time per kernel of prompts", host=HOST, floor=1e-6),
    Constant("experts_launch_s", "fitted", "host time per layer of experts of prompts", host=HOST, floor=10e-6),
    Constant("kernel_s", "overheads", "host time per kernel", host=HOST, floor=1e-6),
    Constant("step_s", "overheads", "host time per step", host=HOST, floor=100e-6),
    Constant("sequence_s", "overheads", "host time per sequence and step", host=HOST, floor=1e-6),
    Constant("request_s", "overheads", "time per request outside steps", host=HOST, floor=1e-3),
    Constant("prompt_token_s", "overheads", "time per prompt token outside steps", host=HOST, floor=0.5e-6),
)


def adjusted(engine: Engine, hardware: Hardware, values: Mapping[str, float], source: Source) -> Engine:
    """Return an engine with constants of its own on a device; `values` by name of CONSTANTS, the others stay."""
    of: dict[str, dict[str, Figure]] = {"fitted": {}, "overheads": {}}
    for constant in CONSTANTS:
        if constant.name in values:
            of[constant.part][constant.name] = Figure(values[constant.name], source)
    host = engine.overheads_on(hardware).model_copy(update=of["overheads"])
    rule = engine.kernels_on(hardware).of_engine.with_fitted(**of["fitted"])
    rule = rule.model_copy(update={"families": (), "devices": (hardware.id,), "overheads": host})
    others = tuple(each for each in engine.kernels if each.devices != (hardware.id,))
    return engine.model_copy(update={"kernels": (rule, *others)})


def uncalibrated(engine: Engine, hardware: Hardware) -> Engine:
    """Return an engine without what an earlier calibration has found on a device."""
    kept = tuple(each for each in engine.kernels if not each.is_calibrated or each.devices != (hardware.id,))
    return engine.model_copy(update={"kernels": kept})
