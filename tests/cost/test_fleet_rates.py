"""What whole fleets serve within an SLO, and which split in two pools serves most: against every split alone."""

from dataclasses import replace

import pytest

from simulator.cost.capacity import Capacity, answer, capacity
from simulator.cost.energy import idle_watts, power_w
from simulator.cost.fleet_rates import FleetRates, highest
from simulator.cost.fleet_sizing import GrowingLoad
from simulator.cost.plan import plan
from simulator.cost.scenario import Scenario
from simulator.cost.service import Service
from simulator.deployment.deployment import deploy
from simulator.errors import WorkloadError
from simulator.reports.slo import Slo
from simulator.simulation.routers import Router
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.workload import Workload


def _scenario(prompt_tokens: int, output_tokens: int, tpot_s: float) -> tuple[Scenario, Capacity]:
    load = Workload(OpenLoop(1.0), Independent(Fixed(prompt_tokens), Fixed(output_tokens)))
    scenario = Scenario(deploy("llama-3.1-8b", "l40s"), load, Slo({"ttft": 2.0, "tpot": tpot_s}))
    return scenario, capacity(scenario)


@pytest.mark.slow
def test_prompts_that_break_a_tight_tpot_are_worth_a_pool_and_the_best_split_is_found() -> None:
    """A prompt of 2,048 tokens lasts longer than five steps of 30 ms: beside decodes it breaks their TPOT."""
    scenario, one = _scenario(2048, 64, tpot_s=0.03)
    mixed, pooled = FleetRates(scenario, one), FleetRates(scenario, one, 1e10)
    mixed_per_s, split_per_s = mixed.rate_per_s(3), pooled.rate_per_s(3)
    assert split_per_s > 1.5 * 3 * one.rate_per_s
    load = replace(scenario.workload, request_count=2_000)

    def within(prefill: int, rate_per_s: float) -> float:
        service = Service(
            scenario.deployment, 3, Router("least-outstanding"), prefill_replicas=prefill, link_bytes_per_s=1e10
        )
        return service.report(load.at_rate(rate_per_s).requests(), slo=scenario.slo).within_share

    assert within(pooled.prefill(3), 0.97 * split_per_s) >= scenario.slo.share
    assert all(within(prefill, 1.05 * split_per_s) < scenario.slo.share for prefill in (1, 2))
    assert within(0, 0.97 * mixed_per_s) >= scenario.slo.share > within(0, 1.1 * mixed_per_s)


@pytest.mark.slow
def test_short_prompts_within_a_loose_slo_are_not_worth_a_pool() -> None:
    scenario, one = _scenario(256, 128, tpot_s=0.1)
    mixed, pooled = FleetRates(scenario, one), FleetRates(scenario, one, 1e10)
    assert pooled.least == 2
    assert (pooled.prefill(2), pooled.rate_per_s(2) < mixed.rate_per_s(2)) == (1, True)
    slow = FleetRates(*_scenario(2048, 64, tpot_s=0.05), 1e7)  # 268 MB of a prompt's cache take 27 s
    assert slow.rate_per_s(2) == 0
    with pytest.raises(WorkloadError, match="none of up to 4 replicas"):
        slow.rate_per_s(6)


def test_a_fleet_serves_more_than_its_replicas_alone_and_what_lies_between_two_sizes_is_interpolated() -> None:
    scenario, one = _scenario(1024, 64, tpot_s=0.05)
    fleet = FleetRates(scenario, one)
    assert fleet.rate_per_s(1) == one.rate_per_s
    each = [fleet.rate_per_s(replicas) / replicas for replicas in (1, 4, 12, 14, 16)]
    assert each == sorted(each)
    assert each[1] > 1.2 * each[0]
    simulated = highest(fleet._keeps(14), 14 * one.rate_per_s) / 14
    assert each[3] == pytest.approx(simulated, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("rate_per_s", [4.0, 5.5, 7.0])
def test_the_fewest_replicas_behind_a_router_keep_the_slo_and_a_plan_without_headroom_has_as_many(rate_per_s) -> None:
    scenario, one = _scenario(2048, 64, tpot_s=0.03)
    alone, rates = answer(scenario, rate_per_s, one).replicas, FleetRates(scenario, one)
    fewest = rates.fewest(rate_per_s, alone)
    planned = plan(scenario, GrowingLoad(OpenLoop(rate_per_s)))
    assert planned.most_at(1) == fewest < alone / 1.5
    assert rates.fewest(rate_per_s, fewest) == fewest  # never more than are enough
    load = replace(scenario.workload, request_count=4_000).at_rate(rate_per_s)
    kept = [rates.report(rates.service(replicas), load).within_share for replicas in (fewest, fewest - 1)]
    assert kept[0] >= scenario.slo.share > kept[1]


def test_a_replica_takes_the_power_of_its_share_of_the_load() -> None:
    """From idle power upwards; between the rates that are simulated it is within 5 % of a simulation."""
    scenario, one = _scenario(1024, 64, tpot_s=0.05)
    fleet = FleetRates(scenario, one)
    found = [fleet.watts(share * one.rate_per_s) for share in (0.0, 0.3, 0.6, 0.9)]
    assert found == sorted(found)
    assert found[0] == idle_watts(scenario.deployment.hardware)
    for share, watts in zip((0.3, 0.6, 0.9), found[1:], strict=True):
        load = replace(scenario.workload, request_count=2_000).at_rate(share * one.rate_per_s)
        assert watts == pytest.approx(power_w(scenario.deployment, scenario.report(load)), rel=0.05)


def test_the_highest_rate_is_within_its_tolerance() -> None:
    assert 0.996 * 7.3 < highest(lambda rate_per_s: rate_per_s <= 7.3, 1.0) <= 7.3
    assert highest(lambda rate_per_s: rate_per_s <= 7.3, 8.0) == 0.0
