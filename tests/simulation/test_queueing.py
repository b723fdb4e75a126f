"""Queueing theory: with one sequence at a time the simulator is a single server, and its waits are known."""

import math

import numpy as np
import pytest

from simulator.arrays import Ints
from simulator.simulation.engine_loop import Run, simulate
from simulator.workloads.workload import Requests
from tests.support.queues import ONE_AT_A_TIME, SERVICE_S, SERVICE_TICKS, TABLE, TICK_S, Theory, check, waits

LOADS = {0.5: 10_000, 0.8: 20_000, 0.95: 60_000}  # and requests of a run: a longer queue takes longer to show its mean
EACH = [0.5, 0.8, pytest.param(0.95, marks=pytest.mark.slow)]
RUNS = range(24)  # seeds


def server(load: float, service_ticks: Ints, seed: int) -> Run:
    """Poisson arrivals at a load; the service of a request is its prompt, and its one token comes at the end."""
    gaps = np.random.default_rng(seed).exponential(SERVICE_S / load, len(service_ticks))
    ones = np.ones(len(service_ticks), dtype=np.int64)
    return simulate(ONE_AT_A_TIME, TABLE, Requests(np.cumsum(gaps), service_ticks, ones))


def exponential(count: int) -> Ints:
    """Exponential service, rounded up to ticks."""
    return np.ceil(np.random.default_rng(7).exponential(SERVICE_TICKS, count)).astype(np.int64)


@pytest.mark.parametrize("load", EACH)
def test_m_d_1(load):
    """Pollaczek and Khinchine, constant service s: W = rho s / (2 (1 - rho))."""
    service = np.full(LOADS[load], SERVICE_TICKS)
    runs = (waits(server(load, service, seed)) for seed in RUNS)
    check(runs, Theory("mean", load * SERVICE_S / (2 * (1 - load))))


@pytest.mark.parametrize("load", EACH)
def test_m_m_1(load):
    """Exponential service, rounded up to ticks: W = rho s / (1 - rho), P(wait > t) = rho exp(-(1 - rho) t / s)."""

    def service(seed: int) -> Ints:
        return np.ceil(np.random.default_rng(1000 + seed).exponential(SERVICE_TICKS, LOADS[load])).astype(np.int64)

    def quantile(name: str, tail: float) -> Theory:
        return Theory(name, math.log(load / tail) / (1 - load) * SERVICE_S)

    runs = (waits(server(load, service(seed), seed)) for seed in RUNS)
    check(runs, Theory("mean", load * SERVICE_S / (1 - load)), quantile("p90", 0.1), quantile("p95", 0.05))


def test_the_wait_is_the_same_when_service_takes_several_steps():
    """A prompt of 4,088 ticks and eight decode steps of one are a service of 4,096."""
    alone = server(0.8, np.full(50_000, SERVICE_TICKS), seed=0)
    ones = np.ones(50_000, dtype=np.int64)
    run = simulate(ONE_AT_A_TIME, TABLE, Requests(alone.requests.arrival_s, (SERVICE_TICKS - 8) * ones, 9 * ones))
    assert np.allclose(run.finished_s - run.scheduled_s, SERVICE_S)
    assert np.allclose(waits(run), waits(alone))


def mean_present(run: Run) -> float:
    """Requests in the system, integrated over time from 0 to the last completion."""
    changes = np.concatenate([run.requests.arrival_s, run.finished_s])
    steps = np.concatenate([np.ones(len(run.finished_s)), -np.ones(len(run.finished_s))])
    order = np.argsort(changes, kind="stable")
    present, spans = np.cumsum(steps[order])[:-1], np.diff(changes[order])
    return float((present * spans).sum() / run.finished_s.max())


@pytest.mark.parametrize("seqs", [1, 16])
def test_littles_law_and_utilisation(seqs):
    """L = lambda W, with L integrated over time: an identity once the system is empty again."""
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(0.004, 20_000))
    requests = Requests(arrival_s, rng.integers(1, 3000, 20_000), rng.integers(1, 60, 20_000))
    run = simulate(ONE_AT_A_TIME._replace(max_num_seqs=seqs, max_num_batched_tokens=2048), TABLE, requests)
    end_s = run.finished_s.max()
    mean_stay_s = float((run.finished_s - arrival_s).mean())
    assert mean_present(run) == pytest.approx(len(requests) / end_s * mean_stay_s, rel=1e-9)
    if seqs == 1:
        ticks = requests.prompt_tokens + requests.output_tokens - 1
        assert run.busy_s == pytest.approx(float(ticks.sum()) * TICK_S)


@pytest.mark.parametrize("load", EACH)
def test_utilisation_is_the_load(load):
    run = server(load, np.full(200_000, SERVICE_TICKS), seed=4)
    offered = len(run.finished_s) * SERVICE_TICKS * TICK_S / run.requests.arrival_s[-1]
    assert offered == pytest.approx(load, rel=0.01)
    assert run.busy_s / run.end_s == pytest.approx(offered, rel=0.001)
