"""Timing with a watch on the neighbours: a cell during which others used the cores is marked, not believed."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from simulator.reference.device import Device

STAT = Path("/proc/stat")
TOLERATED_CORES = 0.1  # of others, on average during a measurement


class Timing(NamedTuple):
    """Median seconds of some repeats, half the distance between their quartiles, and the cores that others used."""

    seconds: float
    spread_s: float
    others_cores: float

    @property
    def contended(self) -> bool:
        """Whether other work used the cores meanwhile."""
        return self.others_cores > TOLERATED_CORES


class Pulse(NamedTuple):
    """Seconds of a fixed product that stays in the caches, and of a fixed read that does not: the machine's own speed.

    What changes between two pulses is the machine (its clock, its neighbours on the host), not the engine.
    """

    compute_s: float
    read_s: float

    @classmethod
    def take(cls, device: Device) -> "Pulse":
        """Measure for about a second."""
        square = torch.ones(512, 512, device=device.kind)
        numbers = torch.ones(1 << 26, device=device.kind)
        product = timed(lambda: [square @ square for _ in range(8)], device, least_s=0.5)
        return cls(product.seconds, timed(numbers.sum, device, least_s=0.5).seconds)


def drift(pulses: Sequence[Pulse]) -> float:
    """Return how much slower the slowest pulse was than the fastest, the larger of computing and reading.

    >>> drift([Pulse(1.0, 4.0), Pulse(1.1, 5.0)])
    0.25
    """
    return max(max(each) / min(each) - 1 for each in zip(*pulses, strict=True))


class Guard:
    """Counts the cores that other processes used since it was made; NaN where the machine does not say."""

    def __init__(self) -> None:
        self._start = _busy_and_own_s()
        self._start_s = time.perf_counter()

    @property
    def others_cores(self) -> float:
        """Cores of others, on average."""
        now, elapsed_s = _busy_and_own_s(), time.perf_counter() - self._start_s
        if now is None or self._start is None or elapsed_s <= 0:
            return float("nan")
        busy, own = now[0] - self._start[0], now[1] - self._start[1]
        return max(0.0, busy - own) / elapsed_s


def _busy_and_own_s() -> tuple[float, float] | None:
    """Return the CPU seconds of all cores that were not idle, and those of this process and its threads."""
    if not STAT.is_file():
        return None
    ticks = [int(each) for each in STAT.read_text(encoding="ascii").splitlines()[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = ticks
    own = os.times()
    busy = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return busy, own.user + own.system + own.children_user + own.children_system


def timed(
    work: Callable[[], object],
    device: Device,
    least_s: float = 0.05,
    repeats: int = 5,
    before: Callable[[], object] = lambda: None,
) -> Timing:
    """Run work once to warm up, then `repeats` times or more until `least_s` have passed; `before` is not timed."""
    work()
    device.synchronize()
    guard, found, start_s = Guard(), list[float](), time.perf_counter()
    while len(found) < repeats or (time.perf_counter() - start_s < least_s and len(found) < 1000):
        before()
        device.synchronize()
        before_s = time.perf_counter()
        work()
        device.synchronize()
        found.append(time.perf_counter() - before_s)
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
    return Timing(float(middle), float(high - low) / 2, guard.others_cores)
