"""Cores that are free: what the machine says of itself, and the threads that follow from it."""

import os
import subprocess
import sys
import time
from math import isnan
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [reference]")
pytest.importorskip("gguf", reason="needs the extra [reference]")
pytest.importorskip("tokenizers", reason="needs the extra [reference]")

from simulator.errors import InfercastError  # noqa: E402
from simulator.reference import cores, threads  # noqa: E402
from simulator.reference.cores import Guard, free_cores, usable_cores  # noqa: E402
from simulator.reference.threads import FollowFreeCores, use_threads  # noqa: E402

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of eight cores whose clock, busy time and own time the test sets."""
    made = SimpleNamespace(now_s=0.0, own_s=0.0, stat=tmp_path / "stat", processes=tmp_path / "proc", cgroups=tmp_path)

    def busy(seconds: float) -> None:
        ticks = round(seconds / TICK_S)
        made.stat.write_text(f"cpu  {ticks - 30} 10 10 99999 50 5 5 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n")

    made.busy = busy
    made.busy(1.0)
    monkeypatch.setattr(cores, "STAT", made.stat)
    monkeypatch.setattr(cores, "PROCESSES", made.processes)
    monkeypatch.setattr(cores, "CGROUPS", made.cgroups)
    monkeypatch.setattr(cores.time, "perf_counter", lambda: made.now_s)
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    times = lambda: SimpleNamespace(user=made.own_s, system=0.0, children_user=0.0, children_system=0.0)  # noqa: E731
    monkeypatch.setattr(cores.os, "times", times)
    return made


def test_what_is_busy_and_not_ours_is_others(machine):
    watch = Guard()
    machine.now_s, machine.own_s = 2.0, 3.0
    machine.busy(1.0 + 3.0 + 2.5)
    assert watch.others_s == pytest.approx(2.5, abs=TICK_S)
    assert watch.others_cores == pytest.approx(1.25, abs=TICK_S)


def test_a_child_that_still_runs_is_ours(machine):
    listed = machine.processes / "self" / "task" / str(os.getpid()) / "children"
    listed.parent.mkdir(parents=True)
    listed.write_text("77 ")
    child = machine.processes / "77" / "stat"
    child.parent.mkdir()
    watch = Guard()
    machine.now_s = 1.0
    machine.busy(3.0)
    child.write_text(f"77 (a (b) c) R 1 1 1 0 -1 0 0 0 0 0 {round(1.5 / TICK_S)} {round(0.25 / TICK_S)} 0 0 20 0 1")
    assert watch.others_s == pytest.approx(0.25, abs=TICK_S)


def test_a_machine_that_does_not_say_counts_as_free(machine):
    machine.stat.unlink()
    watch = Guard()
    machine.now_s = 1.0
    assert isnan(watch.others_cores)
    assert free_cores(watch) == 8


@pytest.mark.parametrize(
    ("others", "free"),
    [(0.0, 8), (0.2, 8), (0.3, 7), (1.0, 7), (1.2, 7), (1.9, 6), (7.0, 1), (8.0, 1)],
)
def test_a_core_that_others_hold_is_left_to_them(machine, others, free):
    watch = Guard()
    machine.now_s = 1.0
    machine.busy(1.0 + others)
    assert free_cores(watch) == free


def test_affinity_and_quota_bound_what_may_be_used(machine, monkeypatch):
    assert usable_cores() == 8
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {2, 3, 5})
    assert usable_cores() == 3
    group = machine.cgroups / "pods" / "mine"
    group.mkdir(parents=True)
    (machine.processes / "self").mkdir(parents=True)
    (machine.processes / "self" / "cgroup").write_text("1:name=other:/x\n0::/pods/mine\n")
    (group / "cpu.max").write_text("max 100000\n")
    assert usable_cores() == 3
    (group.parent / "cpu.max").write_text("250000 100000\n")
    assert usable_cores() == 2
    (group / "cpu.max").write_text("50000 100000\n")
    assert usable_cores() == 1


@pytest.fixture
def set_threads(monkeypatch):
    """The numbers of threads that were set, instead of setting them."""
    found = [8]
    monkeypatch.setattr(threads.torch, "set_num_threads", found.append)
    monkeypatch.setattr(threads.torch, "get_num_threads", lambda: found[-1])
    return found


def test_threads_follow_the_free_cores_while_steps_go_by(machine, set_threads):
    follow = FollowFreeCores()
    others_s, seen = 1.0, []
    for step in range(60):  # of 0.1 s; two other processes come after two seconds and leave after four
        follow()
        seen.append(set_threads[-1])
        machine.now_s += 0.1
        others_s += 0.2 if 20 <= step < 40 else 0.0
        machine.busy(others_s)
    assert set(seen[:21]) == {8}
    assert set(seen[31:40]) == {6}
    assert set(seen[52:]) == {8}
    assert len(set_threads) <= 5  # set where it changes, not at every step


def test_threads_are_those_asked_for_or_the_free_cores(machine, set_threads, monkeypatch):
    slept = []
    monkeypatch.setattr(threads.time, "sleep", lambda seconds: (slept.append(seconds), setattr(machine, "now_s", 0.3)))
    watch = Guard()
    use_threads(3, watch)
    assert (set_threads[-1], slept) == (3, [])
    machine.busy(1.0 + 0.6)
    use_threads(None, watch)  # it has watched for no time yet, so it waits
    assert (set_threads[-1], slept) == (6, [pytest.approx(0.3)])
    with pytest.raises(InfercastError, match=r"9 threads: this process may use 8 cores\. Give 8 or less"):
        use_threads(9, watch)


def test_the_guard_sees_a_neighbour():
    """A process that is no child of ours: its parent has ended."""
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {!r}])".format(
        "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    time.sleep(0.2)
    watch = Guard()
    time.sleep(1.0)
    seen = watch.others_cores
    assert seen > 0.3 if cores.STAT.is_file() else isnan(seen)


def test_the_guard_counts_neither_ourselves_nor_our_children():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            watch, start_s = Guard(), time.perf_counter()
            while time.perf_counter() - start_s < 0.5:
                pass
            others = watch.others_cores
        finally:
            child.kill()
    calm = Guard()
    time.sleep(0.5)
    assert not others > calm.others_cores + 0.5
