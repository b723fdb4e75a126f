"""Risk and sensitivity: replicas by case, costs at both ends of a knob, flips, and what is worth measuring."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from simulator import Scenario, Workload, default_layout, deploy, load_model, load_workload, parse_slo
from simulator.cost.candidate import Candidate
from simulator.cost.light_bounds import Demand, LightBounds
from simulator.cost.risk import CASES, Risk, replicas_needed
from simulator.cost.search import Search, Target
from simulator.cost.sensitivity import Sensitivity, worth_measuring
from simulator.reports.intervals import step_factors, step_quantile

CHAT = load_workload("chat")
SLO = parse_slo("ttft:800ms,tpot:50ms")
USD = {"l40s": 1.0, "h100-sxm": 2.7}


def target(rate: float) -> Target:
    workload = Workload(CHAT.arrivals(rate), CHAT.lengths, 500)
    return Target(rate, workload, SLO, lambda of: USD[of.hardware.id] * of.devices * of.replicas)


def searched(rate: float, names=("l40s", "h100-sxm")) -> Search:
    load, candidates = target(rate), []
    for name in names:
        deployment = deploy("llama-3.1-8b", name)
        light = LightBounds(deployment.model, ("bf16", "bf16"), Demand(load.workload.requests(), SLO))
        device_s = light.device_s(deployment.hardware)
        candidates.append(
            Candidate(deployment.model, deployment.hardware, deployment.layout, device_s, lambda _, of=deployment: of)
        )
    search = Search(load, candidates)
    search.run()
    return search


@pytest.fixture(scope="module")
def found() -> Search:
    return searched(5.0)


def test_replicas_needed_is_the_edge_whatever_it_starts_from():
    scenario = Scenario(deploy("llama-3.1-8b", "l40s"), Workload(CHAT.arrivals(12.0), CHAT.lengths, 500), SLO)
    counts = {replicas_needed(scenario, 12.0, start) for start in (1, 4, 30)}
    assert len(counts) == 1
    needed = counts.pop()
    assert scenario.report(scenario.workload.at_rate(12.0 / needed)).meets_slo
    assert not scenario.report(scenario.workload.at_rate(12.0 / (needed - 1))).meets_slo


def test_no_number_of_replicas_is_none():
    scenario = Scenario(deploy("llama-3.1-8b", "l4"), Workload(CHAT.arrivals(2.0), CHAT.lengths, 200), SLO)
    assert replicas_needed(scenario, 2.0) is None


def test_slower_steps_take_no_fewer_replicas(found):
    for each in found.found:
        risk = Risk(each, found.load)
        known = [count for count in risk.replicas if count is not None]
        assert known == sorted(known)
        assert risk.replicas[len(CASES) // 2] == each.replicas
        assert risk.more == [count for count in known if count > each.replicas]
        assert risk.never == len(CASES) - len(known)


def test_cases_are_quantiles_of_step_times(found):
    factors = [step_quantile(found.found[0].scenario.deployment, case) for case in CASES]
    assert factors == sorted(factors)
    assert factors[2] == 1.0


def test_a_quantile_of_step_times_is_an_end_of_an_interval(found):
    """An interval of 80 % ends at 10 % and at 90 %, one of 40 % at 30 % and at 70 %."""
    deployment = found.found[0].scenario.deployment
    ends = [step_factors(deployment, share) for share in (0.8, 0.4)]
    cases = [step_quantile(found.found[0].scenario.deployment, case) for case in (0.1, 0.9, 0.3, 0.7)]
    assert cases == pytest.approx([*ends[0], *ends[1]])


def test_the_answers_own_simulation_is_known(found):
    each, rate_per_s = found.found[0], found.load.rate_per_s
    risk, scenario = Risk(each, found.load), each.scenario
    assert risk.simulated == {rate_per_s / each.replicas: each.report}
    assert risk.is_asked(replace(scenario, slo=parse_slo("ttft:9s")), rate_per_s)
    assert not risk.is_asked(scenario, 2 * rate_per_s)
    assert not risk.is_asked(replace(scenario, workload=replace(scenario.workload, seed=7)), rate_per_s)


def test_any_slo_is_judged_on_the_same_simulations(found, monkeypatch):
    for each in found.found:
        risk = Risk(each, found.load)
        tighter = {name: 0.8 * bound_s for name, bound_s in found.load.slo.bounds_s.items()}
        scenario = replace(each.scenario, slo=replace(found.load.slo, bounds_s=tighter))
        asked = scenario, found.load.rate_per_s, each.replicas
        assert replicas_needed(*asked, risk.simulated) == replicas_needed(*asked)
        assert replicas_needed(each.scenario, *asked[1:], risk.simulated) == each.replicas
        with monkeypatch.context() as patched:
            patched.delattr(Scenario, "report")
            assert replicas_needed(each.scenario, *asked[1:], risk.simulated) == each.replicas


def test_knobs_move_cost_the_way_that_they_must(found):
    knobs = {knob.name: knob for knob in Sensitivity([Risk(each, found.load) for each in found.found]).knobs()}

    def ends(name):
        return [float("inf") if end.own_usd is None else end.own_usd for end in (knobs[name].low, knobs[name].high)]

    for name in ("rate", "price", "prompts", "outputs", "step times"):
        assert ends(name) == sorted(ends(name)), name
    for name in ("utilisation", "TTFT bound", "TPOT bound", "memory bandwidth", "arithmetic", "KV cache"):
        assert ends(name) == sorted(ends(name), reverse=True), name
    assert knobs["rate"].is_known
    assert ends("price") == pytest.approx([0.8 * found.found[0].usd_per_hour, 1.25 * found.found[0].usd_per_hour])
    assert ends("utilisation")[0] >= found.found[0].usd_per_hour
    assert not knobs["KV cache"].is_known


def test_an_answer_flips_where_another_becomes_cheaper(found):
    sensitivity = Sensitivity([Risk(each, found.load) for each in found.found])
    usd, place = sensitivity.flip_price()
    first, other = found.found[0], found.found[place]
    assert usd * first.replicas == pytest.approx(other.usd_per_hour)
    for up in (True, False):
        flip = sensitivity.flip_rate_per_s(up)
        if flip:
            rate, winner = flip
            cost = {}
            for at, each in enumerate(found.found):
                needed = replicas_needed(each.scenario, rate)
                cost[at] = needed * USD[each.candidate.hardware.id]
            assert min(cost, key=cost.get) == winner != 0


def risk(*replicas: int | None, usd: float) -> SimpleNamespace:
    found = SimpleNamespace(price=lambda _load, count: usd * count)
    return SimpleNamespace(replicas=replicas, found=found, load=None)


def test_what_is_worth_measuring_by_hand():
    """Mean costs 1.4 and 1.5: who knows the first's case pays 1 in four cases of five and 1.5 in the last: 1.1."""
    best = worth_measuring([risk(1, 1, 1, 1, 3, usd=1.0), risk(1, 1, 1, 1, 1, usd=1.5)])
    assert best.place == 0
    assert best.usd_per_hour == pytest.approx(1.4 - 1.1)
    assert worth_measuring([risk(1, 1, 1, 1, 1, usd=1.0), risk(1, 1, 1, 1, 1, usd=1.5)]) is None
    never = worth_measuring([risk(1, 1, 1, 1, None, usd=1.0), risk(1, 1, 1, 1, 1, usd=1.5)])
    assert never.usd_per_hour == pytest.approx(1.5 - 1.1)


