"""Processes of this machine, each on a core; they start once the work turns out to take longer than their start."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from simulator.errors import InfercastError
from simulator.executors.executor import Result, Task, cores

START_S = 2.0  # that a process takes to import and to load machine code
AHEAD = 4  # tasks handed out per process, so that none waits for the next one


@dataclass(frozen=True)
class Processes:
    """Up to `width` processes. Tasks are done in this one until `START_S` have passed: then others have started by now.

    So short work never waits for processes, and long work takes `START_S` more at most (the rule of renting skis). The
    first task is always done here, after which compiled code is on disk for all.
    """

    width: int = field(default_factory=cores)
    start_s: float = field(default_factory=lambda: START_S)

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (place, work(task)) as they finish (`TaskExecutor.finished`)."""
        begun_s = time.monotonic()
        for place, task in enumerate(tasks):
            late = time.monotonic() - begun_s >= self.start_s
            if place and late and self.width > 1 and place + 1 < len(tasks):
                yield from self._by_others(work, tasks, place)
                return
            yield place, work(task)

    def _by_others(
        self, work: Callable[[Task], Result], tasks: Sequence[Task], start: int
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results of the tasks from place `start` on, done by processes of their own."""
        many, places = min(self.width, len(tasks) - start), iter(range(start, len(tasks)))
        under_way: dict[Future[Result], int] = {}
        with ProcessPoolExecutor(many, get_context("spawn"), _begin) as pool:
            try:
                for place in places:
                    under_way[pool.submit(work, tasks[place])] = place
                    if len(under_way) == AHEAD * many:
                        yield from _first(under_way)
                while under_way:
                    yield from _first(under_way)
            except BrokenProcessPool as error:
                because = "one of them was ended from outside, as where memory is short"
                remedy = 'Give fewer, say --jobs 1; in a script of your own, ask below `if __name__ == "__main__":`'
                raise InfercastError(f"{self.width} processes", because, remedy) from error
            except KeyboardInterrupt:
                running = {each: place for each, place in under_way.items() if not each.cancel()}
                while running:
                    yield from _first(running)
                raise
            finally:
                for each in under_way:
                    each.cancel()


def _first(under_way: dict[Future[Result], int]) -> Iterator[tuple[int, Result]]:
    """Wait until at least one future is done; take the done ones out and yield their places and results."""
    done: Any = wait(under_way, return_when=FIRST_COMPLETED).done
    for each in sorted(done, key=under_way.__getitem__):
        yield under_way.pop(each), each.result()


def _begin() -> None:
    """Ignore Ctrl-C, which the process that waits for the results handles; end when that one has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
