"""Timing with a watch on the neighbours: a cell during which others used the cores is marked, not believed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

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


def timed(work: Callable[[], object], device: Device, least_s: float = 0.05, repeats: int = 5) -> Timing:
    """Run work once to warm up, then `repeats` times or more until `least_s` have passed."""
    work()
    device.synchronize()
    guard, found, start_s = Guard(), list[float](), time.perf_counter()
    while len(found) < repeats or (time.perf_counter() - start_s < least_s and len(found) < 1000):
        before_s = time.perf_counter()
        work()
        device.synchronize()
        found.append(time.perf_counter() - before_s)
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
    return Timing(float(middle), float(high - low) / 2, guard.others_cores)
