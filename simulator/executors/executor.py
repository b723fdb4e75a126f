"""One interface to whatever works: a map over independent tasks, whose results come as they finish."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class TaskExecutor(Protocol):
    """Does independent tasks at once. Results do not depend on the executor, nor on how many tasks run at once."""

    @property
    def width(self) -> int:
        """How many tasks run at once."""
        ...

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (place, work(task)) of each task once, as they finish.

        Tasks are started in their order, so put the longest first. `work`, tasks and results are pickled. Raises what
        `work` raises, and InfercastError where whoever works is lost. After Ctrl-C what is under way is still yielded,
        then KeyboardInterrupt is raised.
        """
        ...


def in_order(executor: TaskExecutor, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Yield work(task) of each task, in the order of the tasks, each as soon as all before it are there.

    >>> from simulator.executors.processes import Processes
    >>> list(in_order(Processes(), len, ["a", "bc"]))
    [1, 2]
    """
    early: dict[int, Result] = {}
    wanted = 0
    for place, result in executor.finished(work, tasks):
        early[place] = result
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
