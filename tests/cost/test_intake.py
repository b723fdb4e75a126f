"""Requests and first tokens that an API server has at once wait for each other: docs/serving-rules.md, N and E."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import Deployment, deploy
from simulator.reports.report import Report
from simulator.simulation.routers import Router
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import Fixed, Independent, Uniform
from simulator.workloads.workload import Workload

VLLM = deploy("llama-3.1-8b", "h100-sxm", "vllm")
INTAKE_S = float(VLLM.overheads.intake_s)
LOOP = Scenario(VLLM, Workload(ClosedLoop(8), Independent(Fixed(100), Uniform(5, 40)), 40))


def changed(**fields: object) -> Deployment:
    return replace(VLLM, engine=VLLM.engine.model_copy(update=fields))


def without_intake() -> Deployment:
    return changed(overheads=VLLM.engine.overheads.model_copy(update={"intake_s": 0.0 * VLLM.overheads.intake_s}))


def waited_s(scenario: Scenario) -> tuple[Report, np.ndarray]:
    """The time that each request waits for others at the API server."""
    report = scenario.report(scenario.workload)
    alone = replace(scenario, deployment=without_intake()).report(scenario.workload)
    return report, report.latencies_s["ttft"] - alone.latencies_s["ttft"]


def test_each_waits_for_the_others_that_come_with_it():
    report, found = waited_s(LOOP)
    assert found[:8] == pytest.approx(7 * INTAKE_S)
    moments = report.run.requests.arrival_s
    others = [(moments == each).sum() - 1 for each in moments]
    assert found == pytest.approx(INTAKE_S * np.array(others))
    assert min(others[8:]) == 0  # outputs differ: most requests come alone


@pytest.mark.parametrize(("servers", "others"), [(1, 7), (3, 2), (8, 0), (9, 0)])
def test_api_servers_share_them(servers, others):
    report = replace(LOOP, deployment=changed(api_server_count=servers)).report(LOOP.workload)
    many = replace(LOOP, deployment=changed(api_server_count=1_000)).report(LOOP.workload)
    found = (report.request_s - many.request_s)[:8]
    assert found == pytest.approx(others * INTAKE_S + 8 * (VLLM.message_s / servers - VLLM.message_s / 1_000))


def test_an_open_loop_and_light_know_none():
    _, found = waited_s(replace(LOOP, workload=replace(LOOP.workload, arrivals=OpenLoop(5.0))))
    assert not found.any()
    light = replace(LOOP, deployment=replace(VLLM, light=True)).report(LOOP.workload)
    assert np.all(light.request_s == 0.0)


def test_replicas_of_a_fleet_take_in_what_each_is_sent():
    fleet = replace(LOOP, replicas=2, router=Router(), workload=replace(LOOP.workload, arrivals=ClosedLoop(6)))
    _, found = waited_s(fleet)
    assert found[:6] == pytest.approx(2 * INTAKE_S)


def test_api_servers_stream_at_the_same_time():
    assert changed(api_server_count=4).stream_s == pytest.approx(VLLM.stream_s / 4)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_first_token_waits_for_the_messages_of_all_others_of_its_step(replicas):
    """52 requests in flight, of prompts that take two steps; `stream_s` is in the run already."""
    router = Router() if replicas > 1 else None
    load = Workload(ClosedLoop(52), Independent(Fixed(300), Uniform(2, 9)), 80)
    one = replace(LOOP, workload=load, replicas=replicas, router=router)
    each_s = VLLM.overheads.message_s - VLLM.overheads.stream_s
    silent = VLLM.overheads.model_copy(update={"message_s": VLLM.overheads.stream_s})
    report = one.report(load)
    alone = replace(one, deployment=changed(overheads=silent)).report(load)
    waited = report.latencies_s["ttft"] - alone.latencies_s["ttft"]
    assert waited == pytest.approx(report.latencies_s["e2el"] - alone.latencies_s["e2el"])
    steps, first_s = report.run.steps, report.run.first_token_s
    where = getattr(report.run, "replica", np.zeros(len(first_s)))
    for wait_s, at_s, replica in zip(waited, first_s, where, strict=True):
        ended = (steps.start_s + steps.seconds <= at_s) & (getattr(steps, "replica", np.zeros(len(steps))) == replica)
        last = steps[ended][np.argmax((steps.start_s + steps.seconds)[ended])]
        assert wait_s == pytest.approx(each_s * (last.decodes + last.prompts))
    assert waited.min() >= each_s and waited.max() <= 52 * each_s * (1 + 1e-9)  # differences of floats


def test_a_message_of_several_tokens_and_what_is_not_streamed_wait_less():
    assert VLLM.message_s == pytest.approx(53e-6 - 9.7e-6)
    assert changed(stream_interval=5).message_s == pytest.approx(VLLM.message_s / 5)
    assert (VLLM.at_light.message_s, deploy("llama-3.1-8b", "h100-sxm", "sglang").message_s) == (0.0, 0.0)
