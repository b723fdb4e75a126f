"""Dollars per million tokens by hand: a single device, an eighth of a node that is paid whole, three on two nodes."""

import pytest

from simulator import Fixed, Independent, OpenLoop, Scenario, Workload, default_layout, deploy, load_model, own_offer
from simulator.cost.capacity import Answer, Capacity

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
