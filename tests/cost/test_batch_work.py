"""Offline work: the time of a part is simulated or extrapolated alike, the fewest replicas in time, dollars by hand."""

from dataclasses import replace

import pytest

from simulator import ClosedLoop, Fixed, Independent, Scenario, Settings, Workload, deploy, own_offer
from simulator.cost.batch_work import SAMPLE, BatchWork, batch_answer
from simulator.errors import InfercastError
from simulator.workloads.lengths import Uniform

LENGTHS = Independent(Fixed(512), Fixed(64))


def work(requests: int, deadline_s: float, *offers, commitment: str = "on-demand") -> BatchWork:
    load = Workload(ClosedLoop(requests), LENGTHS, requests)
    priced = tuple(offer.model_copy(update={"commitment": commitment}) for offer in offers)
    return BatchWork(Scenario(deploy("llama-3.1-8b", "h100-sxm"), load, offers=priced), deadline_s)


ONE, EIGHT = own_offer("h100-sxm", 3.0), own_offer("h100-sxm", 20.0, devices=8)


def test_a_part_beyond_the_sample_takes_as_long_as_a_simulation_of_it():
    large = work(20_000, 1e6)
    assert len(large.sample.run.requests) >= SAMPLE
    assert large.seconds(1) - large.scenario.start_s == pytest.approx(large.report(20_000).run.end_s, rel=0.02)


def test_dollars_by_hand():
    found = batch_answer(work(20_000, 1e6, ONE))
    assert found.replicas == 1
    assert found.seconds == pytest.approx(found.work.seconds(1))
    assert found.usd == pytest.approx(3.0 * found.seconds / 3600)
    assert found.tokens == (20_000 * 512, 20_000 * 64)


def test_the_fewest_replicas_that_are_in_time():
    alone_s = work(20_000, 1e6).seconds(1)
    found = batch_answer(work(20_000, alone_s / 2.5, ONE))
    assert found.seconds <= alone_s / 2.5 < found.work.seconds(found.replicas - 1)


def test_instances_are_filled_because_that_ends_sooner_for_the_same_price():
    found = batch_answer(work(20_000, 1e6, EIGHT))
    assert found.replicas == 8
    assert found.packing.empty_devices == 0
    assert found.usd < found.packing.usd_per_hour * found.work.seconds(1) / 3600


def test_spot_takes_longer_by_the_time_that_instances_are_away():
    asked = work(20_000, 1e6, ONE, commitment="spot")
    start_s = asked.scenario.start_s
    steady = work(20_000, 1e6, ONE).seconds(1) - start_s
    assert asked.seconds(1) - start_s == pytest.approx(steady / asked.scenario.interruptions.up_share(start_s))
    assert asked.seconds(1) - start_s > steady


def test_without_an_offer_it_has_no_price():
    found = batch_answer(work(500, 1e6))
    assert (found.packing, found.usd, found.replicas) == (None, None, 1)


def test_a_deadline_before_replicas_start_is_refused():
    with pytest.raises(InfercastError, match="to start"):
        batch_answer(work(500, 20.0, ONE))


def test_owned_machines_take_electricity():
    owned = ONE.model_copy(update={"commitment": "owned", "usd_per_kwh": 0.1})
    free = batch_answer(work(5_000, 1e6, ONE))
    paid = batch_answer(replace(free.work, scenario=replace(free.work.scenario, offers=(owned,))))
    assert paid.usd - free.usd == pytest.approx(free.watts / 1000 * 0.1 * free.seconds / 3600)


def test_rejected_requests_are_sent_and_have_no_tokens():
    """Of prompts of 100 to 1,200 tokens, those beyond a context of 1,000 with 128 out are rejected."""
    load = Workload(ClosedLoop(2000), Independent(Uniform(100, 1200), Fixed(128)), 2000)
    small = deploy("llama-3.1-8b", "h100-sxm", settings=Settings(max_model_len=1000))
    found = batch_answer(BatchWork(Scenario(small, load, offers=(ONE,)), 1e6))
    run = found.work.sample.run
    assert 200 < len(run.rejected) < 800
    assert found.tokens == (run.requests.prompt_tokens.sum(), 128 * len(run.requests))
    assert found.seconds == found.work.scenario.start_s + run.end_s


def test_a_single_request_is_work():
    found = batch_answer(work(1, 1e6, ONE))
    assert (found.replicas, found.tokens) == (1, (512, 64))
