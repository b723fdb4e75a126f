"""A real Dask cluster of processes, whose workers are killed in the middle: nothing lost, nothing twice, same bytes."""

import math
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from simulator.errors import InfercastError
from simulator.executors.dask_cluster import DaskCluster, _done
from simulator.executors.processes import Processes
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.load_question import LoadQuestion
from simulator.questions.sweep import SweepCase, answers
from simulator.questions.workload_question import WorkloadQuestion
from tests.support.paths import ROOT

distributed = pytest.importorskip("distributed", reason="needs the extra cluster: pip install -e '.[cluster]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # of Dask and tornado, which are not ours
]
USERS = WorkloadQuestion(input_len="200,300,400", output_len="60", request_rate="1,2,3,4", num_prompts=1000)
ASKED = LoadQuestion(DeploymentQuestion("llama-3.1-8b", "l40s,l4", tp="1,3"), USERS)


class Cluster:
    """A scheduler and workers, each a process of its own without a guardian: a killed worker stays dead."""

    def __init__(self, folder) -> None:
        self.folder, self.workers = folder, list[subprocess.Popen[bytes]]()
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        self.scheduler = self._start("dask_scheduler", *where, "--no-dashboard")
        self.address = f"dask://127.0.0.1:{self.port}"

    def _start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", *words]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=ROOT, stdout=quiet, stderr=quiet)

    def add_worker(self) -> None:
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder))
        self.workers.append(self._start("dask_worker", f"tcp://127.0.0.1:{self.port}", *words))

    def kill_worker(self) -> None:
        killed = self.workers.pop(0)
        killed.send_signal(signal.SIGKILL)
        killed.wait()

    def end(self) -> None:
        for each in (*self.workers, self.scheduler):
            each.kill()
            each.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("dask"))
    try:
        for _ in range(2):
            started.add_worker()
        yield started
    finally:
        started.end()


def test_workers_are_killed_and_nothing_is_lost_or_twice(cluster, tmp_path):
    cases = [SweepCase(each) for each in ASKED.each()]
    alone = answers(cases, Processes(1))
    seen: list[int] = []

    def told(some: int, _every: int) -> None:
        seen.append(some)
        if some == 8:
            cluster.add_worker()
            cluster.kill_worker()
        if some == 30:
            cluster.kill_worker()

    together = answers(cases, DaskCluster(cluster.address), tmp_path / "sweep.db", told)
    assert seen == list(range(1, len(cases) + 1)), "each case once"
    assert [together.known[place].text() for place in range(48)] == [alone.known[place].text() for place in range(48)]
    assert len(together.refused) == 24, "what is impossible is told by workers, too"
    with closing(sqlite3.connect(tmp_path / "sweep.db")) as connection:
        counted = connection.execute("SELECT count(*), count(DISTINCT key) FROM results").fetchone()
    assert counted == (48, 48)


def test_an_error_of_the_work_and_another_program_are_told(cluster, monkeypatch):
    with pytest.raises(ValueError, match="math domain error"):
        list(DaskCluster(cluster.address).finished(math.sqrt, [-1.0]))
    with pytest.raises(InfercastError, match="its scheduler or a worker cannot load the work"):
        list(DaskCluster(cluster.address).finished(of_a_module_that_workers_lack, [1]))
    monkeypatch.setattr("simulator.executors.dask_cluster.library_digest", lambda: "another")
    with pytest.raises(InfercastError, match=r"Dask worker tcp.*: it runs another infercast, Python or numpy"):
        list(DaskCluster(cluster.address).finished(abs, [-1]))


def of_a_module_that_workers_lack(number: int) -> int:
    return number


def test_nobody_at_the_address_is_told(monkeypatch):
    monkeypatch.setattr("simulator.executors.dask_cluster.CONNECT_S", 0.2)
    with pytest.raises(InfercastError, match=r"dask://127.0.0.1:9: no Dask scheduler answers within 0.2 s"):
        list(DaskCluster("dask://127.0.0.1:9").finished(abs, [-1]))


def test_a_scheduler_without_workers_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.executors.dask_cluster.WORKER_S", 0.2)
    alone = Cluster(tmp_path)
    try:
        with pytest.raises(InfercastError, match=r"it has no worker after 0.2 s. Start `dask worker tcp://127"):
            list(DaskCluster(alone.address).finished(abs, [-1]))
    finally:
        alone.end()


def test_tasks_that_kill_their_workers_and_a_lost_scheduler_are_told():
    def raised(error: Exception) -> str:
        def result() -> None:
            raise error

        with pytest.raises(InfercastError) as told:
            DaskCluster("dask://host:1")._result(SimpleNamespace(result=result))
        return str(told.value)

    killed = distributed.KilledWorker("task", SimpleNamespace(address="tcp://host:2"), 3)
    assert "several workers died over the same tasks, the last one tcp://host:2" in raised(killed)
    assert "the scheduler went away" in raised(
        distributed.client.FutureCancelledError("task", "scheduler-connection-lost")
    )


def test_a_bundle_is_done_by_the_same_program_alone(monkeypatch):
    monkeypatch.setattr("simulator.executors.dask_cluster.library_digest", lambda: "mine")
    assert _done("mine", abs, [-1, 2]) == [1, 2]
    assert os.getpid() == _done("mine", lambda _: os.getpid(), [0])[0]
