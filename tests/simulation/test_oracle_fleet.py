"""The compiled fleet against the oracle, one test per rule of "Several engines" (docs/serving-rules.md): to the bit."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.errors import WorkloadError
from simulator.simulation.autoscaler import Autoscaler, Failure
from simulator.simulation.clients import Clients
from simulator.simulation.fleet import CacheLink, Fleet, Pool, simulate_fleet
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.routers import Router
from tests.oracle.engine import OracleJob, OracleLimits, run_oracle
from tests.oracle.fleet import (
    OracleAutoscaler,
    OracleClients,
    OracleFailure,
    OracleFleet,
    OracleFleetResult,
    OracleLink,
    OraclePool,
    OracleRouter,
    run_fleet_oracle,
)
from tests.support.oracle_cases import (
    BATCHES,
    GROUPS,
    MIXING,
    TABLE,
    cases,
    compare_counts,
    compare_requests,
    limits_of,
    requests_of,
    seconds,
    too_long,
)

STATES = ["off", "starting", "up", "draining", "failed"]
FREE = st.sampled_from([0, 0, 5])  # blocks that rule M keeps free
ROUTERS = ["round-robin", "least-outstanding", "least-cache", "power-of-two", "prefix-affinity", "least-connections"]


def pool_of(pool: OraclePool) -> Pool:
    drafts = pool.limits.acceptance
    return Pool(limits_of(pool.limits), TABLE, pool.replicas, pool.stages, drafts, slowest_stage=pool.slowest_stage)


def fleet_of(fleet: OracleFleet) -> Fleet:
    """The same fleet, of ours."""
    router, link = fleet.router, fleet.link
    last, first = (each and Autoscaler(**vars(each)) for each in (fleet.autoscaler, fleet.prefill_autoscaler))
    return Fleet(
        pool_of(fleet.pool),
        router=Router(router.name, router.affinity_slack, router.max_ongoing_requests, router.workers),
        autoscaler=last,
        prefill_autoscaler=first,
        failures=tuple(Failure(each.at_s, each.replica, each.repair_s) for each in fleet.failures),
        prefill=None if fleet.prefill is None else pool_of(fleet.prefill),
        link=None if link is None else CacheLink(link.bytes_per_s, link.latency_s, np.array(link.bytes_of)),
    )


def clients_of(clients: OracleClients) -> Clients:
    sessions = {"follows": np.array(clients.follows), "think_s": np.array(clients.think_s)} if clients.follows else {}
    plain = {name: value for name, value in vars(clients).items() if name not in ("follows", "think_s")}
    return Clients(**plain, **sessions)


def compare(
    jobs: list[OracleJob], fleet: OracleFleet, clients: OracleClients | None = None, concurrency: int = 0
) -> OracleFleetResult:
    """Run the same under both, and refuse any difference."""
    clients = clients or OracleClients()
    if concurrency:
        jobs = [job._replace(arrival_s=0.0) for job in jobs]
    oracle = run_fleet_oracle(jobs, fleet, clients, concurrency)
    if not oracle.accepted:
        with pytest.raises(WorkloadError, match="rejected"):
            simulate_fleet(fleet_of(fleet), requests_of(jobs, concurrency), clients_of(clients))
        return oracle
    requests = replace(requests_of(jobs, concurrency, fleet.pool.limits.warm), seed=fleet.router.seed)
    ask = (fleet_of(fleet), requests, clients_of(clients))
    if len(oracle.abandoned) == len(oracle.accepted):
        with pytest.raises(WorkloadError, match="abandoned"):
            simulate_fleet(*ask)
        return oracle
    run = simulate_fleet(*ask)
    steps = [each.step for each in oracle.steps]
    compare_counts(run, steps)
    assert run.steps.replica.tolist() == [each.replica for each in oracle.steps]
    assert run.steps.start_s.tolist() == [step.start_s for step in steps]
    ends_s = run.steps.start_s + run.steps.seconds  # a difference and a sum: two roundings
    assert np.allclose(ends_s, [step.end_s for step in steps], rtol=1e-12, atol=0)
    compare_outcomes(run, oracle)
    return oracle


def compare_outcomes(run: FleetRun, oracle: OracleFleetResult) -> None:
    assert run.rejected.accepted(len(run.rejected) + len(oracle.accepted)).tolist() == oracle.accepted
    assert sorted(run.abandoned.tolist()) == [oracle.accepted[number] for number in oracle.abandoned]
    finished = [request for request in oracle.requests if request.finished_s is not None]
    finished.sort(key=lambda request: (request.arrival_s, request.index))
    assert run.row.tolist() == [oracle.accepted[request.index] for request in finished]
    compare_requests(run, finished)
    assert run.replica.tolist() == [oracle.replica[request.index] for request in finished]
    assert run.retries.tolist() == [oracle.retries[request.index] for request in finished]
    assert run.timeouts.tolist() == [oracle.timeouts[request.index] for request in finished]
    events = [(float(each.time_s), int(each.replica), STATES[each.state]) for each in run.events]
    assert [event for event in events if event[0] > 0] == [event for event in oracle.events if event[0] > 0]


# ---------------------------------------------------------------- fleets


@st.composite
def fleets(
    draw: st.DrawFn, drawn: Any = cases, stages: int = 1, **fixed: Any
) -> tuple[list[OracleJob], OracleFleet, int]:
    """Requests, and some replicas of an engine that holds each of them alone, tight enough to preempt."""
    jobs, limits = draw(drawn(**{"policy": MIXING, **fixed}))
    limits = replace(limits, num_blocks=limits.num_blocks * stages)
    name = draw(st.sampled_from(ROUTERS))
    workers = draw(st.integers(1, 4)) if name == "least-connections" else 1
    router = OracleRouter(name, draw(st.integers(0, 3)), draw(st.sampled_from([0, 0, 1, 3])), workers)
    slowest = draw(st.sampled_from([1.0, 12 / 11.5, 1.5])) if stages > 1 else 1.0
    pool = OraclePool(replace(limits, concurrency=0), seconds, draw(st.integers(1, 4)), stages, slowest)
    return jobs, OracleFleet(pool, router), limits.concurrency


def failures(replicas: int) -> st.SearchStrategy[tuple[OracleFailure, ...]]:
    one = st.builds(OracleFailure, st.floats(0, 0.1), st.integers(0, replicas - 1), st.floats(0.0005, 0.1))
    return st.lists(one, max_size=4).map(tuple)


autoscalers = st.builds(
    OracleAutoscaler,
    target=st.sampled_from([0.5, 1.0, 3.0]),
    max_replicas=st.integers(1, 4),
    min_replicas=st.integers(0, 1),
    metric=st.sampled_from(["concurrency", "queue"]),
    interval_s=st.floats(0.002, 0.02),
    down_delay_s=st.sampled_from([0.0, 0.01, 0.05]),
    cold_start_s=st.sampled_from([0.0, 0.003, 0.03]),
)


@st.composite
def clients_for(draw: st.DrawFn, count: int, sessions: bool) -> OracleClients:
    """Users without much patience; some come back with another turn."""
    follows = tuple(draw(st.sampled_from([-1, index - 1])) for index in range(count)) if sessions else ()
    return OracleClients(
        network_s=draw(st.sampled_from([0.0, 0.005])),
        timeout_s=draw(st.sampled_from([math.inf, 0.004, 0.01, 0.03])),
        max_retries=draw(st.integers(0, 3)),
        retry_delay_s=draw(st.sampled_from([0.0, 0.001, 0.02])),
        follows=follows,
        think_s=tuple(draw(st.floats(0, 0.02)) for _ in follows),
    )


# ---------------------------------------------------------------- one test per rule


@settings(max_examples=12, deadline=None)
@given(case=fleets(blocks_per_prefix=3, warm=True))
def test_routers(case):
    jobs, fleet, concurrency = case
    compare(jobs, fleet, concurrency=concurrency)


@settings(max_examples=12, deadline=None)
@given(case=fleets(blocks_per_prefix=2), workers=st.integers(1, 9), seed=st.integers(0, 2**31 - 2), data=st.data())
def test_workers_of_a_router(case, workers, seed, data):
    """Each counts its own requests, over failures and cancellations; next ones come over the same connections."""
    jobs, fleet, concurrency = case
    fleet = replace(fleet, router=OracleRouter("least-connections", workers=workers, seed=seed))
    fleet = replace(fleet, failures=data.draw(failures(fleet.pool.replicas)))
    compare(jobs, fleet, data.draw(clients_for(len(jobs), sessions=not concurrency)), concurrency)


def test_what_follows_comes_over_the_same_connection():
    """Two connections with a worker each: requests go to replica 0, then 1, then 0, in a loop and in sessions."""
    pool = OraclePool(OracleLimits(4, 64, num_blocks=99), seconds, replicas=2)
    fleet = OracleFleet(pool, OracleRouter("least-connections", workers=2))
    loop = compare([OracleJob(0.0, 4, 2)] * 6, fleet, concurrency=2)
    assert [loop.replica[index] for index in range(6)] == [0, 0, 1, 1, 0, 0]
    turns = [OracleJob(0.0, 4, 2)] * 6
    talks = compare(turns, fleet, OracleClients(follows=(-1, 0, 1, -1, 3, 4), think_s=(0.01,) * 6))
    assert [talks.replica[index] for index in range(6)] == [0, 1, 0, 0, 1, 0]


@settings(max_examples=10, deadline=None)
@given(case=fleets(async_scheduling=st.booleans()), router=st.sampled_from(ROUTERS))
def test_one_replica_is_one_engine(case, router):
    jobs, fleet, concurrency = case
    alone = replace(fleet, pool=replace(fleet.pool, replicas=1), router=OracleRouter(router))
    result = compare(jobs, alone, concurrency=concurrency)
    jobs = [job._replace(arrival_s=0.0) for job in jobs] if concurrency else jobs
    single = run_oracle(jobs, replace(alone.pool.limits, concurrency=concurrency), seconds)
    assert [each.step for each in result.steps] == single.steps


@settings(max_examples=12, deadline=None)
@given(case=fleets(blocks_per_prefix=3, warm=True), data=st.data())
def test_failures(case, data):
    jobs, fleet, concurrency = case
    fleet = replace(fleet, failures=data.draw(failures(fleet.pool.replicas)))
    compare(jobs, fleet, concurrency=concurrency)


@settings(max_examples=12, deadline=None)
@given(case=fleets(policy=st.sampled_from(["static", "uncached"]), **BATCHES), data=st.data())
def test_dynamic_batches_and_uncached(case, data):
    jobs, fleet, concurrency = case
    fleet = replace(fleet, failures=data.draw(failures(fleet.pool.replicas)))
    compare(jobs, fleet, data.draw(clients_for(len(jobs), sessions=not concurrency)), concurrency)


@settings(max_examples=12, deadline=None)
@given(case=fleets(blocks_per_prefix=2, warm=True), scaler=autoscalers, apart=st.sampled_from([1, 100]))
def test_autoscaling(case, scaler, apart):
    """Where requests come far `apart`, most checks change nothing and are left out."""
    jobs, fleet, concurrency = case
    jobs = [job._replace(arrival_s=apart * job.arrival_s) for job in jobs]
    compare(jobs, replace(fleet, autoscaler=scaler), concurrency=concurrency)


@settings(max_examples=12, deadline=None)
@given(case=fleets(blocks_per_prefix=2, by_priority=st.booleans()), data=st.data())
def test_clients(case, data):
    jobs, fleet, concurrency = case
    compare(jobs, fleet, data.draw(clients_for(len(jobs), sessions=not concurrency)), concurrency)


@settings(max_examples=20, deadline=None)
@given(case=fleets(too_long, blocks_per_prefix=2, acceptance=st.sampled_from([(), (0.6,)])), data=st.data())
def test_rejected_requests_and_the_turns_after_them(case, data):
    """Rule Z, with a prefill pool that has another cache, too."""
    jobs, fleet, concurrency = case
    clients = data.draw(clients_for(len(jobs), sessions=not concurrency))
    compare(jobs, fleet, clients, concurrency)
    smaller = replace(
        fleet.pool.limits, num_blocks=max(1, fleet.pool.limits.num_blocks // 2), draft_tokens=0, acceptance=()
    )
    link = OracleLink(1e9, 0.001, tuple(1e6 * job.prompt_tokens for job in jobs))
    compare(jobs, replace(fleet, prefill=replace(fleet.pool, limits=smaller), link=link), clients, concurrency)


def test_a_deadline_at_the_very_end_of_a_step_ends_the_wait():
    """The second sending starts 0.05 s after the first, as its deadline does: four tokens of five are computed then."""
    jobs = [OracleJob(arrival_s, prompt, 1) for arrival_s, prompt in ((0.0, 1), (0.0, 1), (0.0546875, 5))]
    pool = OraclePool(OracleLimits(1, 1, 5, 1, full_prompt_must_fit=False), seconds, 1)
    scaler = OracleAutoscaler(0.5, 1, 0, "concurrency", 0.015625, 0.0, 0.03)
    clients = OracleClients(timeout_s=0.03, max_retries=2, retry_delay_s=0.02)
    assert compare(jobs, OracleFleet(pool, autoscaler=scaler), clients).abandoned == [0, 1, 2]


@st.composite
def two_pools(draw: st.DrawFn, **fixed: Any) -> tuple[list[OracleJob], OracleFleet, int]:
    jobs, fleet, concurrency = draw(fleets(**fixed))
    roomy = replace(
        fleet.pool, limits=replace(fleet.pool.limits, max_num_batched_tokens=64), replicas=draw(st.integers(1, 3))
    )
    sizes = tuple(float(job.prompt_tokens) for job in jobs)
    link = OracleLink(draw(st.sampled_from([1e3, 1e5, math.inf])), draw(st.sampled_from([0.0, 0.002])), sizes)
    return jobs, replace(fleet, prefill=roomy, link=link), concurrency


@settings(max_examples=12, deadline=None)
@given(case=two_pools(blocks_per_prefix=2, warm=True))
def test_disaggregation(case):
    jobs, fleet, concurrency = case
    compare(jobs, fleet, concurrency=concurrency)


@settings(max_examples=15, deadline=None)
@given(case=two_pools(blocks_per_prefix=2), data=st.data())
def test_each_pool_scales_on_its_own(case, data):
    """One of them or both, from zero too, with replicas that fail and clients that give up."""
    jobs, fleet, concurrency = case
    last, first = data.draw(st.one_of(st.none(), autoscalers)), data.draw(autoscalers)
    decoding = last.max_replicas if last else fleet.pool.replicas
    fleet = replace(fleet, autoscaler=last, prefill_autoscaler=first)
    fleet = replace(fleet, failures=data.draw(failures(first.max_replicas + decoding)))
    compare(jobs, fleet, data.draw(clients_for(len(jobs), sessions=not concurrency)), concurrency)


@settings(max_examples=12, deadline=None)
@given(case=fleets(blocks_per_prefix=2, groups=GROUPS, async_scheduling=st.booleans()), data=st.data())
def test_groups_and_the_one_step_lag(case, data):
    jobs, fleet, concurrency = case
    fleet = replace(fleet, failures=data.draw(failures(fleet.pool.replicas)))
    compare(jobs, fleet, data.draw(clients_for(len(jobs), sessions=not concurrency)), concurrency)


@settings(max_examples=10, deadline=None)
@given(case=fleets(stages=2, async_scheduling=st.booleans(), watermark_blocks=FREE, least_free_blocks=FREE))
def test_pipelines(case):
    jobs, fleet, concurrency = case
    compare(jobs, fleet, concurrency=concurrency)


def everything(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["one pool", "two pools", "pipelines", "autoscaled"]))
    make = two_pools if kind == "two pools" else fleets
    acceptance = data.draw(st.sampled_from([(), (0.7, 0.5)]))
    jobs, fleet, concurrency = data.draw(
        make(
            stages=3 if kind == "pipelines" else 1,
            blocks_per_prefix=data.draw(st.sampled_from([0, 2])),
            acceptance=acceptance,
            groups=data.draw(GROUPS),
            async_scheduling=data.draw(st.booleans()),
        )
    )
    count = fleet.pool.replicas + (fleet.prefill.replicas if fleet.prefill else 0)
    if kind == "autoscaled" or (kind == "two pools" and data.draw(st.booleans())):
        fleet = replace(fleet, autoscaler=data.draw(autoscalers))
        count += fleet.autoscaler.max_replicas - fleet.pool.replicas
    fleet = replace(fleet, failures=data.draw(failures(count)))
    compare(jobs, fleet, data.draw(clients_for(len(jobs), sessions=not concurrency)), concurrency)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_everything_together(data):
    everything(data)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_more_of_everything_together(data):
    everything(data)
