"""Estimates of queueing theory against textbooks, and what the report says near and above saturation."""

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InfercastError
from simulator.reports.arrival_load import ArrivalLoad, RunLength, arrival_load
from simulator.reports.batch_means import statistic
from simulator.reports.queueing import QueueEstimate, erlang_c, m_g_1_wait_s, m_m_c_wait_s
from simulator.reports.report import summarize
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, SchedulerLimits
from simulator.simulation.engine_loop import Run, simulate
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.workload import Requests
from tests.support.queues import ONE_AT_A_TIME, SERVICE_S, SERVICE_TICKS, TABLE
from tools.coverage_of_intervals import lindley


@given(st.floats(0.01, 0.99))
def test_one_slot_waits_as_often_as_it_is_busy(load):
    assert erlang_c(1, load) == pytest.approx(load)
    assert m_m_c_wait_s(load, 1.0, 1) == pytest.approx(m_g_1_wait_s(load, 1.0, 1.0))


@given(st.integers(1, 40), st.floats(0.05, 0.99))
def test_erlang_c_is_what_its_sum_says(slots, utilisation):
    """C = (a^c / c!) c/(c-a) / (sum_{k<c} a^k / k! + (a^c / c!) c/(c-a)); Gross and Harris, equation 2.33."""
    load = slots * utilisation
    top = load**slots / math.factorial(slots) / (1 - utilisation)
    below = sum(load**k / math.factorial(k) for k in range(slots))
    assert erlang_c(slots, load) == pytest.approx(top / (below + top), rel=1e-9)


def test_many_slots_do_not_overflow():
    assert 0 < erlang_c(5000, 4990.0) < 1
    assert erlang_c(5000, 100.0) < 1e-300


def test_a_full_system_has_no_mean_wait():
    assert m_m_c_wait_s(2.0, 1.0, 2) == math.inf
    assert m_g_1_wait_s(1.0, 1.0, 0.0) == math.inf
    assert QueueEstimate(3.0, 1.0, 1.0, 2).erlang_c_wait_s == math.inf


def test_no_slots_are_refused():
    with pytest.raises(InfercastError, match="slots must be 1 or more"):
        erlang_c(0, 1.0)


