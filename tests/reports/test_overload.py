"""What queues for ever, in a run or in a longer one, and that throughput is what was served."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.scenario import Scenario
from simulator.cost.service import Service, ServiceReport
from simulator.deployment.deployment import deploy
from simulator.reports.arrival_load import arrival_load
from simulator.reports.overload import Overload
from simulator.reports.report import Report, summarize
from simulator.roofline.step_model import StepTable
from simulator.simulation.clients import Clients
from simulator.simulation.engine_loop import simulate
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent, LogNormal
from simulator.workloads.workload import Requests, Workload
from tests.support.queues import ONE_AT_A_TIME
from tests.support.replicas import CASES, replica

ROUNDING = 1 + 1e-9
LLAMA = deploy("llama-3.1-8b", "h100-sxm")


def seen(rate_per_s: float, count: int, prompt: int, output: int) -> Report:
    load = Workload(OpenLoop(rate_per_s), Independent(Fixed(prompt), Fixed(output)), count)
    return Scenario(LLAMA, load).report(load)


def pools(rate_per_s: float, count: int, split: tuple[int, int], **link: float) -> ServiceReport:
    load = Workload(OpenLoop(rate_per_s), Independent(Fixed(4000), Fixed(50)), count)
    return Service(LLAMA, sum(split), prefill_replicas=split[0], **link).report(load.requests())


def test_a_short_run_is_overloaded_by_its_load_and_serves_what_it_serves():
    """A thousand requests in a second: all run at once, so that none waits, and the last is answered a minute later."""
    report = seen(1000.0, 1000, 10, 1000)
    assert report.overload and report.overload.queueing == "requests" and not report.overloaded
    assert report.within["all"] == 1.0 and not report.meets_slo
    assert report.requests_per_s == pytest.approx(1000 / (report.run.seen_s - report.run.requests.arrival_s[0]))
    assert report.skipped == 0


def test_a_run_hardly_longer_than_a_request_has_no_steady_state():
    """Ten requests a second for a second, of four seconds each: they are served in five."""
    report = seen(10.0, 10, 100, 500)
    assert report.overload is None and not report.is_settled
    assert report.requests_per_s == pytest.approx(10 / (report.run.seen_s - report.run.requests.arrival_s[0]))
    assert seen(10.0, 1000, 100, 50).requests_per_s == pytest.approx(10.0, rel=0.1)


def test_one_request_says_nothing_of_a_rate():
    assert seen(1e6, 1, 1000, 100).overload is None
    assert seen(1e6, 2, 1000, 100).overload


def test_what_would_grow_grows_by_what_full_steps_do_not_serve():
    """100 decode steps of 10 ms each, of 64 sequences at most: 64 requests/s are served of 1,000/s, and none waits."""
    table = StepTable(np.full(4097, 0.010), np.zeros(257), np.zeros(5))
    limits = ONE_AT_A_TIME._replace(max_num_seqs=64, max_num_batched_tokens=4096, num_blocks=1 << 16)
    requests = Requests(np.arange(60) * 1e-3, np.ones(60), np.full(60, 101), asked_per_s=1000.0)
    found = summarize(simulate(limits, table, requests)).overload
    assert found == ("requests", pytest.approx(1000 - 64, rel=1e-3), False)


def test_steps_that_grow_less_and_less_are_not_taken_to_grow_for_ever():
    """A step of a mixture of experts lasts longer with each sequence until all experts are read: here 16 of 256."""
    tokens = np.arange(4097.0)
    table = StepTable(0.010 + 0.005 * np.minimum(tokens, 16), np.zeros(257), np.zeros(5))
    limits = ONE_AT_A_TIME._replace(max_num_seqs=256, max_num_batched_tokens=4096, num_blocks=1 << 16)
    run = simulate(limits, table, Requests(np.arange(20) / 15, np.ones(20), np.full(20, 20), asked_per_s=15.0))
    load = arrival_load(run)
    assert load.least < 1 < load.rho
    assert summarize(run).overload is None


@pytest.mark.parametrize("burstiness", [0.25, 1.0])
def test_a_load_of_80_percent_is_rarely_said_to_overload_a_longer_run(burstiness):
    """Of 64 sequences, whose outputs are exponential: 1,000 are the fewest of which chance decides less than that."""
    table = StepTable(np.full(4097, 0.010), np.zeros(257), np.zeros(5))
    limits = ONE_AT_A_TIME._replace(max_num_seqs=64, max_num_batched_tokens=4096, num_blocks=1 << 16)

    def said(load: float, seed: int) -> bool:
        rng = np.random.default_rng(seed)
        outputs = np.ceil(rng.exponential(40.0, 300)).astype(np.int64)
        come = OpenLoop(load * 64 / 0.4, burstiness)
        run = simulate(
            limits, table, Requests(come.times_s(300, rng), np.ones(300), outputs, asked_per_s=come.rate_per_s)
        )
        return summarize(run).overload is not None

    assert np.mean([said(0.8, seed) for seed in range(40)]) <= 0.05
    assert np.mean([said(1.5, seed) for seed in range(40)]) >= 0.95


def test_links_that_are_too_slow_are_overloaded_however_few_requests_come():
    """A prompt of 4,000 tokens is 0.524 GB, and 1 ms: 8 a second are 2.1 s of each of two links of 1 GB/s."""
    busy = 8 * (4000 * 131_072 / 1e9 + 1e-3) / 2
    for count in (50, 500):
        found = pools(8.0, count, (2, 1), link_bytes_per_s=1e9)
        assert found.report.overload == ("links", pytest.approx(8 * (1 - 1 / busy)), True)
        assert found.within_share == 1.0 and not found.meets_slo
        assert "tpot" in found.report.endless and "ttft" not in found.report.endless
    assert pools(8.0, 500, (2, 1)).report.overload is None


def test_a_pool_that_decodes_too_little_is_named_before_its_queue_shows():
    load = Workload(OpenLoop(20.0), Independent(Fixed(1000), Fixed(2000)), 500)
    found = Service(LLAMA, 5, prefill_replicas=4).report(load.requests()).report.overload
    assert found and (found.queueing, found.is_seen) == ("decoding", False)
    longer = Service(LLAMA, 5, prefill_replicas=4).report(replace(load, request_count=2000).requests())
    assert longer.report.overload and (longer.report.overload.queueing, longer.report.overload.is_seen) == (
        "decoding",
        True,
    )
    assert longer.report.requests_per_s == pytest.approx(2000 / longer.run.seen_s, rel=0.01)


def test_users_who_give_up_leave_no_queue_that_grows_for_ever():
    load = Workload(OpenLoop(400.0), Independent(Fixed(1000), Fixed(50)), 1000)
    assert Service(LLAMA).report(load.requests()).report.overload
    left = Service(LLAMA).report(load.requests(), Clients(timeout_s=1.0))
    assert len(left.run.abandoned) and left.report.overload is None


def test_an_overload_says_which_latencies_have_no_end():
    assert Overload("requests", 1.0).growing == ("ttft", "ttfv", "e2el", "queue")
    assert Overload("links", 1.0).growing == Overload("decoding", 1.0).growing == ("tpot", "ttfv", "e2el")


# ---------------------------------------------------------------- laws

LENGTHS = st.builds(
    Independent,
    st.builds(LogNormal, st.integers(50, 1500), st.just(1.0), st.just(6000)),
    st.one_of(
        st.builds(Fixed, st.integers(1, 400)), st.builds(LogNormal, st.integers(20, 200), st.just(1.0), st.just(999))
    ),
)
OF_MOST = st.sampled_from([0.05, 0.5, 0.9, 1.05, 1.5, 10.0, 1000.0])


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: " ".join(map(str, case)))
@settings(max_examples=8, deadline=None)
@given(lengths=LENGTHS, of_most=OF_MOST, count=st.sampled_from([2, 20, 200]), burstiness=st.sampled_from([0.25, 1.0]))
@example(lengths=Independent(Fixed(10), Fixed(200)), of_most=1000.0, count=200, burstiness=1.0)
def test_no_more_is_served_than_engines_can(case, lengths, of_most, count, burstiness):
    """Tokens/s <= `Bounds.most_per_s` x tokens per request, of short runs too."""
    scenario = Scenario(replica(case, max_model_len=8192), Workload(OpenLoop(1.0, burstiness), lengths, count))
    found = lower_bounds(scenario)
    report = scenario.report(scenario.workload.at_rate(of_most * found.most_per_s))
    tokens = report.output_tokens / report.completed
    assert report.output_tokens_per_s <= found.most_per_s * tokens * ROUNDING


@settings(max_examples=15, deadline=None)
@given(
    rate_per_s=st.sampled_from([1.0, 8.0, 60.0, 500.0]),
    count=st.sampled_from([5, 60, 400]),
    prefill=st.integers(0, 2),
    link_bytes_per_s=st.sampled_from([1e8, 1e9, 5e10]),
)
def test_a_fleet_s_rate_is_its_requests_over_the_time_in_which_they_come_or_are_served(
    rate_per_s, count, prefill, link_bytes_per_s
):
    """And what keeps up sends no more bytes of KV cache than its links carry."""
    load = Workload(OpenLoop(rate_per_s), Independent(Fixed(1000), Fixed(50)), count)
    service = Service(LLAMA, 3, prefill_replicas=prefill, link_bytes_per_s=link_bytes_per_s)
    found = service.report(load.requests())
    report, arrival_s = found.report, found.run.requests.arrival_s[found.report.skipped :]
    came_s = (arrival_s[-1] - arrival_s[0]) * len(arrival_s) / (len(arrival_s) - 1)
    wall_s = came_s if report.is_as_offered else found.run.seen_s - arrival_s[0]
    assert report.requests_per_s == pytest.approx(len(arrival_s) / wall_s)
    if prefill and report.overload is None:
        assert rate_per_s * 1000 * 131_072 <= prefill * link_bytes_per_s
