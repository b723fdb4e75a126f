"""What is said about the intervals of a run."""

import math
import re

from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.questions.load_notes import load_notes, load_remarks
from simulator.reports.report import Report
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.workload import Workload, load_workload


def said(rate_per_s: float) -> tuple[Report, list[str]]:
    deployment = deploy("smollm2-135m", "l4", settings=Settings(max_num_seqs=16))
    scenario = Scenario(deployment, Workload(OpenLoop(rate_per_s), load_workload("chat").lengths, 4_000))
    report = scenario.simulated()
    return report, [each for each in load_remarks(scenario, report) if each.startswith("no ±")]


def requests_in(sentence: str) -> float:
    return float(re.search(r"takes ([\d,]+)", sentence)[1].replace(",", ""))


def test_a_run_too_short_for_its_load_says_how_many_requests_it_takes():
    report, (sentence,) = said(14.0)  # of 16.7
    needed = report.length.load.requests_needed
    assert needed <= requests_in(sentence) <= 1.1 * needed
    assert "at this load" in sentence


def test_a_run_whose_engine_is_rarely_full_says_so():
    report, (sentence,) = said(9.0)
    needed = report.length.load.requests_of_queues
    assert needed <= requests_in(sentence) <= 1.1 * needed
    assert f"{report.length.load.full_share:.2%} of the requests find the engine full" in sentence
    assert report.length.is_enough() and math.isnan(report.metrics["ttft"].half_widths["mean"])
    assert report.metrics["tpot"].half_widths["mean"] > 0 and report.metrics["e2el"].half_widths["mean"] > 0


def test_a_run_that_states_its_intervals_says_nothing_of_them():
    report, sentences = said(4.0)
    assert not sentences and report.metrics["ttft"].half_widths["mean"] > 0


def test_fewer_requests_than_a_closed_loop_keeps_in_flight_are_said():
    deployment, lengths = deploy("smollm2-135m", "l4"), load_workload("chat").lengths
    for sent, told in ((8, ["At most 8 of 16 are in flight: no more requests are sent (--num-prompts)."]), (16, [])):
        scenario = Scenario(deployment, Workload(ClosedLoop(16), lengths, sent))
        assert [each for each in load_notes(scenario, scenario.simulated()) if "are in flight" in each] == told
