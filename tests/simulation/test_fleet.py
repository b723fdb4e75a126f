"""Several engines behind a router: against the single loop, timetables by hand, queueing theory, conservation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deployment.deployment import deploy
from simulator.errors import InfercastError, WorkloadError
from simulator.models.layout import Layout
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, PROMPTS_FIRST, STATIC, SchedulerLimits
from simulator.simulation.autoscaler import Autoscaler, Failure
from simulator.simulation.clients import Clients
from simulator.simulation.engine_loop import simulate
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.fleet_state import DRAINING, FAILED, OFF, STARTING, UP
from simulator.simulation.routers import ROUTERS, Router
from simulator.simulation.scheduler_limits import of_stage, slowest_stage
from simulator.workloads.workload import Requests
from tests.support.hand_made import SECONDS, TABLE, requests_of

LIMITS = SchedulerLimits(
    policy=CONTINUOUS,
    max_num_seqs=4,
    max_num_batched_tokens=32,
    num_blocks=24,
    block_size=4,
    admit_full_prompt=True,
)
ALONE = LIMITS._replace(max_num_seqs=1, max_num_batched_tokens=4095, num_blocks=2000)
COLUMNS = ("scheduled_s", "first_token_s", "finished_s", "stalled_s", "preemptions")


def slow(replicas: int = 1, **changes: object) -> Fleet:
    """Servers that take a second per token."""
    return Fleet(Pool(ALONE, SECONDS, replicas), **changes)  # type: ignore[arg-type]


def changes(run: FleetRun) -> list[tuple[float, int, int]]:
    return [(float(each.time_s), int(each.replica), int(each.state)) for each in run.events]


rows = st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=25)


# ---------------------------------------------------------------- one replica


@settings(max_examples=50, deadline=None)
@given(
    rows=rows,
    router=st.sampled_from(list(ROUTERS)),
    policy=st.sampled_from([CONTINUOUS, STATIC, PROMPTS_FIRST]),
    late=st.booleans(),
    concurrency=st.sampled_from([0, 0, 1, 3]),
)
def test_one_replica_is_the_single_loop_to_the_bit(rows, router, policy, late, concurrency):
    limits = LIMITS._replace(policy=policy, async_scheduling=late and policy != STATIC)
    asked = requests_of([(0.0 if concurrency else at, *rest) for at, *rest in sorted(rows)], concurrency)
    one, fleet = simulate(limits, TABLE, asked), simulate_fleet(Fleet(Pool(limits, TABLE), Router(router)), asked)
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(fleet, name))
    assert np.array_equal(one.requests.arrival_s, fleet.requests.arrival_s)
    for name in one.steps.dtype.names or ():
        assert np.array_equal(one.steps[name], fleet.steps[name]), name
    assert fleet.busy_s == one.busy_s
    assert fleet.end_s == one.end_s


# ---------------------------------------------------------------- routers


@pytest.mark.parametrize("router", ROUTERS)
def test_twins_get_half_each(router):
    """Two replicas; equal requests, all at once."""
    run = simulate_fleet(Fleet(Pool(LIMITS, TABLE, 2), Router(router)), requests_of([(0.0, 8, 4)] * 40))
    if router == "power-of-two":  # of two replicas it sees both
        assert abs(int(run.replica.sum()) - 20) <= 1
    else:
        assert run.replica.sum() == 20


def test_the_load_decides_where_a_request_goes():
    """A long request at replica 0; then short ones: round robin goes there all the same."""
    asked = requests_of([(0.0, 2, 50), (1.0, 1, 1), (3.0, 1, 1), (5.0, 1, 1)])
    assert simulate_fleet(slow(2), asked).replica.tolist() == [0, 1, 0, 1]
    for name in ("least-outstanding", "least-cache", "power-of-two"):
        assert simulate_fleet(slow(2, router=Router(name)), asked).replica.tolist() == [0, 1, 1, 1], name


def test_a_full_replica_lets_requests_wait_at_the_router():
    """Two servers, one request each: the third goes to the one that is free first."""
    asked = requests_of([(0.0, 9, 1), (0.0, 2, 1), (0.0, 3, 1), (0.0, 1, 1)])
    run = simulate_fleet(slow(2, router=Router(max_ongoing_requests=1)), asked)
    assert run.replica.tolist() == [0, 1, 1, 1]
    assert run.finished_s.tolist() == [9, 2, 5, 6]


def erlang_c(servers: int, load: float) -> float:
    """The probability of waiting in M/M/c: Erlang's C formula (Kleinrock, Queueing Systems I, 3.40)."""
    offered = servers * load
    below = sum(offered**k / math.factorial(k) for k in range(servers))
    full = offered**servers / math.factorial(servers) / (1 - load)
    return full / (below + full)


