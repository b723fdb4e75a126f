"""The oracle of several engines against timetables worked out by hand; a step lasts 1 s unless said otherwise.

The letters are the rules of docs/serving-rules.md.
"""

import math
import random
from itertools import pairwise

import pytest

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
from tests.oracle.speculation import uniform
from tests.support.timetables import finish, one_second

ROOMY = OracleLimits(4, 64, num_blocks=99)
ONE_SLOT = OracleLimits(1, 64, num_blocks=99)


def replicas(count: int, router: str = "round-robin", limits: OracleLimits = ROOMY, **rules: int) -> OracleFleet:
    return OracleFleet(OraclePool(limits, one_second, replicas=count), OracleRouter(router, **rules))


def began(result: OracleFleetResult) -> list[tuple[float, int, tuple[int, ...]]]:
    """(start_s, replica, requests) of each step."""
    return [(each.step.start_s, each.replica, tuple(part[0] for part in each.step.scheduled)) for each in result.steps]


# ---------------------------------------------------------------- R, T


def test_round_robin() -> None:
    result = run_fleet_oracle([(0.0, 4, 1)] * 3, replicas(2))
    assert began(result) == [(0.0, 0, (0, 2)), (0.0, 1, (1,))]


def test_a_replica_with_a_lag_is_the_single_engine() -> None:
    # H: the third step is decided when the second begins, with what is there by then though nothing will run.
    limits = OracleLimits(4, 4, num_blocks=99, async_scheduling=True)
    result = run_fleet_oracle([(0.0, 8, 1), (0.5, 2, 1), (1.5, 2, 1)], replicas(1, limits=limits))
    assert began(result) == [(0.0, 0, (0,)), (1.0, 0, (0,)), (2.0, 0, (1,)), (3.0, 0, (2,))]


def test_an_arrival_at_the_end_of_a_step_is_routed_after_it() -> None:
    # Replica 1 is done at 1.0 and so has fewer outstanding than replica 0 when request 2 arrives at 1.0.
    result = run_fleet_oracle([(0.0, 4, 3), (0.0, 4, 1), (1.0, 4, 1)], replicas(2, "least-outstanding"))
    assert began(result) == [(0.0, 0, (0,)), (0.0, 1, (1,)), (1.0, 0, (0,)), (1.0, 1, (2,)), (2.0, 0, (0,))]


def test_least_cache() -> None:
    # 40 tokens are 3 blocks and 4 one, so replica 1 gets two more before it holds as much; then the lower outstanding.
    jobs = [(0.0, 40, 5), (0.0, 4, 5), (0.5, 4, 5), (0.6, 4, 5), (0.7, 4, 5)]
    assert run_fleet_oracle(jobs, replicas(2, "least-cache")).replica == {0: 0, 1: 1, 2: 1, 3: 1, 4: 0}


def test_two_choices_of_two_are_the_least_outstanding() -> None:
    jobs = [(0.1 * index, 1 + index % 7, 1 + index % 5) for index in range(40)]
    two = run_fleet_oracle(jobs, replicas(2, "power-of-two"))
    assert began(two) == began(run_fleet_oracle(jobs, replicas(2, "least-outstanding")))
    three = run_fleet_oracle(jobs, replicas(3, "power-of-two"))
    assert set(three.replica.values()) == {0, 1, 2}


def test_each_worker_counts_its_own_connections() -> None:
    # One worker, turns in brackets: both tied [1, 1], 0 first [-1, 1]; 1 has fewer; tied [0, 2], 1 first; 0 has fewer.
    jobs = [(0.0, 4, 2)] * 4
    assert run_fleet_oracle(jobs, replicas(2, "least-connections")).replica == {0: 0, 1: 1, 2: 1, 3: 0}
    # Seed 3 draws another of four workers for each.
    each = replicas(2, "least-connections", workers=4, seed=3)
    assert run_fleet_oracle(jobs, each).replica == dict.fromkeys(range(4), 0)
    # A closed loop, a worker for each connection: both go to replica 0 first, then to 1, then to 0; one always idles.
    loop = run_fleet_oracle([(0.0, 4, 2)] * 6, replicas(2, "least-connections", workers=2), concurrency=2)
    assert loop.replica == {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 5: 0}
    assert finish(loop) == [2.0, 2.0, 4.0, 4.0, 6.0, 6.0]


