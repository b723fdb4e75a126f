"""Damped Newton steps to the least loss, as Levenberg and Marquardt take them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.arrays import Floats

FURTHEST, STUCK = 0.5, 1e3  # a step in any direction; a damping that leads nowhere


class Point(NamedTuple):
    """A place, the loss there, its gradient and (nearly) its curvature."""

    at: Floats
    loss: float
    gradient: Floats
    curvature: Floats

    def next(self, damping: float) -> Floats:
        """Return where a damped step leads; what tells nothing stays."""
        damped = self.curvature + damping * np.diag(np.diag(self.curvature) + 1e-6)
        step: Floats = np.clip(np.linalg.solve(damped, -self.gradient), -FURTHEST, FURTHEST)
        return self.at + step


def minimum(look: Callable[[Floats], Point], start: Floats, enough: float) -> Floats:
    """Return the place of least loss near `start`; a step counts that gains `enough`.

    `look` may return a point beside the place that it is asked for, where that one is out of bounds.

    >>> def look(at: Floats) -> Point:
    ...     return Point(at, float((at[0] - 3.0) ** 2), 2 * (at - 3.0), np.array([[2.0]]))
    >>> minimum(look, np.zeros(1), 1e-9).round(3).tolist()
    [3.0]
    """
    best, damping = look(start), 0.01
    while damping < STUCK:
        tried = look(best.next(damping))
        if tried.loss < best.loss - enough:
            best, damping = tried, damping / 4
        else:
            damping *= 4
    return best.at
