"""Predictions on all cores: setups are independent, so groups of them are answered by processes.

The answers are those of one process, to the bit and in the order of the rows, however many processes there are.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from typing import Any, TypeVar

from simulator.errors import InfercastError
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Prediction, predict

Group = TypeVar("Group")
Answer = TypeVar("Answer")
SERIAL_SETUPS = 200  # fewer are answered by one process before others have started
GROUP_SETUPS = 16  # most setups of a group
INTERRUPTED = "an interrupt came before it was predicted"
LONGEST_FIRST = ("open_loop", "offline", "closed_loop")  # regimes that are simulated, the longest first


def predict_all(
    rows: Sequence[Measurement], *, light: bool = False, level: float | None = None, jobs: int | None = None
) -> list[Prediction]:
    """Return the prediction of each row, as `predict` does, by `jobs` processes; None is one for each core.

    Ctrl-C ends it early: rows without an answer by then have the reason INTERRUPTED; where all are, it is raised.
    Raises InfercastError where a process is ended from outside.
    """
    indices: dict[Setup, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        indices[row.setup].append(index)
    many = 1 if len(indices) < SERIAL_SETUPS else jobs or cores()
    work = partial(_predicted, light=light, level=level)
    groups = [[index for setup in group for index in indices[setup]] for group in _groups(indices)]
    found = {index: Prediction(row, None, None, INTERRUPTED) for index, row in enumerate(rows)}
    with suppress(KeyboardInterrupt):
        answered = _finished(work, [[rows[at] for at in each] for each in groups], many)
        for group, answers in zip(groups, answered, strict=True):
            found |= {at: Prediction(rows[at], *answer) for at, answer in zip(group, answers, strict=True)}
    if all(each.reason == INTERRUPTED for each in found.values()) and rows:
        raise KeyboardInterrupt
    return [found[index] for index in range(len(rows))]


def over_groups(work: Callable[[Group], Answer], groups: Sequence[Group], jobs: int) -> list[Answer]:
    """Return work(group) of each group, in their order; they are started in their order, so put the longest first.

    `work`, groups and answers are pickled. The first group is answered in this process, after which compiled code is on
    disk for all. An interrupt cancels the groups that wait; those under way end first. Raises InfercastError where a
    process is ended from outside.

    >>> over_groups(len, ["a", "bc"], jobs=1)
    [1, 2]
    """
    return list(_finished(work, groups, jobs))


def _finished(work: Callable[[Group], Answer], groups: Sequence[Group], jobs: int) -> Iterator[Answer]:
    """Yield the answers of `over_groups`, each as soon as it and all before it are there."""
    yield from (work(each) for each in groups[:1])
    if jobs == 1 or len(groups) < 2:
        yield from (work(each) for each in groups[1:])
        return
    with ProcessPoolExecutor(min(jobs, len(groups) - 1), get_context("spawn"), _leave_interrupts) as pool:
        waiting = [pool.submit(work, group) for group in groups[1:]]
        try:
            yield from (each.result() for each in waiting)
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
    """Ignore Ctrl-C: the process that waits for the answers handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _groups(setups: Iterable[Setup]) -> Iterator[list[Setup]]:
    """Yield groups of setups that are likely to share a step table, the longest simulations first."""
    for _, some in groupby(sorted(setups, key=_alike), _alike):
        alike = list(some)
        yield from (alike[at : at + GROUP_SETUPS] for at in range(0, len(alike), GROUP_SETUPS))


def _alike(setup: Setup) -> tuple[object, ...]:
    """Return the sort key of a setup: its regime, the longest first, then what a step table depends on."""
    rank = LONGEST_FIRST.index(setup.regime) if setup.regime in LONGEST_FIRST else len(LONGEST_FIRST)
    return rank, setup.source, setup.hardware, setup.model, setup.engine, setup.engine_version, setup.tp


def _predicted(rows: list[Measurement], *, light: bool, level: float | None) -> list[tuple[Any, ...]]:
    """Return predictions without their measurements, which the caller has."""
    return [each[1:] for each in predict(rows, light=light, level=level)]