def test_least_connections_of_one_worker() -> None:
    # Turns: [-2, 1, 1] after request 0, [-2, 0, 2] after 1, which ends at 1.0; request 2 is alone in having the fewest,
    # so is 3; at 1.6 all have one: [-1, 1, 3], so replica 2 and [-1, 1, 0]; at 1.7 replicas 0 and 1: [0, 2, 0].
    jobs = [(0.0, 4, 9), (0.0, 4, 1), (0.0, 4, 9), (1.5, 4, 9), (1.6, 4, 9), (1.7, 4, 9)]
    chosen = run_fleet_oracle(jobs, replicas(3, "least-connections")).replica
    assert chosen == {0: 0, 1: 1, 2: 2, 3: 1, 4: 2, 5: 1}


def test_connections_reach_workers_by_the_draw() -> None:
    # Seed 0 draws 0.27, 0.63, 0.87, 0.86, 0.72, 0.96, 0.87, 0.14: connections 0 and 7 are worker 0's, which sends them
    # to replicas 0 and 1; the others are worker 1's: 0, 1, tied 1, 0, tied 0, 1.
    draws = [uniform(connection, 0, 2) for connection in range(8)]
    assert [connection for connection, draw in enumerate(draws) if draw < 0.5] == [0, 7]
    chosen = run_fleet_oracle([(0.0, 4, 2)] * 8, replicas(2, "least-connections", workers=2)).replica
    assert [chosen[index] for index in (0, 7)] == [0, 1]
    assert [chosen[index] for index in range(1, 7)] == [0, 1, 1, 0, 0, 1]


def test_prefix_affinity() -> None:
    limits = OracleLimits(4, 64, num_blocks=99, block_size=1, prefix_block_tokens=2)
    jobs = [
        OracleJob(0.0, 5, 1, ids=(1, 2)),
        OracleJob(0.0, 5, 1, ids=(3, 4)),  # nobody has it: the less outstanding
        OracleJob(5.0, 5, 1, ids=(3, 5)),
        OracleJob(5.0, 5, 1, ids=(3, 4)),  # though replica 1 has one outstanding
        OracleJob(5.0, 5, 1, ids=(1, 2)),
    ]
    loyal = run_fleet_oracle(jobs, replicas(2, "prefix-affinity", limits))
    assert [loyal.replica[index] for index in range(5)] == [0, 1, 1, 1, 0]
    assert [request.hit_tokens for request in loyal.requests] == [0, 0, 2, 4, 4]
    fair = run_fleet_oracle(jobs, replicas(2, "prefix-affinity", limits, affinity_slack=0))
    assert [fair.replica[index] for index in range(5)] == [0, 1, 1, 0, 0]


def test_requests_wait_at_the_router_in_front_of_full_replicas() -> None:
    jobs = [(0.0, 4, 2), (0.0, 4, 1), (0.0, 4, 1)]
    result = run_fleet_oracle(jobs, replicas(2, "least-outstanding", max_ongoing_requests=1))
    assert began(result) == [(0.0, 0, (0,)), (0.0, 1, (1,)), (1.0, 0, (0,)), (1.0, 1, (2,))]


@pytest.mark.parametrize("router", ["round-robin", "least-outstanding", "least-cache", "power-of-two"])
def test_one_replica_is_one_engine(router: str) -> None:
    limits = OracleLimits(3, 16, num_blocks=6, block_size=4)
    jobs = [(0.3 * index, 1 + 5 * index % 11, 1 + 7 * index % 9) for index in range(20)]
    fleet = run_fleet_oracle(jobs, replicas(1, router, limits))
    assert [each.step for each in fleet.steps] == run_oracle(jobs, limits, one_second).steps


# ---------------------------------------------------------------- X


def test_a_failure_sends_its_requests_elsewhere() -> None:
    # Request 0 has 2 of its tokens when replica 0 dies in its third step: it starts anew on replica 1.
    fleet = OracleFleet(OraclePool(ROOMY, one_second, replicas=2), failures=(OracleFailure(2.5, 0, 10.0),))
    result = run_fleet_oracle([(0.0, 4, 3), (20.0, 4, 1), (20.0, 4, 1)], fleet)
    assert began(result)[:3] == [(0.0, 0, (0,)), (1.0, 0, (0,)), (2.5, 1, (0,))]
    assert finish(result) == [5.5, 21.0, 21.0]
    assert result.requests[0].first_token_s == 3.5
    assert result.retries == [1, 0, 0]
    assert result.replica == {0: 1, 1: 0, 2: 1}
    assert result.events == [(2.5, 0, "failed"), (12.5, 0, "up")]


