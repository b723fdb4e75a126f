"""Timing with a watch on the neighbours: a cell during which others used the cores is marked, not believed."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from simulator.errors import InfercastError
from simulator.reference.cores import Guard
from simulator.reference.device import Device

Floats = npt.NDArray[np.float64]
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

    @classmethod
    def elsewhere(cls) -> "Pulse":
        """Measure one core in a process of its own, whose threads are nothing to an engine that runs in this one."""
        return cls(*other_process("the pulse", "simulator.reference.timing", (), "Run it again"))


def other_process(what: str, module: str, words: Sequence[str], remedy: str) -> Any:
    """Run a module of ours in a process of its own, and return the JSON that it prints."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InfercastError(what, f"it failed: {last}", remedy)
    return json.loads(done.stdout)


def drift(pulses: Sequence[Pulse]) -> float:
    """Return how much slower the slowest pulse was than the fastest, the larger of computing and reading.

    >>> drift([Pulse(1.0, 4.0), Pulse(1.1, 5.0)])
    0.25
    """
    return max(max(each) / min(each) - 1 for each in zip(*pulses, strict=True))


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
    guard, found = Guard(), list[float]()
    while len(found) < repeats or (guard.elapsed_s < least_s and len(found) < 1000):
        before()
        device.synchronize()
        before_s = time.perf_counter()
        work()
        device.synchronize()
        found.append(time.perf_counter() - before_s)
    return timing_of(np.array(found), np.array([guard.others_s]), guard.elapsed_s)


def timing_of(seconds: Floats, others_s: Floats, elapsed_s: float | None = None) -> Timing:
    """Put samples together; `elapsed_s`, during which others were watched, is the samples' own time by default."""
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    watched_s = elapsed_s or float(seconds.sum())
    return Timing(float(middle), float(high - low) / 2, max(0.0, float(others_s.sum()) / watched_s))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(Pulse.take(Device())))
