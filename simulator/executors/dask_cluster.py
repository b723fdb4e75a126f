"""A Dask cluster: many machines, whose workers may come and go while they work. It needs the extra `cluster`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.errors import InfercastError
from simulator.executors.executor import Result, Task
from simulator.executors.program import library_digest

if TYPE_CHECKING:
    from distributed import Client, Future

SCHEME = "dask://"
CONNECT_S, WORKER_S = 10.0, 30.0  # within which a scheduler has to answer, and a first worker has to come
AHEAD = 3  # bundles handed out per thread of the cluster, so that none waits for the next one
MOST_BUNDLED = 32  # tasks that travel together: Dask takes about 1 ms for each bundle (docs/scale.md)
_CLIENTS: "dict[str, Client]" = {}


@dataclass(frozen=True)
class DaskCluster:
    """The workers of the Dask scheduler at `address`, "dask://HOST:PORT".

    Where a worker dies, the scheduler gives what it had to others. Workers have to run the same program with the same
    profiles: each bundle of tasks is refused by one that does not.
    """

    address: str

    @property
    def width(self) -> int:
        """Threads of all workers that are there now, at least 1. Raises InfercastError as `finished`."""
        return max(1, int(sum(_connected(self.address).ncores().values())))

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (place, work(task)) as they finish (`TaskExecutor.finished`).

        Raises InfercastError without Dask, where the scheduler does not answer or goes away, where workers run another
        program, and where too many workers died over one bundle.
        """
        if not tasks:
            return
        most = AHEAD * self.width
        size = max(1, min(MOST_BUNDLED, len(tasks) // most))
        bundles = (range(at, min(at + size, len(tasks))) for at in range(0, len(tasks), size))
        yield from self._bundled(work, tasks, bundles, most)

    def _bundled(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        bundles: Iterator[range],
        most: int,
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results of bundles of tasks, `most` of which are handed out at a time."""
        from distributed import as_completed  # noqa: PLC0415  an extra

        client, program = _connected(self.address), library_digest()
        under_way: dict[Future[Any], range] = {}

        def hand_out(bundle: range) -> "Future[Any]":
            some = [tasks[place] for place in bundle]
            future = client.submit(_done, program, work, some, pure=False)
            under_way[future] = bundle
            return future

        first = [hand_out(bundle) for _, bundle in zip(range(most), bundles, strict=False)]
        done = as_completed(first, loop=client.loop)
        try:
            for future in done:
                yield from zip(under_way.pop(future), self._result(future), strict=True)
                if (bundle := next(bundles, None)) is not None:
                    done.add(hand_out(bundle))
        except KeyboardInterrupt:
            for future in [each for each in under_way if each.status == "finished"]:
                yield from zip(under_way.pop(future), self._result(future), strict=True)
            raise
        finally:
            client.cancel(list(under_way))

    def _result(self, future: "Future[Any]") -> list[Any]:
        """Return the results of a bundle. Raises what the work raised, and InfercastError where its workers died."""
        from distributed import KilledWorker  # noqa: PLC0415  an extra
        from distributed.client import FutureCancelledError  # noqa: PLC0415

        try:
            results: list[Any] = future.result()
        except KilledWorker as error:
            because = f"several workers died over the same tasks, the last one {error.last_worker.address}"
            raise InfercastError(self.address, because, "Give workers more memory, or see their logs") from error
        except RuntimeError as error:
            if "deserialization" not in str(error):
                raise
            because, remedy = "its scheduler or a worker cannot load the work", "Install infercast on every machine"
            raise InfercastError(self.address, because, remedy) from error
        except (FutureCancelledError, OSError) as error:
            because = "the scheduler went away"
            raise InfercastError(self.address, because, "Start it, and ask again: a --store goes on") from error
        return results


def _connected(address: str) -> "Client":
    """Return the client of a scheduler, which stays connected until this process ends.

    Raises InfercastError without Dask, where there is no answer, and where no worker comes.
    """
    try:
        from distributed import Client  # noqa: PLC0415  an extra
    except ImportError as error:
        raise InfercastError(address, "Dask is not installed", "pip install 'infercast[cluster]'") from error
    known = _CLIENTS.get(address)
    if known is not None and known.status == "running":
        return known
    try:
        _CLIENTS[address] = Client(address.replace(SCHEME, "tcp://"), timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        remedy = "Start `dask scheduler` and `dask worker tcp://HOST:PORT`, or give the address that it prints"
        raise InfercastError(address, f"no Dask scheduler answers within {CONNECT_S:g} s", remedy) from error
    try:
        _CLIENTS[address].wait_for_workers(1, timeout=WORKER_S)
    except TimeoutError as error:
        _CLIENTS.pop(address).close()
        remedy = f"Start `dask worker {address.replace(SCHEME, 'tcp://')}`"
        raise InfercastError(address, f"it has no worker after {WORKER_S:g} s", remedy) from error
    return _CLIENTS[address]


def _done(program: str, work: Callable[[Task], Result], tasks: list[Task]) -> list[Result]:
    """Do a bundle of tasks on a worker. Raises InfercastError where the worker has another program or profiles."""
    if library_digest() != program:
        from distributed import get_worker  # noqa: PLC0415  an extra

        because = "it runs another infercast, Python or numpy than yours, or has other profiles"
        remedy = "Install the same versions there; mount the folder of INFERCAST_PROFILES and set it there too"
        raise InfercastError(f"Dask worker {get_worker().address}", because, remedy)
    return [work(each) for each in tasks]
