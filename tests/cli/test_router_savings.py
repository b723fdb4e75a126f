"""What `cost` and `compare` say of a router: fleets that are enough are given."""

from types import SimpleNamespace

import numpy as np
import pytest

from simulator.cli.answers import router_savings as answers
from simulator.workloads.arrivals import OpenLoop, RecordedArrivals

ENOUGH = 5


class Given:
    """Fleets of which ENOUGH replicas keep a rate of 8/s."""

    def __init__(self, *scenario_and_capacity: object) -> None:
        assert scenario_and_capacity[1] == "its capacity"

    def fewest(self, rate_per_s: float, enough: int) -> int:
        assert rate_per_s == 8.0
        return min(ENOUGH if enough > 2 else 1, enough)


@pytest.fixture(autouse=True)
def given(monkeypatch):
    monkeypatch.setattr(answers, "FleetRates", Given)


def said(replicas: int, arrivals: object = None) -> list[str]:
    workload = SimpleNamespace(arrivals=arrivals or OpenLoop(8.0))
    scenario = SimpleNamespace(workload=workload)
    found = SimpleNamespace(scenario=scenario, replicas=replicas, capacity="its capacity", rate_per_s=8.0)
    return list(answers.router_savings(found))


def test_fewer_behind_a_router_are_told():
    each = "replicas: each alone, with its share of the requests. Behind a router to the least busy"
    assert said(2) == [f"2 {each} 1 is enough: infercast plan sizes such fleets."]
    assert said(32) == [f"32 {each} 5 are enough: infercast plan sizes such fleets."]


def test_a_fleet_too_large_to_simulate_has_no_number():
    alone = "33 replicas: each alone, with its share of the requests."
    assert said(33) == [f"{alone} Behind a router fewer may be enough: infercast plan simulates the fleet."]


def test_nothing_is_said_of_one_replica_of_a_trace_and_where_no_fewer_are_enough():
    assert said(1) == said(ENOUGH) == said(9, RecordedArrivals("a trace", np.arange(3.0))) == []
