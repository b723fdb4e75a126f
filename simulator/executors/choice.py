"""The executor that a user names."""

from simulator.errors import InfercastError
from simulator.executors.dask_cluster import SCHEME, DaskCluster
from simulator.executors.executor import TaskExecutor, cores
from simulator.executors.processes import Processes


def executor_named(name: str = "", jobs: int | None = None) -> TaskExecutor:
    """Return the processes of this machine, or the cluster that a name stands for.

    `name`: empty, or "dask://HOST:PORT". `jobs`: processes, one for each core where it is None. Raises InfercastError
    for another name, fewer than one of `jobs`, and `jobs` of a cluster.

    >>> executor_named(jobs=2).width, executor_named("dask://10.0.0.1:8786").address
    (2, 'dask://10.0.0.1:8786')
    """
    if jobs is not None and jobs < 1:
        raise InfercastError(f"{jobs} jobs", "somebody has to do the work", "Give 1 or more, or leave it out")
    if not name:
        return Processes(jobs or cores())
    if not name.startswith(SCHEME) or not name.rpartition(":")[2].isdecimal():
        raise InfercastError(f"--executor {name}", "it names no executor", f"Give {SCHEME}HOST:PORT, or leave it out")
    if jobs is not None:
        given = f"--jobs {jobs} with --executor {name}"
        raise InfercastError(given, "a cluster has as many workers as were started", "Leave --jobs out")
    return DaskCluster(name)
