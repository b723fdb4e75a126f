"""The plot of a run: its words do not cover each other, and latencies have the unit that suits them."""

import pytest

from simulator import Scenario, Workload, deploy, load_workload, parse_slo
from simulator.plots.run_plots import plot_run
from simulator.questions.load_rows import load_row
from simulator.reports.latency_breakdown import Explanation
from simulator.reports.timeline import timeline_of
from tests.support.pictures import cut_off, overlaps


@pytest.mark.slow
@pytest.mark.parametrize(("hardware", "rate", "unit"), [("l40s", 3.0, "ms"), ("l4", 6.0, "s")])
def test_texts_of_a_run_do_not_cover_each_other(hardware, rate, unit):
    """An L4 is overloaded by 6 requests/s: its latencies reach minutes."""
    chat = load_workload("chat")
    workload = Workload(chat.arrivals(rate), chat.lengths, 600, 0, "chat")
    scenario = Scenario(deploy("llama-3.1-8b", hardware), workload, parse_slo("ttft:500ms,tpot:50ms"))
    report = scenario.report(workload)
    over_time = timeline_of(report.run, scenario.deployment.step_model())
    figure = plot_run("title", over_time, Explanation(report), load_row(scenario, report, 0.8))
    assert not overlaps(figure)
    assert not cut_off(figure)
    (ttft,) = (axes for axes in figure.axes if axes.get_xlabel().startswith("TTFT"))
    assert ttft.get_xlabel() == f"TTFT [{unit}]"
    bound = next(line for line in ttft.lines if line.get_linestyle() == "--")
    assert bound.get_xdata()[0] == {"ms": 500, "s": 0.5}[unit]
    assert ttft.get_title("right") == f"{report.within['ttft']:.1%} within 500 ms"
    assert not ttft.texts  # words inside the plot would lie on the curve
