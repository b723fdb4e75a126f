"""One loop, several clocks: a step takes as long as it takes, as long as the simulator says, or as long as it took."""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from simulator.simulate import step_seconds
from simulator.state import State
from simulator.steps import StepTable

Work = Callable[[], None]


class Clock(Protocol):
    """Says how long the step that was begun at `start_s` takes; `work` computes it."""

    def __call__(self, s: State, start_s: float, work: Work) -> float:
        """Do the work and return seconds."""
        ...


class WallClock:
    """Real time, from the first step on; waits for an arrival that is still to come.

    `before_step` is called before each step, within its time.
    """

    def __init__(self, before_step: Callable[[], None] = lambda: None) -> None:
        self._origin_s, self._before_step = -1.0, before_step

    def __call__(self, s: State, start_s: float, work: Work) -> float:  # noqa: ARG002  it need not look
        """Work, and return what has passed since the step's start."""
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
    """The simulator's own prediction: the engine then does what the simulator does, to the last bit."""

    def __init__(self, table: StepTable) -> None:
        self._table = table

    def __call__(self, s: State, start_s: float, work: Work) -> float:  # noqa: ARG002
        """Work, and return the seconds that the table says."""
        seconds, _ = step_seconds(s, self._table)
        work()
        return float(seconds)


class RecordedClock:
    """The step times of a recorded run, one after the other."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self._seconds = iter(seconds)

    def __call__(self, s: State, start_s: float, work: Work) -> float:  # noqa: ARG002
        """Work, and return the next recorded time."""
        work()
        return next(self._seconds)
