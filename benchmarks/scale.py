"""How a sweep grows with workers, and what a case costs beside its simulation: docs/scale.md rests on it.

    python benchmarks/scale.py        a table; ratios within one run, for the machine may be shared

Cores of a shared machine may act as fewer: the yardstick is the same work by bare processes, which share nothing.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from simulator.executors.dask_cluster import DaskCluster
from simulator.executors.executor import TaskExecutor, cores
from simulator.executors.processes import Processes
from simulator.executors.results_store import ResultsStore
from simulator.questions.case_answer import CaseAnswer
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.load_question import LoadQuestion
from simulator.questions.sweep import SweepCase, answers
from simulator.questions.workload_question import WorkloadQuestion

RATES, EMPTY, ROWS = 24, 2_000, 5_000
SPIN = "import sys, time\nsum(range(int(sys.argv[1])))\n"
SPINS = 60_000_000
PORT = 8791


def question(rates: int = RATES) -> LoadQuestion:
    """Return chat on an L40S, 10,000 requests in each case, at so many rates that it keeps up with."""
    asked = ",".join(f"{2 + place / rates:g}" for place in range(rates))
    return LoadQuestion(
        DeploymentQuestion("llama-3.1-8b", "l40s"), WorkloadQuestion(workload="chat", request_rate=asked)
    )


def sweep_cases() -> list[SweepCase[LoadQuestion]]:
    return [SweepCase(each) for each in question().each()]


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    call()
    return clock() - start


def steady_per_s(executor: TaskExecutor, cases: Sequence[SweepCase[LoadQuestion]]) -> float:
    """Cases per second on the wall, from the first answer after all workers have begun to the last."""
    came: list[float] = []
    answers(cases, executor, told=lambda _some, _all: came.append(time.perf_counter()))
    begun = 2 * executor.width
    return (len(came) - begun - 1) / (came[-1] - came[begun])


def bare_per_s(width: int) -> float:
    """Return the runs per second of `width` processes that only count: what the cores of this machine give."""
    command = [sys.executable, "-c", SPIN, str(SPINS)]
    return width / seconds(lambda: [each.wait() for each in [subprocess.Popen(command) for _ in range(width)]])


@contextmanager
def dask(width: int) -> Iterator[DaskCluster]:
    """Yield a cluster of workers with one thread each, processes of this machine."""
    where = f"127.0.0.1:{PORT}"
    programs = [
        ["dask_scheduler", "--host", "127.0.0.1", "--port", str(PORT), "--no-dashboard"],
        *([["dask_worker", f"tcp://{where}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]] * width),
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, "env": root}
        started = [
            subprocess.Popen([sys.executable, "-m", f"distributed.cli.{one[0]}", *one[1:]], **quiet) for one in programs
        ]
        cluster = DaskCluster(f"dask://{where}")
        try:
            while cluster.width < width:
                time.sleep(0.1)
            yield cluster
        finally:
            for each in started:
                each.kill()
                each.wait()


def empty_us(executor: TaskExecutor) -> str:
    """Say what a task takes that does nothing: on the wall, and of the core of whoever asks."""
    start = time.perf_counter(), time.process_time()
    list(executor.finished(abs, range(EMPTY)))
    wall_s, used_s = time.perf_counter() - start[0], time.process_time() - start[1]
    return f"{1e6 * wall_s / EMPTY:.0f} us on the wall, {1e6 * used_s / EMPTY:.0f} us of the asker's core"


def us(call: Callable[[], object], times: int) -> float:
    """Return the microseconds of a core that each of some calls takes."""
    return 1e6 * seconds(call, time.process_time) / times


def costs() -> None:
    """Print what a case takes of one core where it is answered, and of the asker's core."""
    cases = sweep_cases()
    text = cases[0].answer().text()  # loads the machine code
    answer_s = seconds(lambda: [case.answer() for case in cases], time.process_time) / len(cases)
    sent = len(pickle.dumps([(case, case.key) for case in cases])) / len(cases)
    print(f"a case: {answer_s:.3f} s of a core; {sent:,.0f} bytes there, {len(text):,} bytes back")
    many = 20 * len(cases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.db"
        with ResultsStore.opened(path) as store:
            parts = {
                "made": us(lambda: question(ROWS).each(), ROWS),
                "key": us(lambda: [case.key for case in cases * 20], many),
                "pickled": us(lambda: [pickle.dumps(case) for case in cases * 20], many),
                "stored": us(lambda: [store.put(str(row), "", text) for row in range(ROWS)], ROWS),
                "read": us(lambda: [CaseAnswer.read(text) for _ in range(many)], many),
            }
        print("of the asker's core, us: " + ", ".join(f"{name} {value:.0f}" for name, value in parts.items()))
        print(f"sum: {sum(parts.values()):.0f} us; a row of the store: {path.stat().st_size / ROWS:,.0f} bytes")
    print(f"a task that does nothing, by two processes with their start: {empty_us(Processes(2, start_s=0))}")


def growth() -> None:
    """Print how many cases a second more workers answer, over one, beside what bare processes reach."""
    cases = sweep_cases()
    widths = [width for width in (1, 2, 4, 8, 16) if width <= max(2, cores())]
    bare, ours = (dict.fromkeys(widths, 0.0) for _ in range(2))
    for width in widths:
        bare[width] = bare_per_s(width)
        ours[width] = steady_per_s(Processes(width, start_s=0), cases)
    print(f"{'workers':>8}{'cases/s':>10}{'over 1':>8}{'bare':>7}")
    for width in widths:
        print(f"{width:8}{ours[width]:10.2f}{ours[width] / ours[1]:8.2f}{bare[width] / bare[1]:7.2f}")
    if find_spec("distributed") is None:
        print("Dask is not installed: pip install 'infercast[cluster]'")
        return
    with dask(max(widths)) as cluster:
        per_s = steady_per_s(cluster, cases)
        print(f"Dask, {cluster.width} workers: {per_s / ours[cluster.width]:.2f} of as many processes")
        print(f"a task that does nothing, by Dask in bundles: {empty_us(cluster)}")


if __name__ == "__main__":
    costs()
    growth()
