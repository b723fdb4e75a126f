"""How long an op takes: its work, and the seconds of each resource; which resource binds most of some ops."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from simulator.arrays import Array, Bools, Floats

RESOURCES = ("compute", "memory", "link", "overhead")


class OpTime(NamedTuple):
    """Time of one op in a step: its work, the seconds of each resource alone, and the seconds predicted for it.

    Each field but the name is a number, or an array with the shape of the counts of the steps. `overhead_s`: launches
    of kernels, latency of collectives.
    """

    name: str
    flops: Array = 0.0
    moved_bytes: Array = 0.0
    link_bytes: Array = 0.0
    compute_s: Array = 0.0
    memory_s: Array = 0.0
    link_s: Array = 0.0
    overhead_s: Array = 0.0
    seconds: Array = 0.0

    def map(self, change: Callable[..., Array], *others: "OpTime") -> "OpTime":
        """Return what `change` makes of each field of this and the same ones of others, under this one's name.

        >>> OpTime("norms", seconds=2.0).map(max, OpTime("", seconds=3.0))[-1]
        3.0
        """
        return OpTime(self.name, *map(change, self[1:], *(each[1:] for each in others)))

    def where(self, holds: Bools, other: "OpTime") -> "OpTime":
        """Return this in the steps for which something holds, another one in the rest, under this one's name."""

        def chosen(own: Array, others: Array) -> Array:
            found: Array = np.where(holds, own, others)[()]
            return found

        return self.map(chosen, other)

    @property
    def bound(self) -> str:
        """The resource that takes longest: one of `RESOURCES`."""
        return max(RESOURCES, key=lambda name: float(getattr(self, f"{name}_s")))


def seconds_by_resource(times: Iterable[OpTime]) -> Floats:
    """Return the seconds of some ops by the resource that binds each, shape (4,) as `RESOURCES`, or (4, steps).

    >>> gemm = OpTime("gemm", compute_s=2.0, memory_s=1.0, seconds=2.5)
    >>> seconds_by_resource([gemm, OpTime("norm", memory_s=1.0, seconds=1.0)])
    array([2.5, 1. , 0. , 0. ])
    """
    found = np.zeros(len(RESOURCES))
    for each in times:
        alone = np.stack(np.broadcast_arrays(*(getattr(each, f"{name}_s") for name in RESOURCES), each.seconds)[:-1])
        binds = np.indices(alone.shape)[0] == alone.argmax(axis=0)
        found = found.reshape(found.shape + (1,) * (alone.ndim - found.ndim)) + np.where(binds, each.seconds, 0.0)
    return found


def mostly_bound(times: Iterable[OpTime]) -> tuple[str, float]:
    """Return the resource that binds the ops that take most of the time, and the share of the time, 0 to 1."""
    seconds = seconds_by_resource(times)
    most = int(seconds.argmax())
    return RESOURCES[most], float(seconds[most] / seconds.sum())