def test_without_another_replica_requests_wait_for_the_repair() -> None:
    fleet = OracleFleet(OraclePool(ONE_SLOT, one_second), failures=(OracleFailure(1.5, 0, 10.0),))
    result = run_fleet_oracle([(0.0, 4, 2), (0.0, 4, 1), (3.0, 4, 1)], fleet)
    assert began(result) == [(0.0, 0, (0,)), (11.5, 0, (0,)), (12.5, 0, (0,)), (13.5, 0, (1,)), (14.5, 0, (2,))]


def test_a_failure_empties_the_caches() -> None:
    limits = OracleLimits(4, 64, num_blocks=99, block_size=1, prefix_block_tokens=2)
    jobs = [OracleJob(at_s, 5, 1, ids=(1, 2)) for at_s in (0.0, 2.0, 4.0)]
    fleet = OracleFleet(OraclePool(limits, one_second), failures=(OracleFailure(3.5, 0, 0.25),))
    assert [request.hit_tokens for request in run_fleet_oracle(jobs, fleet).requests] == [0, 4, 0]


# ---------------------------------------------------------------- A


def test_the_autoscaler_goes_up_and_down() -> None:
    # One request at a time. Two are outstanding at check 1, so replica 1 starts and is up at 1.5: request 2 goes there.
    # From 6 s on one is outstanding, and two checks later (8 s) replica 1, which is empty, goes.
    scaler = OracleAutoscaler(target=1, max_replicas=2, interval_s=1.0, down_delay_s=2.0, cold_start_s=0.5)
    fleet = OracleFleet(OraclePool(ONE_SLOT, one_second), autoscaler=scaler)
    result = run_fleet_oracle([(0.0, 1, 4), (0.0, 1, 4), (2.0, 1, 4), (9.5, 1, 1), (9.5, 1, 1)], fleet)
    assert finish(result) == [4.0, 8.0, 6.0, 10.5, 11.5]
    assert result.events[:4] == [(1.0, 1, "starting"), (1.5, 1, "up"), (8.0, 1, "draining"), (8.0, 1, "off")]


def test_as_many_stay_as_were_wanted_at_most() -> None:
    # Replica 0 gets three requests at 0 and works until 3, 6 and 14 s; all are up from check 1 on. Two are wanted at
    # checks 4 and 5, one from 6 on: check 8 keeps two, and check 13 (wanting one since 9) keeps one.
    scaler = OracleAutoscaler(target=1, max_replicas=3, min_replicas=0, interval_s=1.0, down_delay_s=4.0)
    fleet = OracleFleet(OraclePool(ONE_SLOT, one_second), autoscaler=scaler)
    result = run_fleet_oracle([(0.0, 1, 3), (0.0, 1, 3), (0.0, 1, 8), (2.2, 1, 1)], fleet)
    assert finish(result) == [3.0, 6.0, 14.0, 3.2]
    assert [event for event in result.events if event[2] == "draining"] == [(8.0, 2, "draining"), (13.0, 1, "draining")]


def test_what_drains_finishes_its_requests_and_gets_no_more() -> None:
    # Two outstanding start replica 1, which gets request 2. At check 5 that is alone: replica 1, the highest, drains
    # until 7.5 s; request 3 goes to replica 0; two are wanted at check 6, but none is off.
    scaler = OracleAutoscaler(target=1, max_replicas=2, interval_s=1.0)
    fleet = OracleFleet(OraclePool(ONE_SLOT, one_second), autoscaler=scaler)
    result = run_fleet_oracle([(0.0, 1, 4), (0.0, 1, 1), (1.5, 1, 6), (5.5, 1, 1)], fleet)
    assert result.replica == {0: 0, 1: 0, 2: 1, 3: 0}
    assert finish(result) == [4.0, 5.0, 7.5, 6.5]
    assert result.events == [(1.0, 1, "starting"), (1.0, 1, "up"), (5.0, 1, "draining"), (7.5, 1, "off")]


