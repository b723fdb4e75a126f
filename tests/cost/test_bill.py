"""Dollars per million tokens by hand: a single device, an eighth of a node that is paid whole, three on two nodes."""

import pytest

from simulator import (
    Fixed,
    Independent,
    OpenLoop,
    Scenario,
    Settings,
    Workload,
    default_layout,
    deploy,
    load_model,
    own_offer,
)
from simulator.cost.bill import tokens_per_s
from simulator.cost.break_even import SelfHosting
from simulator.cost.capacity import Answer, Capacity
from simulator.hardware.sites import load_site
from simulator.questions.price_rows import energy_columns
from simulator.workloads.lengths import Uniform

LOAD = Workload(OpenLoop(1.0), Independent(Fixed(500), Fixed(100)), 200)
ONE, NODE = own_offer("h100-sxm", 0.9), own_offer("h100-sxm", 18.0, devices=8)


@pytest.mark.parametrize(
    ("offers", "tp", "replicas", "rate_per_s", "usd_per_hour", "usd_per_million"),
    [
        ((ONE,), 1, 1, 1.0, 0.9, 2.5),  # $0.9 / 3600 s = $0.00025 a second, for 100 tokens
        ((NODE,), 1, 1, 1.0, 18.0, 50.0),  # seven of eight are empty, and paid
        ((NODE,), 4, 3, 10.0, 36.0, 10.0),  # 3 x 4 devices take two nodes: $0.01 a second, for 1,000 tokens
    ],
)
def test_a_million_tokens_by_hand(offers, tp, replicas, rate_per_s, usd_per_hour, usd_per_million):
    layout = default_layout(load_model("llama-3.1-8b"), tp=tp)
    scenario = Scenario(deploy("llama-3.1-8b", "h100-sxm", layout=layout), LOAD, offers=offers)
    report = scenario.report(LOAD)
    bill = Answer(scenario, rate_per_s, Capacity(5.0, report, ""), replicas, report).at_load
    assert bill.usd_per_hour == usd_per_hour
    assert bill.usd_per_month == pytest.approx(usd_per_hour * 730)
    assert bill.usd_per_million_output_tokens == pytest.approx(usd_per_million)
    assert bill.usd_per_million_input_tokens == pytest.approx(usd_per_million / 5)
    assert bill.usd_per_million_total_tokens == pytest.approx(usd_per_million / 6)


def test_rejected_requests_have_no_tokens_anywhere():
    """Of prompts of 400 to 1,200 tokens, those beyond the context are rejected: the bill, energy and volume agree."""
    settings = Settings(max_model_len=1000)
    load = Workload(OpenLoop(1.0), Independent(Uniform(400, 1200), Fixed(100)), 200)
    scenario = Scenario(deploy("llama-3.1-8b", "h100-sxm", settings=settings), load, offers=(ONE,))
    report = scenario.report(load)
    found, site = Answer(scenario, 1.0, Capacity(5.0, report, ""), 1, report), load_site("us")
    assert 0.2 < report.rejected_share < 0.6
    input_per_s, output_per_s = tokens_per_s(report, 1.0)
    assert output_per_s == pytest.approx(100 * (1 - report.rejected_share))
    assert found.at_load.usd_per_million_output_tokens == pytest.approx(0.9 / 3600 / output_per_s * 1e6)
    per_joule = output_per_s / (found.watts * site.pue)
    assert energy_columns(found, site)["output_tokens_per_joule"] == pytest.approx(per_joule)
    assert SelfHosting(found).tokens_per_day(1.0) == pytest.approx((input_per_s + output_per_s) * 86_400)
