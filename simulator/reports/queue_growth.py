"""Whether the queue of a run grows without end, which tells an overloaded engine from a busy one, and how fast."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.simulation.engine_loop import Run

GROWTH_SHARE = 0.02  # of the arrivals looked at: a queue that grew by no more is taken to be stable
LEAST_GROWTH = 10.0  # requests, by which a queue grew that is taken to grow


@dataclass(frozen=True)
class Queue:
    """The requests of a run that wait to be admitted, over time."""

    run: Run

    @cached_property
    def _admitted_s(self) -> Floats:
        return np.sort(self.run.scheduled_s)

    @property
    def growth_per_s(self) -> float:
        """Requests/s by which it grew over the second half of the arrivals; 0 in a closed loop."""
        arrival_s = self.run.requests.arrival_s
        begin_s, end_s = float(arrival_s[len(arrival_s) // 2]), float(arrival_s[-1])
        if self.run.requests.concurrency or end_s <= begin_s:
            return 0.0
        return self._growth(begin_s, end_s) / (end_s - begin_s)

    @property
    def grows(self) -> bool:
        """Whether it grew in the second half or the last quarter of the arrivals, and was never empty in it.

        It grew where it did so by more than `GROWTH_SHARE` of them, and in the quarter by more than two standard
        deviations of their number. A queue of a stable system grows for a while too, but it empties. The quarter is for
        an engine whose places fill for most of the run. False of a closed loop, and of a run too short to fill them.
        """
        requests = self.run.requests
        half = len(requests) // 2
        gaps_s, quarter = np.diff(requests.arrival_s[-half:]), half // 2
        if requests.concurrency or quarter == 0 or not gaps_s.any():
            return False
        spread = math.sqrt(quarter) * float(gaps_s.std() / gaps_s.mean())
        return self._grew(half, LEAST_GROWTH) or self._grew(quarter, max(LEAST_GROWTH, 2.0 * spread))

    def _grew(self, last: int, least: float) -> bool:
        """Tell whether it grew over the `last` arrivals, by more than `least` requests, and was never empty."""
        steps, arrival_s = self.run.steps, self.run.requests.arrival_s
        begin_s, end_s = float(arrival_s[-last]), float(arrival_s[-1])
        if self._growth(begin_s, end_s) <= max(GROWTH_SHARE * last, least):
            return False
        steps = steps[(steps.start_s >= begin_s) & (steps.start_s <= end_s)]
        longest_s = steps.seconds.max(initial=0.0)  # who waits for no more than a step is not queueing
        return bool((self._waiting(steps.start_s, longest_s) > 0).all())

    def _growth(self, begin_s: float, end_s: float) -> float:
        """Return by how many requests it grew between two times."""
        return float(np.diff(self._waiting(np.array([begin_s, end_s])))[0])

    def _waiting(self, times_s: Floats, since_s: float = 0.0) -> Ints:
        """Count the requests that arrived at least `since_s` before some times and had not been admitted by them.

        int64, of the shape of `times_s`.
        """
        arrived = np.searchsorted(self.run.requests.arrival_s, times_s - since_s, side="right")
        return arrived - np.searchsorted(self._admitted_s, times_s, side="right")
