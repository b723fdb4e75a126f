"""Time work on a device, and note how much of the CPU other processes used meanwhile."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from simulator.arrays import Floats
from simulator.errors import InfercastError
from simulator.reference.cores import Guard
from simulator.reference.device import Device

TOLERATED_CORES = 0.1  # of others, on average during a measurement


class Timing(NamedTuple):
    """Median and half the interquartile range of repeats in seconds, and the cores that others used on average."""

    seconds: float
    spread_s: float
    others_cores: float

    @property
    def contended(self) -> bool:
        """Whether other processes used more than 0.1 cores."""
        return self.others_cores > TOLERATED_CORES


class Pulse(NamedTuple):
    """The machine's own speed: seconds of eight fixed GEMMs that stay in the caches, and of a read of 256 MiB.

    What differs between two pulses is the machine (its clock, its neighbours on the host), not the engine.
    """

    compute_s: float
    read_s: float

    @classmethod
    def take(cls, device: Device) -> "Pulse":
        """Measure, for about a second."""
        square = torch.ones(512, 512, device=device.kind)
        numbers = torch.ones(1 << 26, device=device.kind)
        product = timed(lambda: [square @ square for _ in range(8)], device, least_s=0.5)
        return cls(product.seconds, timed(numbers.sum, device, least_s=0.5).seconds)

    @classmethod
    def elsewhere(cls) -> "Pulse":
        """Measure one core, in a process of its own: its threads do not disturb an engine that runs in this one."""
        return cls(*other_process("the pulse", "simulator.reference.timing", (), "Run it again"))


def other_process(what: str, module: str, words: Sequence[str], remedy: str) -> Any:
    """Run `python -m module words` and return the JSON that it prints.

    Raises InfercastError about `what`, with the last line of its stderr and the `remedy`, where it fails.
    """
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InfercastError(what, f"it failed: {last}", remedy)
    return json.loads(done.stdout)


def drift(pulses: Sequence[Pulse]) -> float:
    """Return slowest / fastest - 1 of some pulses: the larger of computing and reading.

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
    """Time `work` on a device: once to warm up, then `repeats` times or more, until `least_s` seconds have passed.

    `before` is called before each repeat and not timed.
    """
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
    """Return the timing of samples in seconds, during which other processes used `others_s` CPU seconds.

    `elapsed_s`: how long they were watched, by default the sum of the samples.
    """
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    watched_s = elapsed_s or float(seconds.sum())
    return Timing(float(middle), float(high - low) / 2, max(0.0, float(others_s.sum()) / watched_s))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(Pulse.take(Device())))
