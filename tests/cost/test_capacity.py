"""Plans: the capacity search finds the edge of the SLO, replicas carry the load, misfits are kept with their reason."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import simulator
from simulator import Scenario, Workload, compare, deploy, load_workload, own_offer, parse_slo
from simulator.cost.capacity import PROBE_REQUESTS, Answer, Capacity, Comparison, answer, capacity, ranked, what_breaks
from simulator.deployment.batches import Batch
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.models.model import load_model
from simulator.plots.cost_plots import plot_costs
from simulator.reports.overload import Overload
from simulator.workloads.arrivals import OpenLoop, RecordedArrivals
from simulator.workloads.lengths import Fixed, Independent
from tests.support.pictures import cut_off, overlaps

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
    outside_s = asked.deployment.engine.overheads.outside_steps_s(run.requests.prompt_tokens)
    assert outside_s.std() > 0
    seen_s = run.first_token_s - run.requests.arrival_s + outside_s
    messages = (report.latencies_s["ttft"] - seen_s[kept]) / asked.deployment.message_s
    assert messages == pytest.approx(messages.round()) and messages.min() > 0.9  # those of its step, its own included


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
    assert (
        " req/s per replica, without an SLO, of which 17% are asked; above it the queue"
        in answer(scenario(slo=parse_slo("")), 1.0).why
    )
    assert re.search(
        r"req/s per replica within the SLO, of which \d+% are asked; above it", answer(scenario(), 1.0).why
    )


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


def interval(key: str, low: float, high: float | None) -> dict[str, float | None]:
    return {f"{key}_low": low, f"{key}_high": high}


def test_a_picture_tells_deployments_apart_and_has_each_price_at_its_dot():
    answers = compare([scenario(), scenario(model="qwen2.5-7b"), scenario("l4")], 1.0).answers
    keys = [f"{at}usd_per_million_output_tokens" for at in ("", "at_capacity_")]
    ends = interval(keys[0], 0.2, 40.0) | interval(keys[1], 0.1, None) | interval("capacity_per_s", 0.5, 9.0)
    figure = plot_costs(answers, [{"interval": 0.8, **ends}] * 3)
    left, right = figure.axes
    named = [label.get_text() for label in left.get_yticklabels()]
    assert sorted(named) == ["l4 llama-3.1-8b", "l40s llama-3.1-8b", "l40s qwen2.5-7b"]
    bills = [[getattr(each, name) for each in answers] for name in ("at_load", "at_capacity")]
    prices = [[bill.usd_per_million_output_tokens for bill in some if bill] for some in bills]
    dots = [line for line in left.lines if line.get_markersize() == 7]
    assert [list(line.get_xdata()) for line in dots] == prices
    assert left.get_xscale() == "log"  # where the length of a bar says nothing
    assert not [*left.patches, *right.patches]
    assert [list(line.get_xdata()) for line in left.lines if line.get_marker() == "|"][:2] == [[0.2, 40.0]] * 2
    assert len([line for line in left.lines if line.get_marker() == ">"]) == len(prices[1])
    assert "cannot meet the SLO" in [text.get_text() for text in left.texts]
    assert not overlaps(figure)
    assert not cut_off(figure)


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


def test_the_search_counts_what_runs_in_all_stages_of_a_pipeline():
    """Ten times as many requests as run at once: 240 in two stages, 120 in each."""
    layout = default_layout(load_model("llama-3.2-1b"), pp=2)
    deployment = deploy("llama-3.2-1b", "l4", layout=layout, settings=Settings(max_num_seqs=240))
    found = capacity(Scenario(deployment, Workload(OpenLoop(1.0), Independent(Fixed(64), Fixed(8)))))
    assert len(found.report.run.requests) == 2_400 > PROBE_REQUESTS


class Given:
    """A scenario whose reports are given: it notes the loads, and keeps its SLO up to a rate."""

    def __init__(self, load: Workload, most_per_s: float = math.inf, max_num_seqs: int = 8) -> None:
        self.workload, self.most_per_s, self.loads, self.offers = load, most_per_s, [], ()
        self.deployment = SimpleNamespace(max_num_seqs=max_num_seqs)

    def report(self, load: Workload) -> SimpleNamespace:
        self.loads.append(load)
        steps = SimpleNamespace(running=np.array([3, 300]))
        run = SimpleNamespace(finished_s=np.arange(2000) * 0.5, steps=steps, at_once=lambda of: (0.0, int(of.max())))
        return SimpleNamespace(
            run=run, meets_slo=getattr(load.arrivals, "rate_per_s", 0.0) <= self.most_per_s, **BROKEN
        )


BROKEN = {"rejected_share": 0.0, "overload": Overload("requests", 1.0), "slo": parse_slo("ttft:1s")}
SHORT = Workload(OpenLoop(1.0), Independent(Fixed(8), Fixed(8)), 50)


def test_the_search_simulates_ten_times_what_runs_at_once_between_one_and_all_of_the_saturated_rate():
    """2,000 requests that finish every half a second, 300 at once: 2/s is searched from 0.02/s on, in ten halvings."""
    asked = Given(SHORT, most_per_s=1.25)
    found = capacity(asked)
    assert found.rate_per_s == pytest.approx(1.25, abs=2 / 2**10)
    assert {load.request_count for load in asked.loads[1:]} == {3000}
    assert [load.arrivals.rate_per_s for load in asked.loads[1:3]] == pytest.approx([0.02, 2.0])
    assert len(asked.loads) == 1 + 2 + 10


@pytest.mark.parametrize(("seqs", "count"), [(8, 2000), (1000, 4000)])
def test_the_saturated_rate_is_that_of_a_closed_loop_of_twice_the_sequences(seqs, count):
    asked = Given(SHORT, max_num_seqs=seqs)
    capacity(asked)
    assert (asked.loads[0].arrivals.concurrency, asked.loads[0].request_count) == (2 * seqs, count)


def test_a_trace_is_searched_with_the_requests_that_it_has():
    asked = Given(replace(SHORT, arrivals=RecordedArrivals("a trace", np.arange(50.0))), max_num_seqs=1000)
    capacity(asked)
    assert {load.request_count for load in asked.loads} == {50}


def test_what_breaks_by_hand():
    whole = {"run": SimpleNamespace(rejected=SimpleNamespace(in_words=lambda: "too long")), "slo": parse_slo("ttft:1s")}
    rejected = SimpleNamespace(rejected_share=0.2, **whole)
    assert rejected.slo.share > 0.8
    assert what_breaks(rejected) == "20.0% are rejected: too long"
    late = {"overload": None, "within": {"all": 0.9496, "ttft": 0.9496}, "worst_bound": "ttft"}
    slow = SimpleNamespace(rejected_share=0.0, **late, **whole)
    assert what_breaks(slow) == "only 94.9% keep every bound (5.0% miss TTFT <= 1000 ms)"


@pytest.mark.parametrize(("most_per_s", "replicas"), [(10.0, 1), (10 / 3, 3), (10 / 11, 11), (0.1, 0)])
def test_up_to_ten_replicas_more_are_tried_until_one_keeps_the_slo(most_per_s, replicas):
    found = answer(Given(SHORT, most_per_s), 10.0, Capacity(10.0, None, ""))
    assert (found.replicas, found.report.meets_slo) == (replicas, replicas > 0)


def test_an_answer_without_enough_replicas_says_so_and_is_ranked_last():
    """Prompts of the asked requests that no replica computes in time, where those of the search were."""
    kept = answer(scenario(), 1.0)
    slow = scenario(workload=replace(scenario().workload, lengths=Independent(Fixed(8000), Fixed(8)), request_count=50))
    found = answer(slow, 1.0, kept.capacity)
    assert (found.replicas, found.at_load, found.report.meets_slo) == (0, None, False)
    assert "no number up to 11 replicas keeps the SLO: only 0.0% keep every bound" in found.why
    assert ranked([found, kept]) == [kept, found]
