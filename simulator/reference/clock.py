"""Clocks of the engine's loop: how long a step takes in real time, by prediction, or in a recorded run."""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import State
from simulator.simulation.step_seconds import step_seconds

Work = Callable[[], None]


class Clock(Protocol):
    """Runs one step and returns its duration in seconds."""

    def __call__(self, s: State, start_s: float, work: Work) -> float:
        """Call `work`, which computes the step of state `s` that starts at `start_s`; return seconds."""
        ...


class WallClock:
    """Real time since the first step; sleeps until a step's start where that lies ahead (the next arrival).

    `before_step` is called before each step; its time counts as the step's.
    """

    def __init__(self, before_step: Callable[[], None] = lambda: None) -> None:
        self._origin_s, self._before_step = -1.0, before_step

    def __call__(self, s: State, start_s: float, work: Work) -> float:  # noqa: ARG002  it need not look
        """Return the seconds from the step's start to the end of its work."""
        now_s = time.perf_counter()
        if self._origin_s < 0:
            self._origin_s = now_s - start_s
        wait_s = self._origin_s + start_s - now_s
        if wait_s > 0:
            time.sleep(wait_s)
        self._before_step()
        work()
        return time.perf_counter() - self._origin_s - start_s


class PredictedClock:
    """The simulator's prediction from a step table: the engine's run then equals the simulated one to the last bit."""

    def __init__(self, table: StepTable) -> None:
        self._table = table

    def __call__(self, s: State, start_s: float, work: Work) -> float:  # noqa: ARG002
        """Return the seconds that the table gives for the step."""
        seconds, _ = step_seconds(s, self._table)
        work()
        return float(seconds)


class RecordedClock:
    """The step times of a recorded run in their order, in seconds; StopIteration after the last."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self._seconds = iter(seconds)

    def __call__(self, s: State, start_s: float, work: Work) -> float:  # noqa: ARG002
        """Return the next recorded time."""
        work()
        return next(self._seconds)
