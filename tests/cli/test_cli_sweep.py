"""`--store`, `--jobs` and `--executor` of the commands that sweep: the same output, and mistakes in three parts."""

import pytest

from simulator.executors.processes import Processes
from tests.support.commands import infercast

ON = ("--model", "llama-3.1-8b", "--hardware", "l40s,l4")
LOAD = ("--isl", "64", "--osl", "8", "--num-prompts", "200", "--request-rate", "1,2")
SWEEPS = [
    ("estimate", *ON, "--batch", "1,8"),
    ("simulate", *ON, *LOAD, "--explain"),
    pytest.param(("cost", *ON, *LOAD, "--slo", "ttft:500ms", "--price", "on-demand,spot"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("words", SWEEPS, ids=["estimate", "simulate", "cost"])
def test_a_store_changes_nothing_that_is_printed_and_nothing_is_computed_twice(words, tmp_path, monkeypatch):
    plain = infercast(*words)
    stored = infercast(*words, "--store", str(tmp_path / "sweep.db"))
    monkeypatch.setattr(Processes, "finished", lambda _self, _work, tasks: iter(tasks and [1 / 0]))
    again = infercast(*words, "--store", str(tmp_path / "sweep.db"))
    assert plain.returncode == 0 and plain.stdout
    assert (plain.stdout, plain.stderr) == (stored.stdout, stored.stderr) == (again.stdout, again.stderr)


def interrupted(_self, work, tasks):
    yield 0, work(tasks[0])
    raise KeyboardInterrupt


@pytest.mark.parametrize("words", SWEEPS[:2], ids=["estimate", "simulate"])
def test_an_interrupt_prints_what_is_there_and_says_how_to_go_on(words, monkeypatch, tmp_path):
    monkeypatch.setattr(Processes, "finished", interrupted)
    done = infercast(*words)
    assert done.returncode == 130
    left = "3 of 4 cases: an interrupt came before they were answered"
    assert f"Left out: {left}. Give --store FILE, and it would go on." in done.stdout
    store = str(tmp_path / "sweep.db")
    done = infercast(*words, "--format", "csv", "--store", store)
    assert done.returncode == 130 and done.stdout.count("\n") == 2
    assert f"left out: {left}. Ask again with --store {store}." in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--executor", "ray://host:1"), "it names no executor"),
        (("--executor", "dask://host:1", "--jobs", "2"), "a cluster has as many workers as were started"),
        (("--store", "README.md"), "it is no store"),
    ],
)
def test_mistakes_are_told(words, told):
    done = infercast(*SWEEPS[0], *words)
    assert done.returncode == 2 and told in done.stderr


def test_offline_work_takes_no_jobs_and_no_store(tmp_path):
    done = infercast("cost", *ON, "--workload", "chat", "--batch", "--num-prompts", "9", "--jobs", "2")
    assert done.returncode == 2 and "--jobs with --batch" in done.stderr
    done = infercast("cost", *ON, "--workload", "chat", "--batch", "--num-prompts", "9", "--store", str(tmp_path / "s"))
    assert done.returncode == 2 and "--store with --batch" in done.stderr
