"""Queueing theory for general service times and for fleets: M/G/1, M/D/c, M/M/c, and when they fall together."""

import math

import numpy as np
import pytest

from simulator.arrays import Floats, Ints
from simulator.simulation.engine_loop import simulate
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.routers import Router
from simulator.workloads.workload import Requests
from tests.support.queues import ONE_AT_A_TIME, SERVICE_S, SERVICE_TICKS, TABLE, Theory, check, waits


def arrivals_s(load: float, count: int, seed: int) -> Floats:
    """Poisson arrivals at a load of one server whose mean service is SERVICE_S."""
    return np.cumsum(np.random.default_rng(seed).exponential(SERVICE_S / load, count))


def uniform(rng: np.random.Generator, count: int) -> Ints:
    return rng.integers(1, 2 * SERVICE_TICKS, count, endpoint=False)


def two_kinds(rng: np.random.Generator, count: int) -> Ints:
    """Nine short requests and a long one: what chats and documents look like to one server."""
    return np.where(rng.random(count) < 0.9, SERVICE_TICKS // 8, SERVICE_TICKS * 71 // 8)


def lognormal(rng: np.random.Generator, count: int) -> Ints:
    """A coefficient of variation of 1, with a longer tail than the exponential."""
    sigma = math.sqrt(math.log(2))
    return np.ceil(SERVICE_TICKS * rng.lognormal(-(sigma**2) / 2, sigma, count)).astype(np.int64)


@pytest.mark.parametrize(("lengths", "second_moment"), [(uniform, 4 / 3), (two_kinds, 505 / 64), (lognormal, 2.0)])
def test_m_g_1(lengths, second_moment):
    """Pollaczek and Khinchine: W = rho s E[S^2] / (2 (1 - rho) s^2); prompt and output together are the service."""
    load, count = 0.6, 20_000
    found = []
    for seed in range(16):
        ticks = np.maximum(lengths(np.random.default_rng(100 + seed), count), 2)
        outputs = np.minimum(ticks - 1, 1 + seed % 3)  # a decode step is a tick, like a token of a prompt
        run = simulate(ONE_AT_A_TIME, TABLE, Requests(arrivals_s(load, count, seed), ticks - outputs + 1, outputs))
        found.append(waits(run))
    check(found, Theory("mean", load * SERVICE_S * second_moment / (2 * (1 - load))))


def crommelin_wait(servers: int, load: float) -> float:
    """The mean wait of M/D/c in services, as the series of Crommelin (1932), in the form of Franx (2001).

    W = sum over i >= 1 of (P(X >= ic) - P(X > ic) / rho), X Poisson with mean i c rho.
    """
    total, i, term = 0.0, 0, 1.0
    while term > 1e-12:
        i += 1
        mean, least = i * servers * load, i * servers
        most = least + 60 + int(12 * math.sqrt(least))
        chances = [math.exp(j * math.log(mean) - mean - math.lgamma(j + 1)) for j in range(least, most)]
        term = sum(chances) - sum(chances[1:]) / load
        total += term
    return total


def test_crommelin_is_pollaczek_for_one_server():
    assert crommelin_wait(1, 0.7) == pytest.approx(0.7 / (2 * 0.3), rel=1e-6)
    assert crommelin_wait(2, 0.5) == pytest.approx(0.1767, abs=1e-4)  # tabulated by Hillier and Yu (1981)


def fleet_waits(servers: int, load: float, router: Router, seed: int) -> Floats:
    ones = np.ones(20_000, dtype=np.int64)
    requests = Requests(arrivals_s(servers * load, 20_000, seed), ones * SERVICE_TICKS, ones)
    return waits(simulate_fleet(Fleet(Pool(ONE_AT_A_TIME, TABLE, servers), router), requests))


@pytest.mark.parametrize(("servers", "load"), [(2, 0.8), (4, 0.7)])
def test_m_d_c(servers, load):
    """Replicas of one slot behind one queue; with equal services round robin is that queue, wait by wait."""
    one_queue = Router("least-outstanding", max_ongoing_requests=1)
    found = [fleet_waits(servers, load, one_queue, seed) for seed in range(20)]
    means = np.array([each[2000:].mean() for each in found]) / SERVICE_S
    error = means.std(ddof=1) / math.sqrt(len(means))
    theory = crommelin_wait(servers, load)
    assert abs(means.mean() - theory) < 3.3 * error < 0.15 * theory
    assert np.allclose(np.sort(fleet_waits(servers, load, Router(), 0)), np.sort(found[0]), atol=1e-9)