def test_stretched_lengths_leave_the_arrivals():
    load = target(2.0).workload
    longer = replace(load, lengths=CHAT.lengths)
    assert (load.requests().arrival_s == longer.requests().arrival_s).all()


def test_a_cache_that_fits_barely_is_simulated_smaller():
    """The cache of 70B on two H100 in bf16 is 4.3 GiB, and its plan may be off by 4."""
    deployment = deploy("llama-3.1-70b", "h100-sxm", layout=default_layout(load_model("llama-3.1-70b"), tp=2))
    load = Target(2.0, Workload(CHAT.arrivals(2.0), CHAT.lengths, 200), parse_slo("ttft:5s"), lambda of: of.replicas)
    candidate = Candidate(deployment.model, deployment.hardware, deployment.layout, 0.0, lambda _: deployment)
    search = Search(load, [candidate])
    search.run()
    risk = Risk(search.found[0], load)
    smaller = risk.found.scenario.with_least_cache
    assert smaller.memory.num_blocks < risk.found.scenario.memory.num_blocks / 2
    assert risk.most == risk.replicas_with_least_cache > risk.replicas_when_slowest
    assert list(risk.replicas) == sorted(risk.replicas)  # by 200 requests alone one would be enough


def test_a_cache_with_room_is_not(found):
    best = found.found[0]
    assert best.scenario.with_least_cache is None
    risk = Risk(best, found.load)
    assert (risk.replicas_with_least_cache, risk.most) == (best.replicas, risk.replicas_when_slowest)
