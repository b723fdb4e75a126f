"""Plans: replicas by the hour, dollars by hand, and fleets that keep the SLO on other random numbers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cost.bill import HOURS_PER_MONTH
from simulator.cost.energy import idle_watts
from simulator.cost.fleet_rates import FleetRates
from simulator.cost.fleet_sizing import GrowingLoad, Scaling, Sizing
from simulator.cost.plan import FleetCheck, FleetPlan, Picked, PromptSplit, cheapest, plan
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import deploy
from simulator.errors import InfercastError, WorkloadError
from simulator.hardware.prices import own_offer
from simulator.reports.slo import Slo
from simulator.simulation.autoscaler import LOAD_BYTES_PER_S, Autoscaler, cold_start_s
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.rate_curves import RateCurve, daily
from simulator.workloads.workload import Workload

SHARES = st.floats(0.0, 3.0)


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=24), st.floats(0.1, 5.0), SHARES, st.integers(0, 3))
def test_replicas_are_the_fewest_that_serve_every_rate(
    rates: list[float], capacity_per_s: float, headroom: float, spare: int
) -> None:
    def highest_per_s(replicas: int) -> float:
        return capacity_per_s * replicas**1.2  # many serve more than as many alone

    sizing = Sizing(highest_per_s, headroom, spare)
    found = sizing.replicas(np.array(rates)) - spare
    for rate, replicas in zip(rates, found.tolist(), strict=True):
        assert rate * (1 + headroom) <= highest_per_s(replicas) * (1 + 1e-6) + 1e-6
        assert replicas == 1 or rate * (1 + headroom) > highest_per_s(replicas - 1) * (1 - 1e-6)
    by_load = sizing.by_load(np.array(rates)) - spare
    assert (by_load >= found).all()
    assert (by_load.min(), by_load.max()) == (found.min(), found.max())


@given(st.lists(st.integers(1, 9), min_size=1, max_size=24), st.floats(0.0, 3000.0))
def test_a_fleet_holds_what_is_wanted_and_not_more_than_the_most(wanted: list[int], down_delay_s: float) -> None:
    scaling = Scaling(cold_start_s=60.0, down_delay_s=down_delay_s)
    static, scheduled, autoscaled = (
        scaling.held(kind, np.array(wanted), 600.0) for kind in ("static", "scheduled", "autoscaled")
    )
    assert scheduled.tolist() == wanted
    assert (scheduled <= autoscaled).all()
    assert (autoscaled <= static).all()
    assert set(static.tolist()) == {max(wanted)}


def test_a_rate_beyond_all_fleets_is_refused() -> None:
    assert Sizing(lambda replicas: 2.0 * replicas).replicas(np.array([2000.0])).tolist() == [1000]
    with pytest.raises(WorkloadError, match="1,000 replicas serve 2,000/s"):
        Sizing(lambda replicas: 2.0 * replicas).replicas(np.array([1.0, 2001.0]))
    with pytest.raises(WorkloadError, match=r"^2,000 requests/s with 10% of headroom: "):
        Sizing(lambda replicas: 2.0 * replicas, headroom=0.1).replicas(np.array([2000.0]))


def test_a_month_costs_what_is_up_and_what_starts() -> None:
    """One replica for 18 hours, three for 6, two of them started once a day: 1 $/h each, by hand."""
    curve = RateCurve(1.0, np.array([1.0, 1.0, 1.0, 5.0]), window_s=6 * 3600.0)  # 0.5 and 2.5 requests/s
    made = _planned(GrowingLoad(curve), capacity_per_s=1.0, cold_start_s=360.0)
    static, scheduled, autoscaled = made.months
    assert (static.least, static.most, static.usd) == (3, 3, pytest.approx(3 * HOURS_PER_MONTH))
    a_day = 18 * 1 + 6 * 3 + 2 * 0.1
    assert (scheduled.least, scheduled.most, scheduled.usd) == (1, 3, pytest.approx(a_day * HOURS_PER_MONTH / 24))
    assert autoscaled.usd == pytest.approx((a_day + 6 * 2) * HOURS_PER_MONTH / 24)  # a window longer
    assert sorted(made.kinds, key=made.usd) == ["scheduled", "autoscaled", "static"]


def test_whole_instances_are_paid() -> None:
    """Three replicas on instances of two devices: two instances."""
    made = _planned(GrowingLoad(OpenLoop(2.5)), capacity_per_s=1.0, devices=2)
    assert made.usd("static") == pytest.approx(2 * 2.0 * HOURS_PER_MONTH)


def test_owned_machines_take_the_electricity_of_each_window() -> None:
    """Three replicas on two machines of two devices, half the day at 1 request/s and half at 2.

    $2 an hour each, and at $0.10 per kWh 100 W and 300 J a request of each replica, and the empty device's idle power.
    """
    curve = RateCurve(1.5, np.array([1.0, 2.0]), window_s=12 * 3600.0)
    made = _planned(GrowingLoad(curve), capacity_per_s=0.7, devices=2)
    owned = made.scenario.offers[0].model_copy(update={"commitment": "owned", "usd_per_kwh": 0.1})
    rates = Powered(replace(made.scenario, offers=(owned,)), None)  # type: ignore[arg-type]
    idle_w = idle_watts(made.scenario.deployment.hardware)
    watts = [3 * 100 + 300 * rate_per_s + idle_w for rate_per_s in (1.0, 2.0)]
    usd_per_hour = 2 * 2.0 + 0.1 * np.mean(watts) / 1000
    assert replace(made, rates=rates).usd("static") == pytest.approx(usd_per_hour * HOURS_PER_MONTH)


class Powered(FleetRates):
    """Replicas whose power is given, not simulated."""

    def watts(self, rate_per_s: float) -> float:
        return 100 + 300 * rate_per_s


def test_a_fleet_that_fails_its_check_is_raised_by_one_replica() -> None:
    """2.5 requests/s that grow by half are 3.75 in the second month: four replicas of one a second each."""
    made = _planned(GrowingLoad(OpenLoop(2.5), growth_per_month=0.5, months=2), capacity_per_s=1.0)
    assert (made.busiest, made.most_at(2)) == (2, 4)
    assert made.raised(2).most_at(2) == 5


def test_what_is_picked_costs_all_its_months_and_takes_its_spare_devices() -> None:
    """Three replicas and a spare one at $1 an hour; the two fleets of a split cost what both cost."""
    made = _planned(GrowingLoad(OpenLoop(2.5), months=2), capacity_per_s=1.0)
    made = replace(made, sizing=replace(made.sizing, spare=1))
    picked = Picked(
        made,
        FleetCheck("static", 1, 3, within=1.0, within_one_less=0.0, share=0.9, keeps=True, keeps_one_less=False),
        (),
    )
    assert picked.cost == (2 * 4 * HOURS_PER_MONTH, 4)
    assert PromptSplit(512, (picked, picked)).cost == (4 * 4 * HOURS_PER_MONTH, 8)
    assert made.to_frame()["usd"].tolist() == [4 * HOURS_PER_MONTH] * 2
    assert made.to_frame()["most"].tolist() == [4, 4]
    assert made.to_frame()["month"].tolist() == [1, 2]


def test_parts_of_a_load_grow_alike() -> None:
    load = GrowingLoad(OpenLoop(2.0), growth_per_month=0.1, months=3)
    parts = [load.part(share).rates_per_s(3) for share in (0.25, 0.75)]
    assert parts[0] == pytest.approx(0.5 * 1.1**2)
    assert sum(parts) == pytest.approx(load.rates_per_s(3))


def test_what_is_paid_around_the_clock_stays_up() -> None:
    made = _planned(GrowingLoad(daily(2.5)), capacity_per_s=1.0)
    assert len(made.kinds) == 3
    offers = tuple(each.model_copy(update={"commitment": "reserved"}) for each in made.scenario.offers)
    reserved = replace(made.rates, scenario=replace(made.scenario, offers=offers))
    assert replace(made, rates=reserved).kinds == ("static",)
    assert replace(made, demand=GrowingLoad(OpenLoop(2.5))).kinds == ("static",)


@pytest.mark.slow
def test_the_planned_fleet_keeps_the_slo_on_other_seeds_and_one_less_does_not(searched: FleetPlan) -> None:
    rate = 2.4 * searched.rates.known.rate_per_s
    made = replace(searched, demand=GrowingLoad(OpenLoop(rate), growth_per_month=0.1, months=3))
    picked = cheapest([made])
    assert picked is not None
    assert (picked.check.kind, picked.check.month) == ("static", 3)
    for seed in (1, 2):
        check = picked.plan.check("static", 3, seed)
        assert check.keeps, check
        assert check.within_one_less is not None
        assert check.within_one_less < check.share


@pytest.mark.slow
def test_an_autoscaled_fleet_that_starts_too_slowly_is_not_chosen(searched: FleetPlan) -> None:
    """The rate rises by a step; replicas that start in a minute follow it, those that take 25 do not."""
    rise = RateCurve(searched.rates.known.rate_per_s, np.array([0.5, 0.5, 0.5, 2.5]), window_s=1800.0)
    made = replace(searched, demand=GrowingLoad(rise), sizing=replace(searched.sizing, headroom=0.1))
    slow = replace(made, scaling=Scaling(cold_start_s=1500.0))
    assert made.check("autoscaled", 1).within > 0.9 > slow.check("autoscaled", 1).within
    assert slow.check("static", 1).keeps


@pytest.mark.parametrize("growth", [-1.0, float("nan"), float("inf")])
def test_impossible_growth_is_refused(growth: float) -> None:
    with pytest.raises(InfercastError, match="some load is left"):
        GrowingLoad(OpenLoop(1.0), growth)


@pytest.fixture(scope="module")
def searched() -> FleetPlan:
    return plan(_scenario(), GrowingLoad(OpenLoop(1.0)))


def test_what_no_load_keeps_is_refused() -> None:
    with pytest.raises(WorkloadError, match="Loosen the SLO"):
        plan(replace(_scenario(), slo=Slo({"tpot": 1e-4})), GrowingLoad(OpenLoop(1.0)))


def _scenario() -> Scenario:
    load = Workload(OpenLoop(1.0), Independent(Fixed(1024), Fixed(128)))
    offers = (own_offer("l40s", 1.0),)
    return Scenario(deploy("llama-3.1-8b", "l40s"), load, Slo({"ttft": 1.0, "tpot": 0.05}), offers)


def _planned(demand: GrowingLoad, capacity_per_s: float, cold_start_s: float = 0.0, devices: int = 1) -> FleetPlan:
    """Return a plan whose capacity is given, not searched: its money is what is looked at."""
    scenario = replace(_scenario(), offers=(own_offer("l40s", 1.0 * devices, devices),))
    rates = FleetRates(scenario, None)  # type: ignore[arg-type]
    return FleetPlan(rates, demand, Sizing(lambda replicas: capacity_per_s * replicas), Scaling(cold_start_s))


class Recorded(FleetRates):
    """Fleets that keep the SLO in a given share of their requests; what they were asked is noted."""

    def noting(self, within: float) -> "Recorded":
        object.__setattr__(self, "within", within)
        object.__setattr__(self, "asked", [])
        return self

    def service(self, replicas: int, autoscaler: Autoscaler | None = None) -> Any:
        return replicas, autoscaler

    def report(self, service: Any, load: Workload) -> Any:
        self.asked.append((*service, load))
        return SimpleNamespace(within_share=self.within, meets_slo=self.within >= self.scenario.slo.share)


def _recorded(arrivals: OpenLoop | RateCurve, within: float = 1.0) -> tuple[FleetPlan, list[Any]]:
    """Return a plan of n replicas of n^2 / 2 requests/s, each of 12 s, and a spare one; and what it is asked."""
    mean_s = SimpleNamespace(metrics={"e2el": SimpleNamespace(values={"mean": 12.0})})
    rates = Recorded(_scenario(), SimpleNamespace(report=mean_s)).noting(within)  # type: ignore[arg-type]
    made = FleetPlan(rates, GrowingLoad(arrivals), Sizing(lambda n: n * n / 2, 0.25, spare=1), Scaling(60.0))
    return made, rates.asked


def test_a_static_fleet_is_checked_for_an_hour_at_its_busiest_rate_without_its_spare_replica() -> None:
    """Windows of half an hour, 2.4/s at most, and a quarter more: 3 replicas serve 4.5/s."""
    made, asked = _recorded(RateCurve(1.5, np.array([0.6, 2.4]), window_s=1800.0))
    check = made.check("static", 1)
    assert (check.replicas, check.within, check.within_one_less) == (3, 1.0, 1.0)
    assert [(replicas, scaler) for replicas, scaler, _ in asked] == [(3, None), (2, None)]
    load = asked[0][-1]
    assert (load.arrivals.rate_per_s, load.request_count, load.seed) == (pytest.approx(2.4), round(2.4 * 3600), 1)
    searched_with_1 = replace(made.scenario, workload=replace(made.scenario.workload, seed=1))
    object.__setattr__(made.rates, "scenario", searched_with_1)
    made.check("static", 1)
    assert asked[-1][-1].seed == 2  # --seed 1: still other random numbers than those of the search


def test_an_autoscaled_fleet_is_checked_from_three_hours_before_its_busiest_window_on() -> None:
    """Hours of 1 to 6 requests/s, the second one busiest; a quarter more takes 2 to 4 replicas, of 2/s and 8/s.

    The smallest fleet is sized for 1/s a replica, so 12 s of E2EL are 12 in flight, over 1.25.
    """
    made, asked = _recorded(RateCurve(3.5, np.array([5.0, 6.0, 1.0, 2.0, 3.0, 4.0]), window_s=3600.0))
    made.check("autoscaled", 1)
    replicas, scaler, load = asked[0]
    assert load.arrivals.shape.tolist() == [3.0, 4.0, 5.0, 6.0]
    assert (load.arrivals.rate_per_s, load.request_count) == (4.5, 18 * 3600)
    assert (replicas, scaler.max_replicas, scaler.target) == (4, 4, pytest.approx(12 / 1.25))


def test_a_fleet_that_never_keeps_the_slo_is_raised_eight_times() -> None:
    made, asked = _recorded(OpenLoop(2.4), within=0.0)
    assert cheapest([made]) is None
    assert [replicas for replicas, _, _ in asked][::2] == list(range(3, 12))


def test_a_plan_without_a_word_on_scaling_starts_replicas_as_a_deployment_does() -> None:
    made = plan(_scenario(), GrowingLoad(OpenLoop(0.01)))
    assert made.scaling == Scaling(cold_start_s(made.scenario.memory.weight_bytes, LOAD_BYTES_PER_S))
    assert made.scaling.cold_start_s > 0