def test_from_zero_and_by_queue() -> None:
    # The first request starts a replica, which is up 2 s later. At check 3 (3 s) one runs and three wait: 2 wanted.
    scaler = OracleAutoscaler(
        target=2, max_replicas=3, min_replicas=0, metric="queue", interval_s=1.0, down_delay_s=9.0, cold_start_s=2.0
    )
    fleet = OracleFleet(OraclePool(ONE_SLOT, one_second), autoscaler=scaler)
    result = run_fleet_oracle([(0.25, 1, 4), (2.5, 1, 1), (2.5, 1, 1), (2.5, 1, 1)], fleet)
    assert result.events == [(0.25, 0, "starting"), (2.25, 0, "up"), (3.0, 1, "starting"), (5.0, 1, "up")]
    assert finish(result) == [6.25, 7.25, 8.25, 9.25]


# ---------------------------------------------------------------- C


def test_who_waits_too_long_is_sent_again_or_given_up() -> None:
    fleet = OracleFleet(OraclePool(ONE_SLOT, one_second))
    jobs = [(0.0, 1, 5), (0.5, 1, 1)]
    patient = run_fleet_oracle(jobs, fleet, OracleClients(timeout_s=2.0, max_retries=1, retry_delay_s=3.0))
    assert (finish(patient), patient.timeouts) == ([5.0, 6.5], [0, 1])
    assert patient.requests[1].arrival_s == 0.5
    hasty = run_fleet_oracle(jobs, fleet, OracleClients(timeout_s=2.0))
    assert (finish(hasty), hasty.timeouts, hasty.abandoned) == ([5.0, None], [0, 1], [1])


def test_what_runs_is_cancelled_at_the_end_of_its_step() -> None:
    # Chunks of 4: at 1.5 s the second runs, and ends with the token of the 8-token prompt, not of the 12-token one.
    fleet = OracleFleet(OraclePool(OracleLimits(1, 4, num_blocks=99), one_second))
    short = run_fleet_oracle([(0.0, 8, 1), (0.0, 1, 1)], fleet, OracleClients(timeout_s=1.5, max_retries=9))
    assert (finish(short)[0], short.timeouts[0]) == (2.0, 0)
    long = run_fleet_oracle([(0.0, 12, 1), (1.0, 1, 1)], fleet, OracleClients(timeout_s=1.5))
    assert (finish(long), long.abandoned) == ([None, 3.0], [0])
    assert began(long) == [(0.0, 0, (0,)), (1.0, 0, (0,)), (2.0, 0, (1,))]


def test_sessions_think_and_end_when_a_turn_is_given_up() -> None:
    fleet = OracleFleet(OraclePool(ONE_SLOT, one_second))
    jobs = [(0.0, 1, 2), (0.0, 1, 1), (0.0, 1, 1)]
    turns = OracleClients(network_s=0.5, follows=(-1, 0, 1), think_s=(0.0, 2.0, 3.0))
    result = run_fleet_oracle(jobs, fleet, turns)
    assert [request.arrival_s for request in result.requests] == [0.0, 4.5, 9.0]
    hasty = OracleClients(timeout_s=0.5, follows=(-1, 0, 1), think_s=(0.0,) * 3)
    assert run_fleet_oracle([(0.0, 65, 2), *jobs[1:]], fleet, hasty).abandoned == [0, 1, 2]


def test_a_closed_loop_waits_for_the_network() -> None:
    result = run_fleet_oracle([(0.0, 1, 2)] * 3, replicas(2), OracleClients(network_s=0.25), concurrency=2)
    assert [request.arrival_s for request in result.requests] == [0.0, 0.0, 2.25]


# ---------------------------------------------------------------- I, V


def test_disaggregation() -> None:
    # 10 bytes at 5 bytes/s and a latency of 0.5 s: 2.5 s each, one after the other. Request 2 has but one token.
    pool = OraclePool(ROOMY, one_second)
    link = OracleLink(bytes_per_s=5.0, latency_s=0.5, bytes_of=(10.0, 10.0, 10.0))
    result = run_fleet_oracle([(0.0, 4, 3), (0.0, 4, 2), (0.0, 4, 1)], OracleFleet(pool, prefill=pool, link=link))
    assert began(result) == [(0.0, 0, (0, 1, 2)), (3.5, 1, (0,)), (4.5, 1, (0,)), (6.0, 1, (1,))]
    assert [request.first_token_s for request in result.requests] == [1.0, 1.0, 1.0]
    assert finish(result) == [5.5, 7.0, 1.0]
    assert result.replica == {0: 1, 1: 1, 2: 0}


