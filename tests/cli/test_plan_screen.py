"""What `plan` says of a fleet, by hand: replicas of 1 request/s, on devices of $1 an hour, 730 hours a month."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.cli.answers.plan_screen import (
    Searched,
    assumptions,
    comparison,
    months_view,
    plan_result,
    pools_verdict,
    split_verdict,
    verdict,
)
from simulator.cost.fleet_sizing import GrowingLoad, Scaling, Sizing
from simulator.cost.plan import FleetCheck, FleetPlan, Picked, PromptSplit, StepRange
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import deploy
from simulator.hardware.prices import own_offer
from simulator.reports.slo import Slo
from simulator.simulation.sessions import Sessions
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.rate_curves import RateCurve
from simulator.workloads.workload import Workload

GROWING = GrowingLoad(OpenLoop(2.5), growth_per_month=0.5, months=2)  # 2.5 and 3.75 requests/s: 3 and 4 replicas
BY_DAY = GrowingLoad(RateCurve(1.0, np.array([1.0, 1.0, 1.0, 5.0]), window_s=6 * 3600.0))  # 0.5 and 2.5 requests/s
SLO = Slo({"ttft": 1.0})


def planned(demand: GrowingLoad, prefill: int = 0, each_per_s: float = 1.0, priced: bool = True) -> FleetPlan:
    load = Workload(OpenLoop(1.0), Independent(Fixed(1024), Fixed(128)))
    offers = (own_offer("l40s", 1.0),) if priced else ()
    rates = SimpleNamespace(
        scenario=Scenario(deploy("llama-3.1-8b", "l40s"), load, SLO, offers),
        rate_per_s=lambda replicas: each_per_s * replicas,
        prefill=dict.fromkeys(range(9), prefill).get,
        link_bytes_per_s=float(prefill),
        least=2 if prefill else 1,
        known=SimpleNamespace(rate_per_s=0.9),
        router="least-outstanding",
        sessions=Sessions(),
    )
    return FleetPlan(rates, demand, Sizing(rates.rate_per_s, least=rates.least), Scaling(60.0))


def picked(plan: FleetPlan, replicas: int, *failed: FleetCheck, kind: str = "static") -> Picked:
    return Picked(
        plan, FleetCheck(kind, plan.busiest, replicas, 0.991, 0.72, 0.9, keeps=True, keeps_one_less=False), failed
    )


def test_a_growing_fleet_in_two_sentences():
    fleet, simulated = verdict(picked(planned(GROWING), 4))
    assert fleet.startswith(
        "Static fleet (always on, sized for the month's highest rate) of llama-3.1-8b (bf16) on l40s"
    )
    assert fleet.endswith(", 3 to 4 replicas: $2,190 a month, $2,920 in month 2, $5,110 in all.")
    assert simulated == (
        "Simulated in month 2, where it is busiest, with 4 replicas: 99.1% of requests keep the SLO, "
        "95% of requests with TTFT <= 1 s; with one less, 72.0%."
    )


def test_a_fleet_without_an_slo_serves_and_keeps_none():
    made = planned(GROWING)
    made.rates.scenario = replace(made.rates.scenario, slo=Slo())
    assert verdict(picked(made, 4))[1] == (
        "Simulated in month 2, where it is busiest, with 4 replicas: 99.1% of requests are served, without an SLO; "
        "with one less, 72.0%."
    )
    assert any("/s without an SLO" in said for said in assumptions(made))


def test_headroom_that_asks_for_a_replica_is_said():
    made = replace(planned(GROWING), sizing=Sizing(lambda replicas: replicas, headroom=0.1))
    enough = FleetCheck("static", 1, 5, 1.0, 0.97, 0.95, keeps=True, keeps_one_less=True)
    assert verdict(Picked(made, enough, ()))[1].endswith(
        "; with one less, 97.0%, but the headroom of 10% asks for 5 replicas."
    )
    few = enough._replace(within_one_less=0.72, keeps_one_less=False)
    assert verdict(Picked(made, few, ()))[1].endswith("; with one less, 72.0%.")


def test_a_fleet_that_is_overloaded_is_no_reason_for_headroom():
    """All requests are served in the end, however late."""
    made = replace(planned(GROWING), sizing=Sizing(lambda replicas: replicas, headroom=0.1))
    late = FleetCheck("static", 1, 5, 1.0, 1.0, 0.95, keeps=True, keeps_one_less=False)
    cheaper = late._replace(replicas=4, keeps=False)
    simulated, *_, failed = verdict(Picked(made, late, (cheaper,)))[1:]
    assert simulated.endswith("; one less is overloaded.")
    assert failed == "A cheaper static fleet of 4 is overloaded, in month 1."


def test_months_are_counted_from_one_in_json_too():
    made = planned(GROWING)
    found = plan_result(Searched([made], [], picked(made, 4), []), {}, SLO, []).sections
    assert [row["month"] for row in found["months"]] == [1, 2]
    assert [row["month"] for row in found["checks"]] == [2]


def test_a_shrinking_fleet_is_as_large_as_its_first_month():
    shrinking = GrowingLoad(OpenLoop(3.75), growth_per_month=-0.5, months=2)  # 3.75 and 1.875 requests/s
    fleet, simulated = verdict(picked(planned(shrinking), 4))
    assert fleet.endswith(", 2 to 4 replicas: $2,920 a month, $1,460 in month 2, $4,380 in all.")
    assert "in month 1, where it is busiest, with 4 replicas" in simulated


def test_one_replica_without_a_price_and_a_cheaper_fleet_that_fails():
    cheaper = FleetCheck("autoscaled", 1, 3, 0.5, None, 0.9, keeps=False, keeps_one_less=None)
    fleet, _, failed = verdict(picked(planned(GrowingLoad(OpenLoop(0.5)), priced=False), 1, cheaper))
    assert fleet.endswith(", 1 replica.")
    assert failed == "A cheaper autoscaled fleet of 3 keeps it for 50.0% of requests only, in month 1."


def test_pools_say_what_they_serve_and_cost():
    """Three replicas in pools serve 1.2/s each, as many mixed ones 1/s: 3.6 against 3."""
    mixed, pooled = planned(GrowingLoad(OpenLoop(2.5))), planned(GrowingLoad(OpenLoop(2.5)), 1, each_per_s=1.2)
    said = "1 replica for prefill and 2 for decode serve 3.60/s within the SLO, as many mixed ones 3.00/s (+20%)"
    costs = "always on $2,190 in pools, $2,190 mixed"
    assert pools_verdict(mixed, pooled, chosen=[]) == f"Disaggregated: no; {said}; {costs}."
    assert pools_verdict(mixed, pooled, chosen=[picked(pooled, 3)]) == f"Disaggregated: yes; {said}; {costs}."
    assert ", 3 replicas, 1 of 3 for prefill: $2,190 a month" in verdict(picked(pooled, 3))[0]


@pytest.mark.parametrize(
    ("priced", "both", "one"), [(True, "$5,840 in all", "$2,190"), (False, "8 devices", "3 devices")]
)
def test_two_fleets_for_short_and_long_prompts_against_one(priced, both, one):
    each, whole = (planned(GrowingLoad(OpenLoop(rate)), priced=priced) for rate in (3.5, 2.5))
    split, alone = PromptSplit(2000, (picked(each, 4), picked(each, 4))), picked(whole, 3)
    said = f"split at 2,000 tokens: {{}}4 replicas and 4 replicas, {both} against {one} for one fleet."
    assert split_verdict(split, alone, chosen=True) == "Two fleets, prompts " + said.format("")
    assert split_verdict(split, alone, chosen=False) == "Prompts " + said.format("no; ")
    assert split_verdict(split, None, chosen=True).endswith(f"4 replicas and 4 replicas, {both}.")


def test_what_fleets_by_the_hour_cost_and_what_a_plan_stands_on():
    """18 hours of one replica and 6 of three, two of them started in a minute; a window longer by load; 3 always on."""
    made = planned(BY_DAY)
    by_hour, by_load, always = (made.usd(kind) for kind in ("scheduled", "autoscaled", "static"))
    a_day = 18 + 18 + 2 / 60
    assert (by_hour, by_load, always) == pytest.approx((a_day * 730 / 24, (a_day + 12) * 730 / 24, 3 * 730))
    costs = f"static $2,190, scheduled ${by_hour:,.0f}, autoscaled ${by_load:,.0f}"
    assert comparison([made]) == [f"{made.scenario.deployment}: over all months {costs}."]
    assert comparison([planned(BY_DAY, priced=False)]) == [f"{made.scenario.deployment}: over all months no price."]
    load, serves, rented = assumptions(made)
    assert load.endswith("; headroom 0%, 0 spare, cold start 60 s.")
    assert serves == "A replica serves 1.00/s within the SLO, 1.00/s as one of 3 behind a least-outstanding router."
    assert rented.startswith("At most: 3 x ") and rented.endswith("pay for what is up, start included.")
    (row,) = months_view(made, "").rows
    assert (row["month"], row["static_replicas"], row["scheduled_replicas"]) == ("1", "3", "1-3")
    assert (row["mean_per_s"], row["peak_per_s"]) == (1.0, 2.5)


def test_a_plan_of_many_months_shows_some_and_the_last():
    made = planned(GrowingLoad(OpenLoop(1.0), growth_per_month=0.01, months=24))
    assert [row["month"] for row in months_view(made, "").rows] == ["1", "6", "11", "16", "21", "24"]
    assert "Months between: --format json, csv." in assumptions(made)


def test_the_cheapest_of_one_fleet_and_two_is_said_first():
    """One of 4 replicas, $2,920, against two of 3 and 1: as much, and as many devices; two of 2 and 1 are cheaper."""

    def searched(rate_per_s: float, replicas: int) -> Searched:
        made = planned(GrowingLoad(OpenLoop(rate_per_s)))
        return Searched([made], [], picked(made, replicas), [])

    nothing = searched(1.0, 1)._replace(picked=None)
    parts = {2000: (searched(1.5, 2), searched(0.5, 1)), 4000: (searched(0.5, 1), nothing)}
    said = plan_result(searched(3.5, 4), parts, SLO, []).verdict
    assert said[0].startswith(
        "Two fleets, prompts split at 2,000 tokens: 2 replicas and 1 replica, $2,190 in all against"
    )
    assert said[-1] == "Prompts split at 4,000 tokens: no fleet keeps the SLO."
    lonely = plan_result(nothing, {}, SLO, [])
    assert lonely.verdict[0] == f"No fleet keeps the SLO in simulation ({SLO})."


def test_a_plan_says_what_it_takes_at_both_ends_of_its_interval():
    """2.5 requests/s at 1.2 a replica with the shortest steps, 0.6 with the longest: 3 to 5 of them at $730 a month."""
    load = GrowingLoad(OpenLoop(2.5))
    made, short, long = (planned(load, each_per_s=each) for each in (1.0, 1.2, 0.6))
    ranged = picked(made, 3)._replace(steps=StepRange(0.8, short, long))
    said = "The 80% interval, by rates of the device's family, is 3 to 5 replicas where it is busiest"
    assert verdict(ranged)[2] == f"{said}, $2,190 to $3,650 in all."
    row = plan_result(Searched([made], [], ranged, []), {}, SLO, []).sections["checks"][-1]
    assert [row[f"{key}_{end}"] for key in ("replicas", "usd") for end in ("low", "high")] == [3, 5, 2190, 3650]
    assert (row["usd"], row["interval"]) == (2190, 0.8)
    never = ranged._replace(steps=StepRange(0.8, short, None))
    assert verdict(never)[2] == (
        "In the 80% interval, by rates of the device's family, it may be that no number of replicas keeps the SLO."
    )
    short, long = (planned(load, each_per_s=each, priced=False) for each in (1.2, 0.6))
    unpriced = ranged._replace(plan=planned(load, priced=False), steps=StepRange(0.8, short, long))
    assert verdict(unpriced)[2] == f"{said}."
