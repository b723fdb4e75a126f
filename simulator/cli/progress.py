"""How much is finished, on stderr: for what takes long."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:  # numba takes a while
    from simulator.simulation.engine_loop import Progress

Value = TypeVar("Value")
FIRST_LINE_S, NEXT_LINE_S = 30.0, 10.0  # until the first line of progress, which most commands never reach; then


@contextmanager
def progress_bar(label: str) -> Iterator["Progress"]:
    """Yield a `Progress` that shows how much is finished on stderr: a bar on a terminal, else a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(label, time.monotonic, sys.stderr.write)
        return
    columns = (*Bar.get_default_columns(), MofNCompleteColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda finished, every: bar.update(task, completed=finished, total=every)


def followed(label: str, values: Iterable[Value], every: int) -> list[Value]:
    """Return values that take long to compute, `every` in number, with how many are there on stderr."""
    found: list[Value] = []
    with progress_bar(label) as progress:
        progress(0, every)
        for each in values:
            found.append(each)
            progress(len(found), every)
    return found


def _lines(label: str, clock_s: Callable[[], float], write: Callable[[str], object]) -> "Progress":
    """Return a `Progress` that writes a line where enough time has passed since the last one.

    >>> seconds = iter([0.0, 10.0, 40.0, 45.0, 51.0])
    >>> told = _lines("deployments", lambda: next(seconds), lambda line: print(line, end=""))
    >>> for finished in range(4):
    ...     told(finished, 9)
    infercast: deployments: 1 of 9
    infercast: deployments: 3 of 9
    """
    due_s = clock_s() + FIRST_LINE_S

    def told(finished: int, every: int) -> None:
        nonlocal due_s
        if (now_s := clock_s()) >= due_s:
            due_s = now_s + NEXT_LINE_S
            write(f"infercast: {label}: {finished:,} of {every:,}\n")

    return told
