"""The highest rate within an SLO: bounds are kept, what is sent stays as asked, and when the search ends."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.cost.scenario import Scenario
from simulator.cost.slo_rate import (
    CLOSE_TO_BOUND,
    EVERYTHING_PER_S,
    MOST_OF_ASKED,
    TRIES,
    _steady_per_s,
    within_slo,
)
from simulator.errors import InfercastError
from simulator.questions.load_rows import load_row
from simulator.reports.report import Report
from simulator.reports.slo import Slo
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, Released
from simulator.workloads.lengths import Fixed, Independent, LogNormal
from simulator.workloads.workload import Workload
from tests.support.measured import asked_on, setup

LLAMA_ON_B200 = {
    **{"hardware": "B200 SXM", "devices": 1, "tp": 0, "model": "Llama-2-70b", "engine": "TensorRT 10.11"},
    **{"engine_version": "", "regime": "open_loop", "concurrency": 0, "input_tokens": 0.0, "num_prompts": 0},
}


@pytest.fixture(scope="module")
def served() -> Scenario:
    """One B200 that serves Llama-2-70b as NVIDIA's entries to MLPerf do, with short outputs; every request counts."""
    deployment = asked_on(setup(**LLAMA_ON_B200, client="mlperf", scenario="Server"))
    workload = Workload(OpenLoop(60.0), Independent(Fixed(300), Fixed(100)), 4_000)
    return Scenario(deployment, workload, Slo({"ttft": 2.0, "tpot": 0.08}, 0.99), whole_run=True)


def at_once(scenario: Scenario, count: int = 4_000) -> Report:
    return scenario.report(replace(scenario.workload, request_count=count, arrivals=ClosedLoop(count)))


def p99_s(report: Report, name: str) -> float:
    return float(np.nanquantile(report.latencies_s[name], 0.99))


def test_every_bound_is_kept_and_tighter_ones_are_slower(served):
    bounds = (0.05, 0.08, 0.15)
    found = [within_slo(replace(served, slo=Slo({"ttft": 2.0, "tpot": tpot_s}, 0.99))) for tpot_s in bounds]
    for each, tpot_s in zip(found, bounds, strict=True):
        assert p99_s(each, "ttft") <= 2.0
        assert p99_s(each, "tpot") <= tpot_s
    assert found[0].of_asked < found[1].of_asked <= found[2].of_asked
    assert all(each.is_limited for each in found)


def test_the_share_of_the_slo_is_the_quantile_that_keeps_it(served):
    """Half of the requests keep what 99 % keep at a lower rate only. The bound is one that binds below capacity."""
    bound_s = 0.04
    half, most = (within_slo(replace(served, slo=Slo({"tpot": bound_s}, share))) for share in (0.5, 0.99))
    assert CLOSE_TO_BOUND * bound_s <= np.nanquantile(half.latencies_s["tpot"], 0.5) <= bound_s < p99_s(half, "tpot")
    assert half.of_asked > most.of_asked


def test_the_rate_that_is_asked_for_does_not_matter_where_it_is_near(served):
    near = [within_slo(replace(served, workload=served.workload.at_rate(rate))) for rate in (60.0, 63.0)]
    assert p99_s(near[0], "tpot") == pytest.approx(p99_s(near[1], "tpot"), rel=0.15)
    slow = within_slo(replace(served, workload=served.workload.at_rate(10.0)))
    assert slow.of_asked == pytest.approx(MOST_OF_ASKED)
    assert p99_s(slow, "tpot") < 0.06


def test_a_run_beyond_what_is_asked_tells_its_own_throughput_and_that_of_the_asked_rate(served):
    asked = replace(served, workload=served.workload.at_rate(10.0))
    slow = within_slo(asked)
    assert slow.requests_per_s == pytest.approx(11.5, rel=0.05)
    for level in (None, 0.8):
        row = load_row(asked, slow, level)
        assert row["request_throughput"] == slow.requests_per_s
        assert row["request_throughput_of_asked"] == pytest.approx(slow.requests_per_s / 1.15)
    assert row["request_throughput_of_asked_high"] == pytest.approx(row["request_throughput_high"] / 1.15)
    limited = within_slo(served)
    assert limited.of_asked < 1
    assert limited.requests_per_s == pytest.approx(60.0 * limited.of_asked, rel=0.05)


