"""Threads of this process, for work that is mostly compiled code and shares what it looks up."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from simulator.executors.executor import Result, Task


@dataclass(frozen=True)
class Threads:
    """Up to `width` threads: nothing is pickled, nothing starts anew, and Python code runs on one core at a time."""

    width: int = 1

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (place, work(task)) as they finish (`TaskExecutor.finished`)."""
        with ThreadPoolExecutor(self.width) as pool:
            under_way = {pool.submit(work, task): place for place, task in enumerate(tasks)}
            try:
                for each in as_completed(under_way):
                    yield under_way[each], each.result()
            finally:
                for each in under_way:
                    each.cancel()
