"""Real processes that are interrupted and killed in the middle of a sweep: what they have stored, the next one uses."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.commands import printed
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
WORDS = (
    *("simulate", "--model", "llama-3.1-8b", "--hardware", "l40s,l4", "--isl", "200,300,400", "--osl", "60"),
    *("--request-rate", "1,2,3,4,5,6,7,8", "--num-prompts", "3000", "--format", "csv"),
)
CASES = 48
LOST_S = 60  # after which a process that should have come this far is given up
KILLED = f"""
from simulator import DeploymentQuestion, LoadQuestion, WorkloadQuestion, sweep
from simulator.executors.processes import Processes
if __name__ == "__main__":
    lengths = {{"input_len": "{WORDS[6]}", "output_len": "{WORDS[8]}"}}
    users = WorkloadQuestion(**lengths, request_rate="{WORDS[10]}", num_prompts=3000)
    asked = LoadQuestion(DeploymentQuestion("{WORDS[2]}", "{WORDS[4]}"), users)
    sweep(asked, Processes(2, start_s=0), "STORE")
"""


def started(*words: str) -> subprocess.Popen[str]:
    """A process that Ctrl-C interrupts, as in a terminal: in the background of a shell it would be ignored."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  nothing else runs here
    )


def stored(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        try:
            return dict(connection.execute("SELECT key, answer FROM results"))
        except sqlite3.OperationalError:  # the table is not there yet
            return {}


def wait_until(is_there: Callable[[], bool], process: subprocess.Popen[str] | None) -> None:
    for _ in range(LOST_S * 50):
        if is_there():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("it never came that far")


def group(process: subprocess.Popen[str]) -> list[int]:
    """The processes of its group that are alive."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = each.read_text().rpartition(")")
        except OSError:
            continue
        state, _parent, of, *_ = rest.split()
        if int(of) == process.pid and state != "Z":
            found.append(int(each.parent.name))
    return found


def test_a_sweep_goes_on_after_an_interrupt_and_after_a_kill(tmp_path):
    store = tmp_path / "sweep.db"
    command = ("-m", "simulator.cli", *WORDS)
    computed = printed(*WORDS, "--jobs", "1")
    assert computed.count("\n") == CASES + 1

    first = started(*command, "--jobs", "1", "--store", str(store))
    wait_until(lambda: len(stored(store)) >= 3, first)
    os.killpg(first.pid, signal.SIGINT)  # as Ctrl-C does: all processes of the terminal
    out, err = first.communicate(timeout=LOST_S)
    after_first = stored(store)
    assert first.returncode == 130 and 3 <= len(after_first) < CASES
    assert set(out.splitlines()) < set(computed.splitlines()) and out.count("\n") == len(after_first) + 1
    left = CASES - len(after_first)
    assert f"left out: {left} of 48 cases: an interrupt came before they were answered. Ask again with --store" in err

    program = tmp_path / "killed.py"
    program.write_text(KILLED.replace("STORE", str(store)))
    pooled = started(str(program))
    wait_until(lambda: len(stored(store)) > len(after_first) + 1, pooled)
    assert len(group(pooled)) > 2, "others compute"
    os.killpg(pooled.pid, signal.SIGINT)
    _, err = pooled.communicate(timeout=LOST_S)
    assert err.rstrip().endswith("KeyboardInterrupt")
    wait_until(lambda: group(pooled) == [], None)  # workers end, too
    after_first, before = stored(store), after_first
    assert len(before) + 1 < len(after_first) < CASES and before.items() < after_first.items()

    second = started(str(program))
    wait_until(lambda: len(stored(store)) > len(after_first) + 2, second)
    assert len(group(second)) > 2, "others compute"
    second.kill()
    second.communicate()
    wait_until(lambda: not group(second), None)  # workers end with the process that they work for
    after_second = stored(store)
    assert len(after_first) + 2 < len(after_second) < CASES and after_first.items() < after_second.items()

    third = started(*command, "--jobs", "2", "--store", str(store))
    out, err = third.communicate(timeout=LOST_S)
    assert (out, err, third.returncode) == (computed, "", 0)
    assert after_second.items() < stored(store).items() and len(stored(store)) == CASES
