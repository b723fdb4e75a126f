"""Services as users and owners see them: sessions, network, thinking, hours and dollars; and `infercast fleet`."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.cost.service import Service
from simulator.deployment.deployment import deploy
from simulator.errors import InfercastError, WorkloadError
from simulator.hardware.prices import own_offer
from simulator.questions.service_question import cold_start
from simulator.simulation.autoscaler import Autoscaler, cold_start_s
from simulator.simulation.clients import Clients
from simulator.simulation.routers import Router
from simulator.simulation.sessions import Sessions
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import Fixed, Independent, Uniform
from simulator.workloads.workload import SharedPrefix, Workload
from tests.support.commands import answer

DEPLOYMENT = deploy("llama-3.1-8b", "h100-sxm")
LOAD = Workload(OpenLoop(5.0), Independent(Fixed(500), Fixed(50)), 60)


def test_the_network_and_no_streaming_are_added_by_the_client():
    service = Service(DEPLOYMENT, 2)
    plain = service.report(LOAD.requests())
    far = service.report(LOAD.requests(), Clients(network_s=0.2, streaming=False))
    assert far.metrics["e2el"]["mean"] == pytest.approx(plain.metrics["e2el"]["mean"] + 0.2)
    assert far.metrics["ttft"]["p95"] == far.metrics["e2el"]["p95"]
    assert "tpot" not in far.metrics


def test_each_answer_waits_for_its_own_prompt_whatever_was_given_up():
    requests = Workload(OpenLoop(200.0), Independent(Uniform(100, 8000), Fixed(50)), 60).requests()
    report = Service(DEPLOYMENT, 2).report(requests, Clients(timeout_s=1.0))
    run, overheads = report.run, DEPLOYMENT.engine.overheads
    assert 0 < len(run.abandoned) < 60
    outside_s = overheads.request_s + overheads.http_s + overheads.hop_s
    outside_s += overheads.prompt_token_s * requests.prompt_tokens[run.row]
    seen_s = run.first_token_s - run.requests.arrival_s + outside_s
    messages = (report.latencies_s["ttft"] - seen_s) / DEPLOYMENT.message_s
    assert messages == pytest.approx(messages.round()) and messages.min() > 0.9  # those of its step, its own included


def test_thinking_tokens_come_before_the_first_visible_one():
    requests = LOAD.requests()
    report = Service(DEPLOYMENT).report(requests, Clients(thinking_tokens=np.full(len(requests), 49)))
    # All tokens but the last are thoughts: the first visible one is the last.
    assert report.latencies_s["ttfv"] == pytest.approx(report.report.latencies_s["e2el"])
    assert report.metrics["ttfv"]["mean"] > report.metrics["ttft"]["mean"]


def test_steps_that_an_engine_gathers_prompts_for_are_waited_for_in_a_fleet_too():
    gathering = replace(DEPLOYMENT, engine=DEPLOYMENT.engine.model_copy(update={"gathered_steps": 5}))
    plain, gathered = (Service(each, 2).report(LOAD.requests()).metrics for each in (DEPLOYMENT, gathering))
    assert gathered["ttft"]["mean"] - plain["ttft"]["mean"] == pytest.approx(5 * plain["tpot"]["mean"])
    assert gathered["tpot"]["mean"] == plain["tpot"]["mean"]


def test_hours_and_dollars():
    report = Service(DEPLOYMENT, 3).report(LOAD.requests())
    assert report.replica_hours == pytest.approx(3 * report.run.closed_s / 3600)
    assert report.usd((own_offer("h100-sxm", 2.0),)) == pytest.approx(2.0 * report.replica_hours)
    assert report.served_share == 1.0
    times = np.array([0.0, report.run.closed_s / 2, report.run.closed_s + 1])
    assert report.up(times).tolist() == report.paid(times).tolist() == [3, 3, 0]
    assert report.outstanding(np.array([-1.0, report.run.closed_s])).tolist() == [0, 0]


def test_a_scaled_service_costs_no_more_than_a_full_one():
    scaler = Autoscaler(target=1, max_replicas=3, interval_s=2.0, cold_start_s=1.0)
    full, scaled = (Service(DEPLOYMENT, 3, autoscaler=each).report(LOAD.requests()) for each in (None, scaler))
    assert scaled.run.paid_s < full.run.paid_s
    assert scaled.changes[0]["state"] == "starting"


def test_cold_starts():
    assert cold_start_s(140e9, 2e9, 10.0) == 80.0
    # Llama-3.1-8B: 16.06 GB of bf16 weights at 1 GB/s, and 30 s.
    assert cold_start("", "1 GB/s", DEPLOYMENT) == pytest.approx(46.06, abs=0.01)


def test_sessions_carry_what_was_said_and_find_it_in_the_cache():
    asked, clients = Sessions(turns=5, think_s=2.0).requests(LOAD)
    assert len(asked) == 60
    assert asked.prompt_tokens[:5].tolist() == [500, 1050, 1600, 2150, 2700]
    first, count = asked.prefixes.first, asked.prefixes.count
    one, two = (asked.prefixes.ids[first[row] : first[row] + count[row]] for row in (0, 1))
    assert one.tolist() == two[: len(one)].tolist()
    assert not set(one.tolist()) & set(asked.prefixes.ids[first[5] : first[5] + count[5]].tolist())
    sticky, turns = (
        Service(DEPLOYMENT, 2, Router(name)).report(asked, clients) for name in ("prefix-affinity", "round-robin")
    )
    assert sticky.hit_rate > turns.hit_rate > 0
    # The turns after the first find all but the last, unfinished unit of what was said before.
    said = np.concatenate([[0], (asked.prompt_tokens + asked.output_tokens)[:-1]]) * (np.arange(60) % 5 > 0)
    whole = ((said - 1) // 64 * 64).clip(min=0)[sticky.run.row]
    assert (sticky.run.hit_tokens <= whole).all()
    assert sticky.run.hit_tokens.sum() == whole.sum()


def test_lengths_that_hold_the_history_stay_as_they_are():
    load = replace(LOAD, lengths=Independent(Uniform(100, 4000), Fixed(50)), shared=SharedPrefix(128))
    asked, clients = Sessions(turns=5, think_s=2.0, holds_history=True).requests(load)
    drawn = replace(load, shared=None, request_count=60).requests().prompt_tokens
    assert sorted(asked.prompt_tokens - 128) == sorted(drawn)
    assert (np.diff(asked.prompt_tokens.reshape(-1, 5)) >= 0).all()
    first, ids = asked.prefixes.first, asked.prefixes.ids
    assert len({tuple(ids[row : row + 2].tolist()) for row in first}) == 1  # of 64 tokens each
    assert len({ids[row + 2] for row in first}) == 12
    held = Service(DEPLOYMENT, 2, Router("prefix-affinity")).report(asked, clients)
    added = Service(DEPLOYMENT, 2, Router("prefix-affinity")).report(*Sessions(5, 2.0).requests(load))
    assert held.run.requests.prompt_tokens.sum() < added.run.requests.prompt_tokens.sum()
    assert held.hit_rate > 0.5


def test_sessions_that_cannot_be():
    with pytest.raises(WorkloadError, match="sessions of 0 turns"):
        Sessions(0, 1.0)
    with pytest.raises(WorkloadError, match="sessions in a closed loop"):
        Sessions(2, 1.0).requests(Workload(ClosedLoop(3), LOAD.lengths))
    with pytest.raises(InfercastError, match="2 of 2 replicas for prefill"):
        Service(DEPLOYMENT, 2, prefill_replicas=2)


BASE = ("fleet", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--isl", "500", "--osl", "50")


def test_the_queue_of_a_fleet_grows_by_the_asked_rate_less_the_served_one():
    [row] = fleet("--rate", "400", "--num-prompts", "2000")["fleets"]
    assert row["overloaded"]
    assert row["queue_growth_per_s"] == pytest.approx(400 - row["request_throughput"])
    load = Workload(OpenLoop(400.0), Independent(Fixed(1000), Fixed(50)), 300)
    report = Service(deploy("llama-3.2-1b", "l4"), replicas=2).report(load.requests()).report
    assert report.queue_growth_per_s == pytest.approx(400 - report.requests_per_s)


@pytest.mark.parametrize("load", [("--rate", "5"), ("--max-concurrency", "4", "--osl", "uniform:20:200")])
def test_a_fleet_of_constant_replicas_is_counted_as_simulate_counts_it(load):
    """Without warm-up and drain, with a mean over as many draws; so two ways to ask have one answer."""
    options = (*load, "--replicas", "2", "--router", "round-robin", "--num-prompts", "300", "--slo", "ttft:50ms")
    ours = fleet(*options)["fleets"][0]
    theirs = answer("simulate", *BASE[1:], *options)["simulations"][0]
    same = ("output_throughput", "p95_ttft_ms", "p95_tpot_ms", "p95_ttft_ms_high", "slo_attainment", "warm_up_requests")
    assert {key: ours[key] for key in same} == pytest.approx({key: theirs[key] for key in same})


def test_a_fleet_that_changes_is_counted_whole_and_drawn_once():
    changing = fleet("--rate", "5", "--num-prompts", "100", "--fail", "0@5s:5s")["fleets"][0]
    assert (changing["warm_up_requests"], changing["completed"]) == (0, 100)


def test_a_fleet_s_first_screen_has_one_bill_and_its_details_have_the_others():
    arguments = [*BASE, "--rate", "5", "--num-prompts", "50"]
    short, whole = (CliRunner().invoke(build(each), each).stdout for each in (arguments, [*arguments, "--details"]))
    assert "This run costs $" in short
    assert "reserved" not in short
    assert "reserved" in whole


@pytest.mark.slow
def test_the_command(tmp_path):
    options = ("--rate", "4", "--duration", "2min", "--rate-curve", "sine:0.5", "--autoscale", "concurrency:4")
    row = fleet(*options, "--fail", "0@30s:10s", "--plot", str(tmp_path / "day.png"))["fleets"][0]
    assert row["completed"] + row["failed"] == row["num_prompts"]
    assert row["usd_on-demand"] > 0
    assert row["replica_hours"] * 3600 <= 2 * row["duration"] * 1.1
    assert (tmp_path / "day.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--rate", "1", "--router", "magic"), "--router magic: it is not known"),
        (("--rate", "1", "--autoscale", "load"), "it is not METRIC:TARGET"),
        (("--rate", "1", "--autoscale", "load:2"), "--autoscale load:2: it is not a known metric"),
        (("--rate", "1", "--fail", "0"), "it is not REPLICA@TIME"),
        (("--rate", "1", "--fail", "7@1s"), "a failure of replica 7: there are 2"),
        (("--rate", "1", "--disaggregate", "0:1"), "it is not two numbers of replicas above 0"),
        (("--max-concurrency", "1", "--duration", "1h"), "it shapes a rate"),
        (("--rate", "1", "--rate-curve", "sine:x"), "its swing is not a share"),
        (("--rate", "1", "--min-replicas", "0"), "--min-replicas without --autoscale: it would change nothing"),
        (("--rate", "1", "--max-retries", "3"), "--max-retries without --timeout: it would change nothing"),
        (("--rate", "1", "--disaggregate", "1:1", "--replicas", "4"), "its pools say how many replicas there are"),
        (("--rate", "1", "--duration", "1h", "--num-prompts", "5"), "both say when the run ends"),
        (("--rate", "1", "--network", "-5"), "--network -5: a quantity here is finite and not negative"),
        (("--rate", "1", "--network", "fast"), "--network fast: it is not a finite, non-negative number"),
    ],
)
def test_mistakes_are_three_parts(options, told):
    arguments = [*BASE, *options]
    error = CliRunner().invoke(build(arguments), arguments).exception
    assert isinstance(error, InfercastError)
    assert told in str(error)


def fleet(*options: str):
    arguments = [*BASE, *options, "--format", "json"]
    return json.loads(CliRunner().invoke(build(arguments), arguments, catch_exceptions=False).stdout)


def test_what_a_fleet_rests_on_names_its_own_guesses():
    def guessed(*options: str) -> set[str]:
        used = fleet("--rate", "5", "--num-prompts", "50", *options)["rests_on"]
        return {row["figure"] for row in used if row["profile"] == "fleet"}

    assert guessed() == set()
    assert guessed("--autoscale", "concurrency:4") == {"start_s", "load_rate"}
    assert guessed("--autoscale", "concurrency:4", "--cold-start", "1min") == set()
    assert guessed("--disaggregate", "1:1", "--link-bandwidth", "9 GB/s") == {"link_latency_s"}
    assert guessed("--router", "prefix-affinity") == {"affinity_slack"}


@pytest.mark.slow
def test_percentiles_of_a_queue_that_grows_are_not_told():
    def told(*options: str) -> tuple[bool, bool, bool]:
        row = fleet("--num-prompts", "2000", *options)["fleets"][0]
        return tuple(row[f"p95_{name}_ms"] is not None for name in ("ttft", "tpot", "e2el"))

    assert told("--rate", "20") == (True, True, True)
    assert told("--rate", "300", "--max-ongoing-requests", "8") == (False, True, False)  # they wait at the router
    assert told("--rate", "300", "--disaggregate", "1:3") == (False, True, False)  # one copy cannot prefill so much
    assert told("--rate", "200", "--disaggregate", "3:1", "--osl", "500") == (True, False, False)  # nor one decode it
    assert told("--rate", "300", "--max-ongoing-requests", "8", "--timeout", "1s") == (True, True, True)  # they leave


def test_those_who_give_up_are_known_by_when_they_came():
    patient = Clients(timeout_s=0.05)
    run = Service(DEPLOYMENT, 1, Router(max_ongoing_requests=1)).report(LOAD.requests(), patient).run
    assert 0 < len(run.abandoned) < 60
    assert run.abandoned_s.tolist() == LOAD.requests().arrival_s[run.abandoned].tolist()
