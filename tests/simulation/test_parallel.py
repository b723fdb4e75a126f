"""Several simulations in one process, in threads and in processes: the same seed gives the same bytes."""

import hashlib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.simulation.engine_loop import simulate
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.workload import Workload, load_workload

SEEDS = [0, 1, 2, 3, 0, 1]


def fingerprint(seed: int) -> str:
    """Simulate under pressure and hash both tables of the run."""
    deployment, chat = deploy("llama-3.1-8b", "l40s"), load_workload("chat")
    table = deployment.step_model().table(deployment.max_num_batched_tokens, deployment.max_num_seqs)
    requests = Workload(OpenLoop(7.0), chat.lengths, 600, seed).requests()
    run = simulate(limits(deployment)._replace(num_blocks=6000), table, requests)
    assert run.preemptions.any()
    columns = [run.scheduled_s, run.first_token_s, run.finished_s, run.stalled_s, run.preemptions, run.steps]
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in columns)).hexdigest()


@pytest.fixture(scope="module")
def one_by_one() -> list[str]:
    return [fingerprint(seed) for seed in SEEDS]


def test_runs_leave_nothing_behind(one_by_one):
    assert one_by_one[:2] == one_by_one[4:]
    assert len(set(one_by_one)) == 4


def test_threads_give_the_same_bytes(one_by_one):
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fingerprint, SEEDS)) == one_by_one


@pytest.mark.slow
def test_processes_give_the_same_bytes(one_by_one):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(fingerprint, SEEDS)) == one_by_one
