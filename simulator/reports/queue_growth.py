"""Whether the queue of a run grows without end, which tells an overloaded engine from a busy one, and how fast."""

import math

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.simulation.engine_loop import Run

GROWTH_SHARE = 0.02  # of the arrivals looked at: a queue that grew by no more is taken to be stable
LEAST_GROWTH = 10.0  # requests, by which a queue grew that is taken to grow


def growth_per_s(run: Run) -> float:
    """Return the requests/s by which the queue grew over the second half of the arrivals; 0 in a closed loop."""
    arrival_s = run.requests.arrival_s
    begin_s, end_s = float(arrival_s[len(arrival_s) // 2]), float(arrival_s[-1])
    if run.requests.concurrency or end_s <= begin_s:
        return 0.0
    return _growth(run, np.sort(run.scheduled_s), begin_s, end_s) / (end_s - begin_s)


def grows(run: Run) -> bool:
    """Tell whether the queue grew in the second half or the last quarter of the arrivals, and was never empty in it.

    It grew where it did so by more than `GROWTH_SHARE` of them, and in the quarter by more than two standard deviations
    of their number. A queue of a stable system grows for a while too, but it empties. The quarter is for an engine
    whose places fill for most of the run. False of a closed loop, and of a run too short to fill the places.
    """
    half = len(run.requests) // 2
    gaps_s, quarter = np.diff(run.requests.arrival_s[-half:]), half // 2
    if run.requests.concurrency or quarter == 0 or not gaps_s.any():
        return False
    spread = math.sqrt(quarter) * float(gaps_s.std() / gaps_s.mean())
    admitted_s = np.sort(run.scheduled_s)
    if _grew(run, admitted_s, half, LEAST_GROWTH):
        return True
    return _grew(run, admitted_s, quarter, max(LEAST_GROWTH, 2.0 * spread))


def _grew(run: Run, admitted_s: Floats, last: int, least: float) -> bool:
    """Tell whether the queue grew over the `last` arrivals, by more than `least` requests, and was never empty."""
    steps, arrival_s = run.steps, run.requests.arrival_s
    begin_s, end_s = float(arrival_s[-last]), float(arrival_s[-1])
    if _growth(run, admitted_s, begin_s, end_s) <= max(GROWTH_SHARE * last, least):
        return False
    steps = steps[(steps.start_s >= begin_s) & (steps.start_s <= end_s)]
    longest_s = steps.seconds.max(initial=0.0)  # who waits for no more than a step is not queueing
    return bool((_waiting(run, admitted_s, steps.start_s, longest_s) > 0).all())


def _growth(run: Run, admitted_s: Floats, begin_s: float, end_s: float) -> float:
    """Return by how many requests the queue grew between two times."""
    return float(np.diff(_waiting(run, admitted_s, np.array([begin_s, end_s])))[0])


def _waiting(run: Run, admitted_s: Floats, times_s: Floats, since_s: float = 0.0) -> Ints:
    """Count the requests that arrived at least `since_s` before some times and had not been admitted by them.

    `admitted_s`: when requests were admitted, sorted. int64, of the shape of `times_s`.
    """
    arrived = np.searchsorted(run.requests.arrival_s, times_s - since_s, side="right")
    return arrived - np.searchsorted(admitted_s, times_s, side="right")
