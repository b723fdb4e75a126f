"""Plans: the capacity search finds the edge of the SLO, replicas carry the load, misfits are kept with their reason."""

from dataclasses import replace

import pytest

import simulator
from simulator import Scenario, Workload, compare, deploy, load_workload, own_offer, parse_slo
from simulator.cost.capacity import PROBE_REQUESTS, Answer, Capacity, Comparison, answer, capacity
from simulator.deployment.batches import Batch
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.models.model import load_model
from simulator.plots.cost_plots import plot_costs
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent

CHAT = load_workload("chat")
SLO = parse_slo("ttft:500ms,tpot:50ms")


def scenario(hardware: str = "l40s", model: str = "llama-3.1-8b", **changes: object) -> Scenario:
    workload = Workload(CHAT.arrivals(2.0), CHAT.lengths, 2000, 0, "chat")
    return replace(Scenario(deploy(model, hardware), workload, SLO, (own_offer(hardware, 2.0),)), **changes)


def test_capacity_is_the_edge_of_the_slo():
    asked = scenario("h100-sxm")  # which a queue limits: where long prompts alone reach the bound, the edge is blurred
    found = capacity(asked)
    probe = replace(asked.workload, request_count=len(found.report.run.requests))
    assert found.report.meets_slo
    assert len(found.report.run.requests) >= 10 * found.report.run.steps.running.max() > PROBE_REQUESTS
    assert asked.report(probe.at_rate(found.rate_per_s * 0.98)).meets_slo
    assert not asked.report(probe.at_rate(found.rate_per_s * 1.02)).meets_slo


def test_latencies_hold_the_engines_time_for_each_prompt():
    asked = scenario("h100-sxm")
    report = asked.report(replace(asked.workload, request_count=200))
    run, kept = report.run, slice(report.skipped, None)
    outside_s = asked.deployment.engine.overheads.answer_s(run.requests.prompt_tokens)
    assert outside_s.std() > 0
    seen_s = run.first_token_s - run.requests.arrival_s + outside_s
    assert report.latencies_s["ttft"] == pytest.approx(seen_s[kept])


def test_frames_have_what_the_answer_says():
    """Three replicas for 5 requests/s, 2 of one, each on a device of $2 an hour; full, a replica serves 2 for $2."""
    asked = scenario()
    report = asked.report(replace(asked.workload, request_count=200))
    known = Capacity(2.0, report, "the queue grows")
    found = answer(asked, 5.0, known)
    alone, both = (each.to_frame().to_dict("records") for each in (known, found))
    p95_s = {f"p95_{name}_s": report.metrics[name]["p95"] for name in ("ttft", "tpot", "e2el")}
    assert alone == [{"rate_per_s": 2.0, **p95_s, "breaks": "the queue grows"}]
    assert both == Comparison([found], []).to_frame().to_dict("records")
    assert (both[0]["hardware"], both[0]["tp"], both[0]["replicas"]) == ("l40s", 1, 3)
    assert (both[0]["usd_per_hour"], both[0]["usd_per_month"]) == (6.0, 6.0 * 730)
    of_one = report.output_tokens / report.completed
    full, loaded = both[0]["usd_per_m_output_full"], both[0]["usd_per_m_output"]
    assert full == pytest.approx(2.0 / 3600 / (2 * of_one) * 1e6)
    assert loaded == pytest.approx(6.0 / 3600 / (5 * found.report.output_tokens / found.report.completed) * 1e6)


def test_no_power_is_told_without_a_tdp_or_a_replica():
    asked = scenario(offers=())
    report = asked.report(replace(asked.workload, request_count=50))
    found = Answer(asked, 5.0, Capacity(2.0, report, ""), 3, report)
    hardware = asked.deployment.hardware.model_copy(update={"tdp_w": None})
    unknown = replace(asked, deployment=replace(asked.deployment, hardware=hardware))
    assert found.watts > 0
    assert replace(found, scenario=unknown).watts is None is replace(found, replicas=0).watts


def test_a_tighter_slo_carries_no_more():
    loose, tight = (capacity(scenario(slo=parse_slo(text))).rate_per_s for text in ("ttft:2s", "ttft:400ms"))
    assert 0 < tight <= loose


def test_copies_carry_what_one_cannot():
    one = answer(scenario(), 1.0)
    rate = 3.5 * one.capacity.rate_per_s
    many = answer(scenario(), rate)
    assert one.replicas == 1
    assert many.replicas == 4
    assert many.report.meets_slo
    assert many.at_load.usd_per_hour == pytest.approx(8.0)
    tokens_per_s = rate * many.report.output_tokens / many.report.completed
    assert many.at_load.usd_per_million_output_tokens == pytest.approx(8.0 / (tokens_per_s * 3600) * 1e6)
    assert one.at_capacity.usd_per_million_output_tokens < one.at_load.usd_per_million_output_tokens


def test_an_impossible_slo_says_what_breaks():
    found = answer(scenario("l4"), 1.0)
    assert found.capacity.rate_per_s == 0
    assert found.at_load is None
    assert "miss TPOT <= 50 ms" in found.why


def test_without_an_slo_the_queue_is_the_limit():
    found = capacity(scenario(slo=parse_slo("")))
    assert found.rate_per_s > capacity(scenario()).rate_per_s
    assert "queue" in found.breaks


def test_compare_ranks_by_price_and_keeps_misfits():
    scenarios = [
        scenario("l4"),
        scenario("h100-sxm", offers=(own_offer("h100-sxm", 9.0),)),
        scenario("l40s", offers=(own_offer("l40s", 1.0),)),
        scenario("l4", model="llama-3.1-70b"),
    ]
    found = compare(scenarios, 1.0)
    assert [each.scenario.deployment.hardware.id for each in found.answers] == ["l40s", "h100-sxm", "l4"]
    assert "does not fit" in str(found.refused[0]) or "leave no cache" in str(found.refused[0])


@pytest.mark.parametrize("users", [64, 500])
def test_a_closed_loop_is_counted_whole(users):
    load = Workload(simulator.ClosedLoop(users), CHAT.lengths, 500)
    report = scenario().report(load)
    assert report.completed == 500
    assert report.output_tokens_per_s * report.run.end_s == pytest.approx(load.requests().output_tokens.sum())


def test_a_picture_tells_deployments_apart():
    answers = compare([scenario(), scenario(model="qwen2.5-7b")], 1.0).answers
    labels = {label.get_text() for label in plot_costs(answers).axes[0].get_yticklabels()}
    assert labels == {"l40s llama-3.1-8b", "l40s qwen2.5-7b"}


def test_the_public_face_is_complete():
    for name in simulator.__all__:
        assert getattr(simulator, name) is not None


def test_a_pipeline_of_two_stages_with_one_slot_works_on_one_batch():
    """llama.cpp sets one context aside by default: the other stage has none of its own to work on."""
    layout = default_layout(load_model("llama-2-13b"), pp=2, dtypes=("q4_K_M", ""))
    deployment = deploy("llama-2-13b", "rtx-4090", "llama.cpp", layout)
    load = Workload(OpenLoop(0.1), Independent(Fixed(128), Fixed(16)), 20)
    found = Scenario(deployment, load).report(load)
    alone = estimate(deployment, Batch(1, 128, 16)).expected
    assert found.metrics["tpot"]["median"] == pytest.approx(alone.tpot_s, rel=0.01)
