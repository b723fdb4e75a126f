"""Predictions on all cores: setups depend on nothing but themselves, so groups of them are answered by processes.

The answers are those of one process, to the bit and in the order of the rows, however many processes there are.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from typing import Any, TypeVar

from simulator.errors import InfercastError
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Prediction, predict

Group = TypeVar("Group")
Answered = TypeVar("Answered")
FEW = 200  # setups that one process answers before others have started
TOGETHER = 16  # setups of a group at most
LONG = ("open_loop", "offline", "closed_loop")  # regimes that are simulated, from the longest on


def predict_all(
    rows: Sequence[Measurement], *, light: bool = False, level: float | None = None, jobs: int | None = None
) -> list[Prediction]:
    """Predict each row, as `predict` does, with as many processes as `jobs`; None is one for each core.

    InfercastError where a process is ended from outside.
    """
    places: dict[Setup, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[row.setup].append(place)
    many = 1 if len(places) < FEW else jobs or cores()
    work = partial(_predicted, light=light, level=level)
    groups = [[place for setup in group for place in places[setup]] for group in _groups(places)]
    found: dict[int, Prediction] = {}
    for group, answers in zip(
        groups, over_groups(work, [[rows[at] for at in each] for each in groups], many), strict=True
    ):
        found |= {at: Prediction(rows[at], *answer) for at, answer in zip(group, answers, strict=True)}
    return [found[place] for place in range(len(rows))]


def over_groups(work: Callable[[Group], Answered], groups: Sequence[Group], jobs: int) -> list[Answered]:
    """Return work(group) of each group, in their order; they are begun in their order, so the longest come first.

    `work`, groups and answers are pickled. The first group is answered here, after which compiled code is on disk for
    all. An interrupt ends what is waiting, and the others with what they are at.
    """
    first = [work(each) for each in groups[:1]]
    if jobs == 1 or len(groups) < 2:
        return first + [work(each) for each in groups[1:]]
    with ProcessPoolExecutor(min(jobs, len(groups) - 1), get_context("spawn"), _leave_interrupts) as pool:
        waiting = [pool.submit(work, group) for group in groups[1:]]
        try:
            return first + [each.result() for each in waiting]
        except BrokenProcessPool as error:
            because = "one of them was ended from outside, as where memory is short"
            raise InfercastError(f"{jobs} processes", because, "Give fewer, say --jobs 1") from error
        finally:
            for each in waiting:
                each.cancel()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the process that waits for the answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _groups(setups: Iterable[Setup]) -> Iterator[list[Setup]]:
    """Yield setups that are likely to share a table of steps, the longest simulations first."""
    for _, some in groupby(sorted(setups, key=_alike), _alike):
        alike = list(some)
        yield from (alike[at : at + TOGETHER] for at in range(0, len(alike), TOGETHER))


def _alike(setup: Setup) -> tuple[object, ...]:
    rank = LONG.index(setup.regime) if setup.regime in LONG else len(LONG)
    return rank, setup.source, setup.hardware, setup.model, setup.engine, setup.engine_version, setup.tp


def _predicted(rows: list[Measurement], *, light: bool, level: float | None) -> list[tuple[Any, ...]]:
    """Return predictions without their measurements, which whoever asks has."""
    return [each[1:] for each in predict(rows, light=light, level=level)]
