"""Which split of a fleet in two pools serves most within an SLO: against every split searched alone."""

from dataclasses import replace

import pytest

from simulator.cost.capacity import Capacity, capacity
from simulator.cost.disaggregation import disaggregation, highest
from simulator.cost.scenario import Scenario
from simulator.cost.service import Service
from simulator.deployment.deployment import deploy
from simulator.errors import InfercastError
from simulator.reports.slo import Slo
from simulator.simulation.routers import Router
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.workload import Workload


def _scenario(prompt_tokens: int, output_tokens: int, tpot_s: float) -> tuple[Scenario, Capacity]:
    load = Workload(OpenLoop(1.0), Independent(Fixed(prompt_tokens), Fixed(output_tokens)))
    scenario = Scenario(deploy("llama-3.1-8b", "l40s"), load, Slo({"ttft": 2.0, "tpot": tpot_s}))
    return scenario, capacity(scenario)


def test_prompts_that_break_a_tight_tpot_are_worth_a_pool_and_the_best_split_is_found() -> None:
    """A prompt of 2,048 tokens lasts longer than five steps of 30 ms: beside decodes it breaks their TPOT."""
    scenario, one = _scenario(2048, 64, tpot_s=0.03)
    found = disaggregation(scenario, one, 3)
    assert found.gain > 0.5
    load = replace(scenario.workload, request_count=2_000)

    def within(prefill: int, rate_per_s: float) -> float:
        service = Service(scenario.deployment, 3, Router("least-outstanding"), prefill_replicas=prefill)
        return service.report(load.at_rate(rate_per_s).requests(), slo=scenario.slo).within_share

    assert within(found.prefill, 0.97 * found.split_per_s) >= scenario.slo.share
    assert all(within(prefill, 1.05 * found.split_per_s) < scenario.slo.share for prefill in (1, 2))
    assert within(0, 1.1 * found.mixed_per_s) < scenario.slo.share


def test_short_prompts_within_a_loose_slo_are_not_worth_a_pool() -> None:
    scenario, one = _scenario(256, 128, tpot_s=0.1)
    found = disaggregation(scenario, one, 2)
    assert (found.prefill, found.gain < 0) == (1, True)
    slow = disaggregation(scenario, one, 2, link_bytes_per_s=1e7)  # 33.6 MB of a prompt's cache take 3.4 s
    assert slow.mixed_per_s == found.mixed_per_s
    assert slow.split_per_s < found.split_per_s
    with pytest.raises(InfercastError, match="each pool needs one"):
        disaggregation(scenario, one, 1)


def test_the_highest_rate_is_within_its_tolerance() -> None:
    assert 0.996 * 7.3 < highest(lambda rate_per_s: rate_per_s <= 7.3, 1.0) <= 7.3
    assert highest(lambda rate_per_s: rate_per_s <= 7.3, 8.0) == 0.0
