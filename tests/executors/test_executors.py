"""Executors give each result once, in its place, whoever computes; what goes wrong is told in three parts."""

import os
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from simulator.errors import InfercastError
from simulator.executors.choice import executor_named
from simulator.executors.dask_cluster import DaskCluster
from simulator.executors.executor import in_order
from simulator.executors.processes import Processes
from simulator.executors.program import file_digest, library_digest, program_digest
from simulator.executors.threads import Threads


def squared(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def dies_elsewhere(parent: int, _number: int) -> int:
    if os.getpid() != parent:
        os._exit(3)  # as if the system had ended it
    return parent


def refuses(number: int) -> int:
    if number == 2:
        raise InfercastError("2", "it is the third", "Give another")
    return number


class Backwards:
    """An executor whose last task is done first."""

    width = 1

    def finished(self, work, tasks) -> Iterator[tuple[int, object]]:
        for place in reversed(range(len(tasks))):
            yield place, work(tasks[place])


@pytest.mark.parametrize("executor", [Processes(1), Processes(2), Threads(1), Threads(3)], ids=str)
def test_each_task_is_done_once_and_short_work_stays_in_this_process(executor):
    found = list(executor.finished(squared, range(40)))
    assert sorted(place for place, _ in found) == list(range(40))
    assert all(result == (place * place, os.getpid()) for place, result in found)
    assert list(executor.finished(squared, [])) == []


def test_results_are_put_in_order_as_soon_as_they_can_be():
    seen: list[int] = []
    assert list(in_order(Backwards(), lambda number: seen.append(number) or number, [3, 4, 5])) == [3, 4, 5]
    assert seen == [5, 4, 3]


@pytest.mark.slow
def test_long_work_is_done_by_other_processes_after_the_first_task():
    found = dict(Processes(2, start_s=0).finished(squared, range(40)))
    assert [found[place][0] for place in range(40)] == [number * number for number in range(40)]
    others = {process for place, (_, process) in found.items() if place}
    assert found[0][1] == os.getpid() and os.getpid() not in others and 1 <= len(others) <= 2


@pytest.mark.slow
def test_a_process_that_is_ended_from_outside_and_an_error_are_told():
    with pytest.raises(InfercastError, match=r"2 processes: one of them was ended from outside.*--jobs 1"):
        list(Processes(2, start_s=0).finished(partial(dies_elsewhere, os.getpid()), [1, 2, 3]))
    with pytest.raises(InfercastError, match="it is the third"):
        list(Processes(2, start_s=0).finished(refuses, [0, 1, 2, 3]))


@pytest.mark.parametrize("executor", [Processes(1), Threads(2)], ids=str)
def test_an_error_of_the_work_is_raised(executor):
    with pytest.raises(InfercastError, match="it is the third"):
        list(executor.finished(refuses, [0, 1, 2, 3]))


@pytest.mark.parametrize("name", ["ray://host:1", "dask://host", "dask:host:1", "cores"])
def test_a_name_that_stands_for_no_executor_is_refused(name):
    with pytest.raises(InfercastError, match=r"it names no executor. Give dask://HOST:PORT"):
        executor_named(name)


def test_a_cluster_takes_no_number_of_processes():
    with pytest.raises(InfercastError, match="a cluster has as many workers as were started"):
        executor_named("dask://host:1", jobs=2)


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InfercastError, match=r"Dask is not installed. pip install 'infercast\[cluster\]'"):
        list(DaskCluster("dask://127.0.0.1:1").finished(squared, [1]))


def test_the_digest_of_the_program_follows_engines_and_that_of_the_library_models_too(tmp_path, monkeypatch):
    shipped = program_digest(), library_digest()
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    for folder in ("engines", "model_profiles"):
        (tmp_path / folder).mkdir()
    before = program_digest(), library_digest()
    (tmp_path / "model_profiles" / "own.yaml").write_text("hidden: 8\n")
    with_model = program_digest(), library_digest()
    (tmp_path / "engines" / "own-1.yaml").write_text("engine: own\n")
    with_engine = program_digest(), library_digest()
    assert shipped == before
    assert with_model[0] == before[0] and with_model[1] != before[1]
    assert with_engine[0] != before[0] and with_engine[1] != with_model[1]


def test_the_digest_of_a_file_follows_its_content(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("a")
    first = file_digest(path)
    path.write_text("b")
    os.utime(path, ns=(1, 1))
    assert file_digest(path) != first
    with pytest.raises(InfercastError, match="it cannot be read"):
        file_digest(tmp_path / "none.csv")