def intervals_that_hold(load: float, seeds: int) -> dict[str, tuple[float, float]]:
    """Return, of runs of M/M/1 that are long enough, which share of their intervals holds the truth, and how many."""
    truth = {"mean": load / (1 - load), "p95": math.log(load / 0.05) / (1 - load)}
    count = round(1.1 * ArrivalLoad(load, load, load / (1 - load)).requests_needed)
    found = [statistic(lindley(load, count, seed)[count // 20 :]) for seed in range(seeds)]
    held = {}
    for name, value in truth.items():
        stated = [each for each in found if not math.isnan(each.half_widths[name])]
        good = [each for each in stated if abs(each[name] - value) <= each.half_widths[name]]
        held[name] = len(good) / len(stated), len(stated) / len(found)
    return held


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_intervals_hold_the_truth_nine_times_in_ten(load):
    for name, (held, stated) in intervals_that_hold(load, 200).items():
        assert 0.9 <= held <= 0.99, (name, held)
        assert stated >= 0.7, (name, stated)


@pytest.mark.slow
def test_intervals_hold_the_truth_near_saturation():
    for name, (held, stated) in intervals_that_hold(0.95, 100).items():
        assert held >= 0.9, (name, held)
        assert stated >= 0.7, (name, stated)


def test_a_run_too_short_for_its_load_has_no_intervals():
    """A server that takes a tick per token is M/D/1: its load is its utilisation, and 500 / (1 - rho)^2 are needed."""
    for load, count, enough in ((0.5, 2_600, True), (0.5, 1_400, False), (0.9, 10_000, False)):
        rng = np.random.default_rng(1)
        arrival_s = np.cumsum(rng.exponential(SERVICE_S / load, count))
        requests = Requests(arrival_s, np.full(count, SERVICE_TICKS), np.ones(count, np.int64))
        report = summarize(simulate(ONE_AT_A_TIME, TABLE, requests))
        assert arrival_load(report.run).rho == pytest.approx(load, rel=0.05)
        assert report.length.is_enough() is enough
        halves = report.metrics["ttft"].half_widths
        assert all(map(math.isnan, halves.values())) is not enough


def test_the_load_of_arrivals_by_hand():
    """Steps of 10 ms for up to 8 sequences; 100 requests, one a second, of 100 ms of prompt and four decodes.

    Each takes a prompt step of 110 ms and an eighth of four steps of 10 ms; they came in 99 s.
    """
    table = StepTable(np.full(4097, 0.010), np.zeros(257), np.array([0, 0, 0.001, 0, 0]))
    limits = ONE_AT_A_TIME._replace(max_num_seqs=8, max_num_batched_tokens=4096)
    requests = Requests(np.arange(100.0), np.full(100, 100), np.full(100, 5))
    assert arrival_load(simulate(limits, table, requests)).rho == pytest.approx(100 * (0.110 + 4 * 0.010 / 8) / 99)


def test_a_full_cache_makes_steps_no_fuller():
    """28 blocks hold four sequences of 96 + 5 tokens, in seven blocks each, though a step may have eight of them.

    50 pairs, one a second: a step for 192 tokens of prompts, and four for the eight tokens of both.
    """
    table = StepTable(np.full(4097, 0.010), np.zeros(257), np.array([0, 0, 0.001, 0, 0]))
    limits = ONE_AT_A_TIME._replace(max_num_seqs=8, max_num_batched_tokens=4096, num_blocks=28)
    run = simulate(limits, table, Requests(np.repeat(np.arange(50.0), 2), np.full(100, 96), np.full(100, 5)))
    assert arrival_load(run).rho == pytest.approx((50 * 0.202 + 400 * 0.010 / 4) / 49)


def test_requests_that_come_at_once_are_more_than_any_server_serves():
    run = simulate(ONE_AT_A_TIME, TABLE, Requests(np.zeros(3), np.full(3, SERVICE_TICKS), np.ones(3, np.int64)))
    found = arrival_load(run)
    assert found.rho == found.wait_s == found.requests_needed == math.inf
    assert not RunLength(10**9, found).is_enough()


def test_two_engines_share_a_load():
    class Pair(Run):
        engines = 2

    arrival_s = np.arange(0.0, 10.0)
    one = simulate(ONE_AT_A_TIME, TABLE, Requests(arrival_s, np.full(10, SERVICE_TICKS), np.ones(10, np.int64)))
    two = Pair(**{each.name: getattr(one, each.name) for each in fields(one)})
    assert arrival_load(two).rho == pytest.approx(arrival_load(one).rho / 2)


def test_sequences_that_slow_each_other_down_count_in_full():
    """A step of d sequences takes d ms: a request of 100 decodes takes 100 ms of the engine, however many share it."""
    table = StepTable(np.arange(4097) * 0.001, np.zeros(257), np.zeros(5))
    limits = ONE_AT_A_TIME._replace(max_num_seqs=8, max_num_batched_tokens=4096)
    arrival_s = np.cumsum(np.random.default_rng(2).exponential(0.2, 500))
    run = simulate(limits, table, Requests(arrival_s, np.ones(500, np.int64), np.full(500, 101)))
    assert arrival_load(run).rho == pytest.approx(500 * 0.101 / (arrival_s[-1] - arrival_s[0]))


SERVERS = 8
TICK_S = 0.001
SLOTS = SchedulerLimits(
    policy=CONTINUOUS,
    max_num_seqs=SERVERS,
    max_num_batched_tokens=64,
    num_blocks=1 << 16,
    block_size=16,
    admit_full_prompt=True,
)
CONSTANT_STEPS = StepTable(np.full(4097, 0.010), np.zeros(257), np.array([0, 0, 0.001, 0, 0]))


def test_how_often_an_engine_is_full_by_hand():
    """Two at once, one request a second; 200 ms of prompt and 60 steps of 10 ms: 0.8 s alone, 0.5 s beside another.

    The chances of 0, 1, 2, 3, .. are as 1, 0.8, 0.4, 0.2, ..: 0.8 of 2.6 are 2 or more, and 0.4 + 0.2 + .. wait.
    """
    limits = ONE_AT_A_TIME._replace(max_num_seqs=2, max_num_batched_tokens=4096)
    requests = Requests(np.arange(100) * 100 / 99, np.full(100, 190), np.full(100, 61))
    found = arrival_load(simulate(limits, CONSTANT_STEPS, requests))
    assert found[:3] == pytest.approx((0.5, 0.8 / 2.6, 0.8 / 2.6))
    assert found.full_wait_s == pytest.approx(1.0)  # M/M/1 of 0.5 s at a load of a half


def test_what_varies_more_fills_an_engine_more_often():
    """Bursts of five, every 2 s, of 0.2 s each: 5, 4, .. 1 are there, for 0.2 s each, and nobody for a second.

    Their mean is 1.5, that of the squares 5.5, the variance 3.25; M/M/1 at 0.5 has 2: z = 1.625.
    """
    arrival_s = np.repeat(np.arange(2000) * 2.0, 5)
    requests = Requests(arrival_s, np.ones(10_000, np.int64), np.full(10_000, 20))
    table = CONSTANT_STEPS._replace(slopes=np.zeros(5))
    found = arrival_load(simulate(ONE_AT_A_TIME, table, requests))
    ratio = 0.5 ** (1 / 1.625)
    assert found[:3] == pytest.approx((0.5, ratio, ratio**2 / (1 - ratio) / 2.5), rel=0.01)


def test_an_engine_that_is_full_tells_how_many_it_holds():
    """Nine blocks: a prompt of 80 tokens and 17 outputs take seven, so that one decodes though two would be let in."""
    limits = ONE_AT_A_TIME._replace(max_num_seqs=2, max_num_batched_tokens=4096, num_blocks=9)
    requests = Requests(np.repeat(np.arange(50.0), 2), np.full(100, 80), np.full(100, 17))
    assert arrival_load(simulate(limits, CONSTANT_STEPS, requests)).rho == pytest.approx(100 * (0.090 + 0.160) / 49)


def test_an_engine_that_is_hardly_ever_full_is_asked_for_its_blocks():
    """The same, one a second, and once two of them: a decode holds six of nine blocks, so a full engine has 1.5."""
    limits = ONE_AT_A_TIME._replace(max_num_seqs=2, max_num_batched_tokens=4096, num_blocks=9)
    arrival_s = np.concatenate([[0.0], np.arange(300.0)])
    requests = Requests(arrival_s, np.full(301, 80), np.full(301, 17))
    found = arrival_load(simulate(limits, CONSTANT_STEPS, requests))
    assert found.rho == pytest.approx(301 * (0.090 + 0.160 / 1.5) / 299)


@pytest.mark.parametrize("load", [0.6, 0.8])
def test_constant_steps_are_servers(load):
    """Eight sequences whose steps take the same, however many they are, are M/M/8: Erlang's formula C."""
    count, rng = 60_000, np.random.default_rng(5)
    outputs = np.ceil(rng.exponential(40.0, count)).astype(np.int64)
    service_s = float(outputs.mean()) * TICK_S
    arrival_s = np.cumsum(rng.exponential(service_s / SERVERS / load, count))
    table = StepTable(np.full(128, TICK_S), np.zeros(SERVERS + 1), np.zeros(5))
    run = simulate(SLOTS, table, Requests(arrival_s, np.ones(count, np.int64), outputs))
    found = arrival_load(run)
    assert found.full_share == pytest.approx(erlang_c(SERVERS, load * SERVERS), rel=0.15)
    assert found.wait_s == pytest.approx(m_m_c_wait_s(load * SERVERS / service_s, service_s, SERVERS), rel=0.25)


def test_few_queues_of_a_full_engine_by_hand():
    """At 0.9, a tenth of 40,000 requests wait in 40,000 x 0.1 x 0.01 / 4 = 10 queues: an error of sqrt(2 / 10)."""
    load = ArrivalLoad(0.9, 0.1, 3.0)
    few, many = RunLength(40_000, load), RunLength(120_001, load)
    assert few.shows_mean(2.69) and not few.shows_mean(2.68)  # 2 x 3 s x 0.447
    assert many.shows_mean(0.0)
    assert few.shows_level(0.5, 0.0448) and not few.shows_level(0.5, 0.0447)  # of the tenth that waits
    assert few.shows_level(0.05, 0.0317) and not few.shows_level(0.05, 0.0316)  # 5 queues of the 5 %
    never = RunLength(40_000, ArrivalLoad(0.9, 0.0, 0.0))
    assert never.shows_mean(0.0) and never.shows_level(0.01, 0.0)
    assert never.load.requests_of_queues == math.inf


def test_a_run_that_sees_few_queues_states_no_interval_of_its_mean():
    """Of 26,000 exponential values of mean 1: half-widths near 1.2 % of it, 0.7, 0.4, 0.3 and 0.1 % of the requests."""
    values = np.random.default_rng(4).exponential(1.0, 26_000)

    def stated(full_share: float, wait_s: float) -> set[str]:
        halves = statistic(values, lambda: RunLength(26_000, ArrivalLoad(0.8, full_share, wait_s))).half_widths
        return {name for name, half in halves.items() if not math.isnan(half)}

    assert stated(0.0, 0.0) == {"mean", "median", "p90", "p95", "p99"}
    assert stated(0.0015, 0.5) == {"median", "p90"}  # 0.39 queues: an error of 0.34 % of the requests, or 1.1 s
    assert stated(0.0015, 0.001) == {"mean", "median", "p90", "p95", "p99"}  # waits of 0.7 s are less than the spread
    assert "mean" in stated(0.5, 0.5)  # 130 queues
    length = RunLength(2_000_000, ArrivalLoad(0.0, 0.5, 0.6))  # half of them wait; errors of 0.02 to 0.14 % by theory
    assert not any(math.isnan(half) for half in statistic(values, lambda: length).half_widths.values())


def overloaded(load: float, count: int, burstiness: float, seed: int) -> bool:
    """Whether a run is called overloaded: 8 slots, a decode step of 1 ms, exponential output lengths of 40 tokens."""
    rng = np.random.default_rng(seed)
    outputs = np.ceil(rng.exponential(40.0, count)).astype(np.int64)
    arrival_s = OpenLoop(load * SERVERS / (outputs.mean() * TICK_S), burstiness).times_s(count, rng)
    table = StepTable(np.full(128, TICK_S), np.zeros(SERVERS + 1), np.zeros(5))
    return summarize(simulate(SLOTS, table, Requests(arrival_s, np.ones(count), outputs))).overloaded


@pytest.mark.parametrize("burstiness", [1.0, 0.25])
@pytest.mark.parametrize("count", [300, 1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_load_of_80_percent_is_not_called_overload(count, burstiness):
    called = np.mean([overloaded(0.8, count, burstiness, seed) for seed in range(40)])
    assert called <= 0.05


@pytest.mark.parametrize(
    ("count", "burstiness", "least"),
    [(1000, 1.0, 0.5), (3000, 1.0, 0.95), pytest.param(10_000, 0.25, 0.95, marks=pytest.mark.slow)],
)
def test_a_load_of_110_percent_is_called_overload(count, burstiness, least):
    called = np.mean([overloaded(1.1, count, burstiness, seed) for seed in range(40)])
    assert called >= least


def test_95_percent_is_rarely_called_overload():
    assert np.mean([overloaded(0.95, 10_000, 1.0, seed) for seed in range(40)]) <= 0.1


def test_estimates_stand_beside_a_simulation_that_they_describe():
    """Eight slots whose speed does not depend on the batch are M/M/8; Erlang C and the simulation agree."""
    load, count = 0.9, 100_000
    rng = np.random.default_rng(3)
    outputs = np.ceil(rng.exponential(2000.0, count)).astype(np.int64)
    service_s = outputs * TICK_S / 20
    rate = load * SERVERS / service_s.mean()
    arrival_s = OpenLoop(rate).times_s(count, rng)
    free_s, waited_s = np.zeros(SERVERS), np.empty(count)
    for index in range(count):
        slot = int(free_s.argmin())
        start_s = max(arrival_s[index], free_s[slot])
        waited_s[index], free_s[slot] = start_s - arrival_s[index], start_s + service_s[index]
    estimate = QueueEstimate(rate, float(service_s.mean()), 1.0, SERVERS)
    assert estimate.load == pytest.approx(load)
    assert waited_s.mean() == pytest.approx(estimate.erlang_c_wait_s, rel=0.15)
