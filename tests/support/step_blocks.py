"""Least seconds of steps by blocks of their sizes, from a whole table."""

import numpy as np

from simulator.arrays import Floats
from simulator.roofline.step_floor import GROWTH, Least


def least_of(seconds: Floats) -> Least:
    """Return the least of seconds[0], seconds[1], ... in each block: of GROWTH, the last two sizes alone."""
    count = len(seconds)
    sizes = (int(GROWTH**power) for power in range(count.bit_length() * 10))
    firsts = sorted({0, count - 2, count - 1, *(size for size in sizes if size < count)})
    blocks = [seconds[first:end] for first, end in zip(firsts, [*firsts[1:], count], strict=True)]
    return Least(np.array([block.min() for block in blocks]), np.array([*firsts[1:], count]) - 1.0)
