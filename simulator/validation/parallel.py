"""Predictions at once: setups are independent, so groups of them are answered by whatever executor there is.

The answers are those of one process, to the bit and in the order of the rows, whoever gives them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from simulator.executors.executor import TaskExecutor
from simulator.executors.processes import Processes
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Prediction, predict

GROUP_SETUPS = 16  # most setups of a group
INTERRUPTED = "an interrupt came before it was predicted"
LONGEST_FIRST = ("open_loop", "offline", "closed_loop")  # regimes that are simulated, the longest first


def predict_all(
    rows: Sequence[Measurement],
    *,
    light: bool = False,
    level: float | None = None,
    executor: TaskExecutor | None = None,
) -> list[Prediction]:
    """Return the prediction of each row, as `predict` does, by an executor; None is all cores of this machine.

    Ctrl-C ends it early: rows without an answer by then have the reason INTERRUPTED; where all are, it is raised.
    Raises InfercastError as the executor does.
    """
    indices: dict[Setup, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        indices[row.setup].append(index)
    groups = [[index for setup in group for index in indices[setup]] for group in _groups(indices)]
    work = partial(_predicted, light=light, level=level)
    found = {index: Prediction(row, None, None, INTERRUPTED) for index, row in enumerate(rows)}
    with suppress(KeyboardInterrupt):
        for place, answers in (executor or Processes()).finished(work, [[rows[at] for at in each] for each in groups]):
            found |= {at: Prediction(rows[at], *answer) for at, answer in zip(groups[place], answers, strict=True)}
    if all(each.reason == INTERRUPTED for each in found.values()) and rows:
        raise KeyboardInterrupt
    return [found[index] for index in range(len(rows))]


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