def test_the_capacity_of_a_run_leaves_out_its_first_wave_and_its_drain(served):
    """Where outputs differ few sequences are left at the end, which weighs less in a run ten times as long."""
    lengths = Independent(Fixed(300), LogNormal(100.0, 0.8, 1024))
    spread = replace(served, workload=replace(served.workload, lengths=lengths))
    found = []
    for count in (4_000, 40_000):
        report = at_once(spread, count)
        found.append((count / report.duration_s, _steady_per_s(report, 1.0)))
    (short_per_s, steady_per_s), (long_per_s, _) = found
    assert short_per_s < 0.95 * steady_per_s
    assert long_per_s == pytest.approx(steady_per_s, rel=0.03)


def test_the_capacity_of_a_run_is_no_more_than_its_front_end_streams(served):
    """Outputs of 100 tokens at 1 ms each: ten requests a second."""
    report = at_once(served)
    found = [
        _steady_per_s(
            replace(report, run=replace(report.run, limits=report.run.limits._replace(stream_s=stream_s))), 1.0
        )
        for stream_s in (0.0, 1e-6, 1e-3)
    ]
    assert found == pytest.approx([found[0], found[0], 10.0])
    assert found[0] > 10.0


def test_bounds_that_no_rate_keeps_leave_the_slowest_run_that_was_tried(served):
    few = replace(served.workload.at_rate(10.0), request_count=200)
    found = within_slo(replace(served, workload=few, slo=Slo({"ttft": 1e-6, "tpot": 1e-6}, 0.99)))
    doubled = 1.03 * 1.06 * 1.12 * 1.24 * 1.48 * 1.96  # steps of 3, 6, 12, 24, 48 and 96 %; then each rate is half
    assert found.of_asked == pytest.approx(MOST_OF_ASKED / (doubled * 2 ** (TRIES - 7)))


def test_of_a_rate_beyond_any_the_most_within_the_slo_is_sent(served):
    """An unstated rate stands for as many requests as the SLO allows, which are not many more than run at once."""
    found = within_slo(replace(served, workload=served.workload.at_rate(EVERYTHING_PER_S)))
    sent_per_s = found.of_asked * EVERYTHING_PER_S
    assert 0 < sent_per_s <= 1.1 * _steady_per_s(at_once(served), 1.0)
    assert p99_s(found, "tpot") <= 0.08


def test_the_rate_that_is_found_is_the_highest(served):
    """Bounds that bind at the edge alone, of a run long enough to settle: 3 % more keep neither them nor a queue."""
    long = replace(served.workload, request_count=40_000, lengths=Independent(Fixed(300), LogNormal(100.0, 0.8, 1024)))
    scenario = replace(served, workload=long, slo=Slo({"ttft": 2.0, "tpot": 10.0}, 0.99), whole_run=False)
    found = within_slo(scenario)
    assert p99_s(found, "ttft") <= 2.0
    assert not found.overloaded
    more = scenario.report(long.at_rate(60.0 * 1.03 * found.of_asked))
    assert more.overloaded or p99_s(more, "ttft") > 2.0


def test_requests_are_sent_as_they_were_asked(served, monkeypatch):
    sent, report = [], Scenario.report

    def seen(scenario: Scenario, workload: Workload, _progress: object = None) -> Report:
        sent.append(workload.arrivals)
        return report(scenario, workload)

    monkeypatch.setattr(Scenario, "report", seen)
    batched = replace(served.workload, arrivals=Released(60.0, 0.5), request_count=1_000)
    found = within_slo(replace(served, workload=batched))
    assert isinstance(sent[0], ClosedLoop)
    assert {each.period_s for each in sent[1:]} == {0.5}
    assert found.of_asked in [each.rate_per_s / 60.0 for each in sent[1:]]
    assert len(sent) <= 1 + TRIES


@pytest.mark.parametrize(("slo", "arrivals"), [(Slo(), OpenLoop(1.0)), (Slo({"tpot": 0.1}), ClosedLoop(8))])
def test_a_rate_within_an_slo_needs_bounds_and_a_rate(served, slo, arrivals):
    asked = replace(served, slo=slo, workload=replace(served.workload, arrivals=arrivals))
    with pytest.raises(InfercastError, match="needs bounds, and requests at a rate"):
        within_slo(asked)