def test_each_pool_scales_on_its_own() -> None:
    # Prefill: three requests at 0 s, one a second; check 1 (after the first) wants 2, and replica 1 is up at 1.5 s, too
    # late for what waits at replica 0. Decode: from zero, the first cache (1 s) starts replica 2, up at 3 s.
    pool = OraclePool(ONE_SLOT, one_second)
    first = OracleAutoscaler(target=1, max_replicas=2, interval_s=1.0, down_delay_s=9.0, cold_start_s=0.5)
    last = OracleAutoscaler(target=9, max_replicas=2, min_replicas=0, interval_s=5.0, down_delay_s=9.0, cold_start_s=2)
    link = OracleLink(math.inf, 0.0, (1.0,) * 4)
    fleet = OracleFleet(pool, OracleRouter("least-outstanding"), last, (), pool, link, first)
    result = run_fleet_oracle([(0.0, 1, 2), (0.0, 1, 2), (0.0, 1, 2), (1.5, 1, 1)], fleet)
    assert result.events == [(1.0, 1, "starting"), (1.0, 2, "starting"), (1.5, 1, "up"), (3.0, 2, "up")]
    assert [request.first_token_s for request in result.requests] == [1.0, 2.0, 3.0, 2.5]
    assert finish(result) == [4.0, 5.0, 6.0, 2.5]


def test_free_prefill_and_link_are_decode_alone() -> None:
    limits = OracleLimits(3, 16, num_blocks=6, block_size=4)
    jobs = [OracleJob(0.3 * index, 1 + 5 * index % 11, 2 + 7 * index % 9, prefilled=True) for index in range(20)]
    free = OraclePool(OracleLimits(99, 999, num_blocks=999), lambda _: 0.0, replicas=2)
    link = OracleLink(math.inf, 0.0, (1.0,) * 20)
    fleet = OracleFleet(OraclePool(limits, one_second), prefill=free, link=link)
    decoded = [each.step for each in run_fleet_oracle(jobs, fleet).steps if each.replica == 2]
    assert decoded == run_oracle(jobs, limits, one_second).steps


def test_a_pipeline_of_two_stages() -> None:
    # A step of 2 s is 1 s in each stage; two requests, one to each half of the copy.
    pool = OraclePool(OracleLimits(2, 64, num_blocks=9), lambda _: 2.0, stages=2)
    result = run_fleet_oracle([(0.0, 1, 2), (0.0, 1, 2)], OracleFleet(pool))
    assert [(each.step.start_s, each.step.end_s) for each in result.steps] == [(0, 2), (0, 3), (2, 4), (3, 5)]
    assert finish(result) == [4.0, 5.0]


# ---------------------------------------------------------------- everything at once


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_with_failures_timeouts_and_autoscaling_together(seed: int) -> None:
    dice = random.Random(seed)
    limits = OracleLimits(3, 12, num_blocks=8, block_size=4, prefix_block_tokens=4, host_prefix_blocks=seed % 3)
    jobs = [
        OracleJob(dice.uniform(0, 60), dice.randint(1, 20), dice.randint(1, 9), ids=(dice.randint(0, 2),))
        for _ in range(60)
    ]
    scaler = OracleAutoscaler(target=3, max_replicas=4, interval_s=2.0, down_delay_s=4.0, cold_start_s=3.0)
    deaths = tuple(OracleFailure(dice.uniform(0, 60), dice.randint(0, 3), dice.uniform(1, 20)) for _ in range(6))
    fleet = OracleFleet(OraclePool(limits, one_second), OracleRouter("power-of-two"), scaler, deaths)
    clients = OracleClients(timeout_s=12.0, max_retries=2, retry_delay_s=1.0)
    result = run_fleet_oracle(sorted(jobs), fleet, clients)
    assert result.blocks_left == 0
    assert sum(result.retries) > 0
    assert sum(result.timeouts) > 0
    assert {state for _, _, state in result.events} == {"starting", "up", "draining", "off", "failed"}
    for request in result.requests:
        assert (request.finished_s is None) == (request.index in result.abandoned)
        if request.finished_s is None:
            continue
        assert request.arrival_s <= request.scheduled_s < request.first_token_s <= request.finished_s
        mine = [part for each in result.steps for part in each.step.scheduled if part[0] == request.index]
        if not (result.retries[request.index] or result.timeouts[request.index] or request.preemptions):
            assert sum(new for _, new, _ in mine) == request.final_tokens - request.hit_tokens
    for replica in range(4):
        steps = [each.step for each in result.steps if each.replica == replica]
        assert all(before.end_s <= after.start_s for before, after in pairwise(steps))
        assert all(1 <= step.blocks_held <= limits.num_blocks for step in steps)