def mean_waits(servers: int, load: float, fleet: Fleet, service: str) -> np.ndarray:
    """Mean waits of independent runs in units of the mean service, without the first tenth."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        prompts = np.ceil(rng.exponential(1000, 20_000)) if service == "M" else np.full(20_000, 1000)
        arrival_s = np.cumsum(rng.exponential(1000 / servers / load, 20_000))
        run = simulate_fleet(fleet, Requests(arrival_s, np.minimum(prompts, 100_000), np.ones(20_000)))
        found.append((run.scheduled_s - run.requests.arrival_s)[2000:].mean() / 1000)
    return np.array(found)


def servers(count: int, router: Router) -> Fleet:
    table = StepTable(token_s=np.arange(100_001.0), logit_s=np.zeros(3), slopes=np.zeros(5))
    return Fleet(Pool(ALONE._replace(max_num_batched_tokens=100_000, num_blocks=30_000), table, count), router)


@pytest.mark.parametrize(("count", "load"), [(2, 0.8), (4, 0.8), pytest.param(8, 0.9, marks=pytest.mark.slow)])
def test_m_m_c(count, load):
    """Single-slot replicas and requests that wait at the router are M/M/c: W = C s / (c (1 - rho))."""
    waits = mean_waits(count, load, servers(count, Router("least-outstanding", max_ongoing_requests=1)), "M")
    theory = erlang_c(count, load) / (count * (1 - load))
    error = waits.std(ddof=1) / math.sqrt(len(waits))
    assert abs(waits.mean() - theory) < 3.3 * error < 0.15 * theory


def test_m_d_2_by_round_robin():
    """With equal services, turn by turn is first come, first served: M/D/2, W = 0.1767 s at a load of 0.5.

    W = s (sum over k of Erlang-like terms), tabulated by Hillier and Yu (1981); Cosmetatos' approximation of it is
    W(M/M/2) / 2 x (1 + (1 - rho)(c - 1)(sqrt(4 + 5 c) - 2) / (16 rho c)).
    """
    load, count = 0.5, 2
    waits = mean_waits(count, load, servers(count, Router()), "D")
    markov = erlang_c(count, load) / (count * (1 - load))
    theory = markov / 2 * (1 + (1 - load) * (count - 1) * (math.sqrt(4 + 5 * count) - 2) / (16 * load * count))
    assert theory == pytest.approx(0.1767, rel=0.01)
    error = waits.std(ddof=1) / math.sqrt(len(waits))
    assert abs(waits.mean() - 0.1767) < 3.3 * error < 0.15 * theory


@pytest.mark.slow
def test_sharing_a_queue_beats_luck():
    """Waits fall from each replica alone (round robin) to the shorter of two to the shortest to one queue for all."""
    routers = (Router(), Router("power-of-two"), Router("least-outstanding"), Router(max_ongoing_requests=1))
    waits = [mean_waits(8, 0.9, servers(8, router), "M").mean() for router in routers]
    assert waits == sorted(waits, reverse=True)


# ---------------------------------------------------------------- failures


def test_a_replica_dies_by_hand():
    """Two servers. Replica 0 dies at 3 with request 0 (1 of 2 outputs done) running and request 2 waiting.

    They go to replica 1, behind request 1 (until 6): request 0 from 6 to 6 + 2 + 1, request 2 from 9 to 10. Replica 0
    is up again at 8: request 3, which comes at 8.5, runs there at once.
    """
    asked = requests_of([(0.0, 2, 2), (0.0, 6, 1), (1.0, 1, 1), (8.5, 1, 1)])
    # Request 0 takes its first token at 2 and would end at 3, so it dies half-way.
    run = simulate_fleet(slow(2, failures=(Failure(2.5, 0, 5.5),)), asked)
    assert run.finished_s.tolist() == [9, 6, 10, 9.5]
    assert run.first_token_s.tolist() == [8, 6, 10, 9.5]
    assert run.scheduled_s.tolist() == [6, 0, 9, 8.5]
    assert run.replica.tolist() == [1, 1, 1, 0]
    assert run.retries.tolist() == [1, 0, 1, 0]
    assert changes(run)[4:] == [(2.5, 0, FAILED), (8.0, 0, UP)]
    lost = run.steps[(run.steps.replica == 0) & (run.steps.start_s < 8)]
    assert lost.seconds.tolist() == [2.0]  # the decode step under way at 2.5 is not there


def test_requests_wait_at_the_router_while_nobody_is_up():
    run = simulate_fleet(slow(failures=(Failure(1.0, 0, 9.0),)), requests_of([(0.0, 3, 1), (2.0, 1, 1)]))
    assert run.finished_s.tolist() == [13, 14]


@pytest.mark.parametrize("scaler", [None, Autoscaler(target=1, max_replicas=1, interval_s=10)])
def test_nobody_is_ever_up_again(scaler):
    with pytest.raises(WorkloadError, match=r"2 requests of 2: no replica comes up again to serve them\. Repair"):
        simulate_fleet(slow(autoscaler=scaler, failures=(Failure(1.0, 0),)), requests_of([(0.0, 3, 1), (2.0, 1, 1)]))


# ---------------------------------------------------------------- autoscaling


def test_an_autoscaler_by_hand():
    """Up to 3 servers, 1 at first; 2 outstanding each; a look every 10 s, starts of 5 s, 20 s of wanting fewer.

    Six requests of 8 s at 0 to 5. At 10: one has finished at 8, 5 outstanding, wanted 3: 1 and 2 start and are up at
    15, too late for those that were routed. At 20, 30, 40: 4, 3, 1 outstanding (ends at 16, 24, 32, 40, 48), wanted 2
    at 20 and 30, 1 at 40. Below since 20, and 2 wanted at most since, so at 40 one drains: 2, empty, off at once.
    """
    asked = requests_of([(float(at), 8, 1) for at in range(6)])
    scaler = Autoscaler(target=2, max_replicas=3, interval_s=10, cold_start_s=5, down_delay_s=20)
    run = simulate_fleet(slow(autoscaler=scaler, router=Router("least-outstanding")), asked)
    assert run.finished_s.tolist() == [8, 16, 24, 32, 40, 48]
    assert changes(run) == [
        (0, 0, STARTING),
        (0, 0, UP),
        (10, 1, STARTING),
        (10, 2, STARTING),
        (15, 1, UP),
        (15, 2, UP),
        (40, 2, DRAINING),
        (40, 2, OFF),
    ]
    assert run.paid_s == 48 + 38 + 30
    assert run.intervals(UP, DRAINING) == [(2, 15, 40), (0, 0, 48), (1, 15, 48)]


def test_scale_to_zero_by_hand():
    """A request starts replica 0, up 5 s later; at 20 nothing is left and it goes; the next one starts it anew."""
    scaler = Autoscaler(target=1, max_replicas=1, min_replicas=0, interval_s=10, cold_start_s=5, down_delay_s=0)
    run = simulate_fleet(slow(autoscaler=scaler), requests_of([(1.0, 8, 1), (33.0, 2, 1)]))
    assert run.finished_s.tolist() == [14, 40]
    assert changes(run) == [
        (1, 0, STARTING),
        (6, 0, UP),
        (20, 0, DRAINING),
        (20, 0, OFF),
        (33, 0, STARTING),
        (38, 0, UP),
        (40, 0, DRAINING),
        (40, 0, OFF),
    ]
    assert run.paid_s == 19 + 7


def test_a_draining_replica_finishes_what_it_has():
    """Two servers for a burst; at 20 one request is left, on replica 1, which drains and is off at its end, 30."""
    scaler = Autoscaler(target=1, max_replicas=2, min_replicas=1, interval_s=10, cold_start_s=0, down_delay_s=0)
    asked = requests_of([(0.0, 11, 1), (9.0, 1, 1), (10.5, 19, 1), (21.0, 1, 1)])
    run = simulate_fleet(slow(autoscaler=scaler, router=Router("least-outstanding")), asked)
    assert run.replica.tolist() == [0, 0, 1, 0]
    assert changes(run)[2:] == [(10, 1, STARTING), (10, 1, UP), (20, 1, DRAINING), (29.5, 1, OFF)]


def test_waiting_requests_are_another_metric():
    """One runs, three wait: 'queue' with a target of 3 wants one server, 'concurrency' two."""
    asked = requests_of([(0.0, 30, 1)] + [(1.0, 1, 1)] * 3)
    counts = []
    for metric in ("queue", "concurrency"):
        scaler = Autoscaler(target=3, max_replicas=4, metric=metric, interval_s=10, cold_start_s=1)
        counts.append(len({each.replica for each in simulate_fleet(slow(autoscaler=scaler), asked).events}))
    assert counts == [1, 2]


# ---------------------------------------------------------------- clients


def test_a_patient_client_is_nobody():
    asked = requests_of([(0.1 * index, 8, 4) for index in range(30)])
    plain, patient = (
        simulate_fleet(Fleet(Pool(LIMITS, TABLE, 2)), asked, clients)
        for clients in (None, Clients(timeout_s=1e6, max_retries=3))
    )
    assert np.array_equal(plain.finished_s, patient.finished_s)


def test_timeouts_by_hand():
    """One server, 4 s of patience, one retry 3 s later.

    Request 0 runs until 5: overdue at 4, but its step produces the token. Request 1 (sent at 1) waits, is cancelled at
    5, when the step of 5 ends and request 2 begins; sent again at 8, it is overdue at 12 while request 2 runs until 13.
    Then it is abandoned.
    """
    asked = requests_of([(0.0, 5, 1), (1.0, 2, 1), (2.0, 8, 1)])
    run = simulate_fleet(slow(), asked, Clients(timeout_s=4.0, max_retries=1, retry_delay_s=3.0))
    # Request 2 is sent at 2; at 5, request 1 still stands before it (time-outs come after the steps, before the next).
    assert run.row.tolist() == [0, 2]
    assert run.finished_s.tolist() == [5, 13]
    assert run.timeouts.tolist() == [0, 0]
    assert run.abandoned.tolist() == [1]


def test_a_prompt_under_way_is_cancelled_at_the_end_of_its_step():
    """Ten tokens per step of 10 s. Request 0 (25 tokens) would have its token at 25; overdue at 12, it goes at 20."""
    limits = ALONE._replace(max_num_batched_tokens=10)
    fleet = Fleet(Pool(limits, SECONDS))
    run = simulate_fleet(fleet, requests_of([(0.0, 25, 1), (15.0, 2, 1)]), Clients(timeout_s=12.0))
    assert run.row.tolist() == [1]
    assert run.finished_s.tolist() == [22]
    assert run.steps.blocks.tolist() == [3, 5, 1]


def test_a_session_by_hand():
    """Three turns: think 5 s, network 1 s. And a second session between."""
    asked = requests_of([(0.0, 2, 1), (0.0, 1, 1), (0.0, 3, 1), (20.0, 1, 1)])
    clients = Clients(network_s=1.0, follows=np.array([-1, 0, 1, -1]), think_s=np.array([0.0, 5.0, 10.0, 0.0]))
    run = simulate_fleet(slow(), asked, clients)
    # 0 to 2; at 2 + 6 = 8 to 9; at 9 + 11 = 20, behind request 3? No: (20, 2) comes before (20, 3).
    assert run.requests.arrival_s.tolist() == [0, 8, 20, 20]
    assert run.row.tolist() == [0, 1, 2, 3]
    assert run.finished_s.tolist() == [2, 9, 23, 24]


def test_a_turn_waits_for_the_engines_time_per_request_as_a_closed_loop_does():
    pool = Pool(ALONE._replace(turnaround_s=4.0), SECONDS)
    turns = Clients(network_s=1.0, follows=np.array([-1, 0]), think_s=np.array([0.0, 5.0]))
    run = simulate_fleet(Fleet(pool), requests_of([(0.0, 2, 1), (0.0, 1, 1)]), turns)
    assert run.requests.arrival_s.tolist() == [0, 2 + 1 + 4 + 5]
    run = simulate_fleet(Fleet(pool), requests_of([(0.0, 2, 1)] * 2, concurrency=1), Clients(network_s=1.0))
    assert run.requests.arrival_s.tolist() == [0, 2 + 1 + 4]


def test_an_abandoned_turn_ends_its_session():
    asked = requests_of([(0.0, 9, 1), (1.0, 1, 1), (1.0, 1, 1), (1.0, 1, 1)])
    run = simulate_fleet(slow(), asked, Clients(timeout_s=3.0, follows=np.array([-1, -1, 1, 2])))
    assert run.row.tolist() == [0]
    assert run.abandoned.tolist() == [1, 2, 3]


def test_a_closed_loop_waits_for_the_network():
    run = simulate_fleet(slow(), requests_of([(0.0, 2, 1)] * 3, concurrency=1), Clients(network_s=1.0))
    assert run.requests.arrival_s.tolist() == [0, 3, 6]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"timeout_s": 0.0}, "timeout_s 0: it must be above 0 seconds"),
        ({"network_s": -1.0}, "network_s -1: it must be finite"),
        ({"max_retries": -1}, "max_retries -1: it must be 0 or more"),
        ({"follows": np.array([-1, 1])}, "follows: each turn must follow an earlier row"),
        ({"think_s": np.zeros(3)}, "think_s of 3 rows for 2 requests"),
        ({"thinking_tokens": np.array([1, 5])}, "thinking_tokens: they are output tokens"),
    ],
)
def test_clients_that_cannot_be(changed, message):
    with pytest.raises(WorkloadError, match=message):
        simulate_fleet(slow(), requests_of([(0.0, 1, 2), (0.0, 1, 2)]), Clients(**changed))


# ---------------------------------------------------------------- pipelines


def test_a_pipeline_by_hand():
    """Two stages; requests of 4 s, 2 s in each stage. Two batches are in flight: 0-2-4, 2-4-6, then 4-6-8, 6-8-10."""
    fleet = Fleet(Pool(ALONE._replace(max_num_seqs=2), SECONDS, stages=2))
    run = simulate_fleet(fleet, requests_of([(0.0, 4, 1)] * 4))
    assert run.finished_s.tolist() == [4, 6, 8, 10]
    assert run.scheduled_s.tolist() == [0, 0, 4, 6]
    assert run.busy_s / run.engines == 8  # of 10 seconds: 2 at each end one stage is empty


def test_batches_follow_each_other_as_fast_as_the_slowest_stage():
    """A stage of 2 s is busy for 3, so that the second batch leaves at 7, not 6; the first one is as fast as before."""
    pool = Pool(ALONE._replace(max_num_seqs=2), SECONDS, stages=2, slowest_stage=1.5)
    run = simulate_fleet(Fleet(pool), requests_of([(0.0, 4, 1)] * 2))
    assert run.finished_s.tolist() == [4, 7]


@pytest.mark.parametrize(("pp", "slowest"), [(1, 1.0), (2, 1.0), (4, 12 / 11.5), (8, 6 / 5.75)])
def test_layers_that_do_not_divide_make_some_stages_slower(pp, slowest):
    """GLM-4.5-Air has 46 layers."""
    deployment = deploy("glm-4.5-air", "h100-sxm", layout=Layout(pp=pp))
    assert slowest_stage(deployment, pp) == pytest.approx(slowest)


def test_engines_of_a_pipeline_share_the_blocks_that_are_kept_free_as_all_blocks():
    shared = of_stage(LIMITS._replace(num_blocks=90, watermark_blocks=9, least_free_blocks=30), 3)
    assert (shared.num_blocks, shared.watermark_blocks, shared.least_free_blocks) == (30, 3, 10)


def test_a_pipeline_alone_is_one_engine():
    """A single request passes all stages, and takes as long as on one engine."""
    asked = requests_of([(0.0, 8, 16)])
    one = simulate(LIMITS, TABLE, asked)
    run = simulate_fleet(Fleet(Pool(LIMITS, TABLE, stages=2)), asked)
    assert run.finished_s == pytest.approx(one.finished_s, rel=1e-12)


# ---------------------------------------------------------------- everything at once


@st.composite
def services(draw: st.DrawFn) -> tuple[Fleet, Requests, Clients]:
    asked = sorted(draw(rows))
    replicas, stages = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2]))
    scaler = None
    if draw(st.booleans()):
        scaler = Autoscaler(
            target=draw(st.integers(1, 4)),
            max_replicas=replicas,
            min_replicas=draw(st.integers(0, replicas)),
            metric=draw(st.sampled_from(["concurrency", "queue"])),
            interval_s=draw(st.sampled_from([0.01, 0.1])),
            cold_start_s=draw(st.sampled_from([0.0, 0.02])),
            down_delay_s=draw(st.sampled_from([0.0, 0.05])),
        )
    failure = st.builds(Failure, st.floats(0, 0.4), st.integers(0, replicas - 1), st.floats(0.001, 0.1))
    router = Router(draw(st.sampled_from(list(ROUTERS))), max_ongoing_requests=draw(st.sampled_from([0, 0, 1, 5])))
    limits = LIMITS._replace(num_blocks=LIMITS.num_blocks * stages, async_scheduling=draw(st.booleans()))
    fleet = Fleet(Pool(limits, TABLE, replicas, stages), router, scaler, tuple(draw(st.lists(failure, max_size=3))))
    follows = np.full(len(asked), -1)
    for row in range(1, len(asked)):
        follows[row] = draw(st.sampled_from([-1, -1, row - 1]))
    clients = Clients(
        timeout_s=draw(st.sampled_from([math.inf, 0.02, 0.1])),
        max_retries=draw(st.integers(0, 2)),
        retry_delay_s=draw(st.sampled_from([0.0, 0.01])),
        network_s=draw(st.sampled_from([0.0, 0.01])),
        follows=follows,
        think_s=np.full(len(asked), draw(st.sampled_from([0.0, 0.02]))),
    )
    return fleet, requests_of(asked), clients


def check_conservation(run: FleetRun, asked: Requests) -> None:
    """Each request ends once; tokens, blocks and times keep their bounds; replicas serve while they are up."""
    assert sorted([*run.row, *run.abandoned]) == list(range(len(asked)))
    assert (run.requests.prompt_tokens == asked.prompt_tokens[run.row]).all()
    assert (run.requests.output_tokens == asked.output_tokens[run.row]).all()
    assert (run.requests.arrival_s <= run.scheduled_s).all()
    assert (run.scheduled_s < run.first_token_s).all()
    assert (run.first_token_s <= run.finished_s).all()
    assert run.steps.blocks.max(initial=0) <= run.limits.num_blocks
    assert (np.diff(run.steps.start_s) >= 0).all()
    assert (np.diff(run.events.time_s) >= 0).all()
    produced = asked.output_tokens[run.row].sum()
    if not len(run.abandoned) and not run.timeouts.any() and not run.retries.any():
        computed = run.steps.prompt_tokens.sum() - asked.prompt_tokens.sum()  # of prompts again, after preemptions
        assert run.steps.decodes.sum() + len(asked) + run.preemptions.sum() >= produced
        assert computed >= 0
        if not run.preemptions.any():
            assert run.steps.decodes.sum() + len(asked) == produced
            assert computed == 0
    up = run.intervals(UP, DRAINING, OFF, FAILED)
    for row, replica in enumerate(run.replica):  # it was up when the request came to it, at the latest when scheduled
        assert any(who == replica and start <= run.scheduled_s[row] for who, start, _ in up)


@settings(max_examples=60, deadline=None)
@given(service=services())
def test_conservation_with_everything_on(service):
    fleet, asked, clients = service
    try:
        run = simulate_fleet(fleet, asked, clients)
    except WorkloadError as error:
        assert error.given.startswith("all ")  # every request timed out
        return
    check_conservation(run, asked)
    assert (run.events.time_s <= run.closed_s).all()
    assert run.busy_s <= run.paid_s * run.stages + 1e-9  # a batch in every stage
    again = simulate_fleet(fleet, asked, clients)
    assert np.array_equal(run.steps, again.steps)
    assert np.array_equal(run.events, again.events)


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Router("random"), "router 'random': it is not known"),
        (lambda: Router(workers=2), "router_workers 2 of round-robin: only least-connections has workers"),
        (lambda: Router("least-connections", workers=0), "router_workers 0: somebody must route"),
        (lambda: Pool(ALONE, SECONDS, 0), "replicas 0: it must be 1 or more"),
        (lambda: slow(2, failures=(Failure(1.0, 2),)), "a failure of replica 2: there are 2, counted from 0"),
        (lambda: Autoscaler(target=0, max_replicas=2), "target 0: it must be finite and above 0"),
        (lambda: Autoscaler(target=1, max_replicas=2, min_replicas=3), "3 to 2 replicas"),
        (lambda: Failure(-1.0, 0), "a failure of replica 0 at -1 s"),
        (lambda: slow(prefill=Pool(ALONE, SECONDS)), "a prefill pool without a link"),
    ],
)
def test_fleets_that_cannot_be(make, message):
    with pytest.raises(InfercastError, match=message):
        make()


def test_a_router_tells_its_workers_where_it_has_several():
    told = [Router("least-connections", workers=workers).describe() for workers in (1, 2)]
    assert told == ["least-connections", "least-connections of 2 workers"]


def test_pools_do_not_scale():
    with pytest.raises(InfercastError, match="an autoscaler of a prefill pool without such a pool"):
        slow(prefill_autoscaler=Autoscaler(1, 2))


def test_a_request_that_no_engine_holds():
    with pytest.raises(WorkloadError, match=r"49 tokens that the KV cache holds \(12 blocks\)"):
        simulate_fleet(Fleet(Pool(LIMITS, TABLE, stages=2)), requests_of([(0.0, 40, 20)]))
