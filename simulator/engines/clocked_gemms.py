"""GEMMs of weight-only formats whose rate goes by the clock of a device, not by its peak: those of ggml on NVIDIA."""

import math

from simulator.engines.conditions import OfFormats, rule_of
from simulator.engines.heads_alone import clocks_per_s
from simulator.hardware.hardware import Hardware
from simulator.profile import Positive, Strict


class FormatClock(OfFormats):
    """Formats that some devices multiply by other instructions, at so many FLOPs a clock of a multiprocessor."""

    flops_per_clock: Positive


class ClockedGemms(Strict):
    """The rate of GEMMs that unpack weights as they multiply, where that bounds them and not the tensor cores.

    `flops_per_clock`: of a multiprocessor, at most. `int8_fraction`: no more of that peak, where they multiply integers
    and scale the sum of each block; a device without that peak has no such kernels. A device that reaches less than the
    peak in GEMMs of 16 bits (its compute fraction) holds no such clock, and reaches as much less in these.
    """

    flops_per_clock: Positive | None = None
    int8_fraction: Positive | None = None
    own: tuple[FormatClock, ...] = ()  # in place of both

    def flops_per_s(self, hardware: Hardware, stored: str) -> float:
        """Return the FLOP/s of all multiprocessors at their highest clock; infinity where no such bound is known.

        `stored`: the number format of the weights.

        82 multiprocessors of an RTX 3090 at 1.7 GHz:

        >>> from simulator.hardware.hardware import load_hardware
        >>> from simulator.profile import Figure, Source
        >>> timed = Source(text="timed alone", date="2026-11-28", evidence="measured")
        >>> rule = ClockedGemms(flops_per_clock=Figure(532, timed), int8_fraction=Figure(0.26, timed))
        >>> f"{rule.flops_per_s(load_hardware('rtx-3090'), 'q4_K_M') / 1e12:.0f} TFLOP/s"
        '74 TFLOP/s'
        """
        if own := rule_of(self.own, hardware, stored):
            return float(own.flops_per_clock) * clocks_per_s(hardware)
        by_clock = float(self.flops_per_clock) * clocks_per_s(hardware) if self.flops_per_clock else math.inf
        integers = hardware.peak_flops_per_s.get("int8") if self.int8_fraction else None
        return min(by_clock, float(self.int8_fraction or 0.0) * integers if integers else math.inf)
