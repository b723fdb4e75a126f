"""The search finds what simulating everything finds, never cuts the best, and can be stopped at any time."""

import pickle
from dataclasses import replace
from functools import cache, partial

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from simulator import Scenario, Settings, Workload, deploy, load_hardware, load_model, own_offer, parse_slo
from simulator.cost.candidate import Candidate, Rental
from simulator.cost.capacity import LIGHTEST_SHARE, Capacity, answer
from simulator.cost.light_bounds import Demand, LightBounds
from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.search import Search, Target, priced_target
from simulator.cost.spot import Interruptions
from simulator.deployment.deployment import deployment_of
from simulator.deployment.layouts import default_layout
from simulator.engines.engine import load_engine
from simulator.executors.threads import Threads
from simulator.reports.intervals import step_quantile
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent, LogNormal

ALONE = Threads(1)
MODEL, ENGINE = load_model("qwen3-0.6b"), load_engine("vllm")
KINDS = [load_hardware(name) for name in ("l4", "l40s", "h100-sxm")]


@cache
def device(kind: int, speed: float):
    """A device of the library, so many times as fast, under a name of its own."""
    like = KINDS[kind]
    faster = {
        "memory_bytes_per_s": like.memory_bytes_per_s * speed,
        "peak_flops_per_s": {name: peak * speed for name, peak in like.peak_flops_per_s.items()},
    }
    copy = like.model_copy(update=faster)
    copy._id = f"{like.id}-{speed}"
    return copy


def built_on(hardware, layout):
    return deployment_of(MODEL, hardware, ENGINE, layout, Settings())


class Elsewhere:
    """An executor like a cluster: what it gets and gives is pickled."""

    width = 2

    def finished(self, work, tasks):
        for place, task in enumerate(tasks):
            yield place, pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(task)))))


def search_of(library, load: Target, top: int, executor=ALONE, quantile=0.5) -> Search:
    asked = Demand(load.workload.requests(), load.slo)
    candidates = []
    for place, (hardware, tp) in enumerate(library):
        layout = default_layout(MODEL, tp=tp)
        light = LightBounds(MODEL, (layout.weight_dtype, layout.cache_dtype), asked)
        build = partial(built_on, hardware)
        candidates.append(Candidate(MODEL, hardware, layout, light.device_s(hardware), build, place))
    return Search(load, candidates, top=top, executor=executor, quantile=quantile)


MOST = 24  # replicas that are simulated


def exhaustive(library, load: Target, quantile: float) -> dict[str, float]:
    """The least cost of each device by simulating every number of replicas of every layout, without any bound.

    As `cost` answers them. Loads on the edge of the SLO, of which more replicas keep less by chance, are no examples,
    nor are those that need more than MOST.
    """
    least: dict[str, float] = {}
    for hardware, tp in library:
        deployment = deployment_of(MODEL, hardware, ENGINE, default_layout(MODEL, tp=tp), Settings())
        scenario = Scenario(deployment, load.workload, load.slo).with_steps(step_quantile(deployment, quantile))
        rates = [load.workload.at_rate(load.rate_per_s / replicas) for replicas in range(1, MOST + 1)]
        keeps = [scenario.report(workload).meets_slo for workload in rates]
        assume(keeps == sorted(keeps))
        assume(any(keeps) or not scenario.report(load.workload.at_rate(load.rate_per_s / 1000)).meets_slo)
        if any(keeps):  # not by a load lighter than any that is searched
            assume(load.rate_per_s / (keeps.index(True) + 1) > LIGHTEST_SHARE * lower_bounds(scenario).most_per_s)
        if any(keeps):
            needed = answer(scenario, load.rate_per_s).replicas  # by many requests: no fewer than by the asked ones
            assert needed == 0 or needed > keeps.index(True)
            cost = load.price(Rental(hardware, tp, needed))
            assume(needed)
            least[hardware.id] = min(cost, least.get(hardware.id, cost))
    return least


libraries = st.lists(
    st.tuples(st.builds(device, st.integers(0, 2), st.sampled_from([0.25, 0.5, 1.0, 2.0])), st.sampled_from([1, 2])),
    min_size=1,
    max_size=3,
    unique_by=lambda each: (each[0].id, each[1]),
)
lengths = st.builds(
    Independent,
    st.one_of(st.builds(Fixed, st.sampled_from([50, 400, 2000])), st.just(LogNormal(500, 1.0))),
    st.builds(Fixed, st.sampled_from([1, 20, 150])),
)
slos = st.sampled_from(["ttft:60ms", "ttft:300ms,tpot:8ms", "ttft:1s,tpot:30ms", "e2el:1s", "tpot:4ms"])


@pytest.mark.slow
@settings(max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    library=libraries,
    lengths=lengths,
    slo=slos,
    rate=st.sampled_from([1.0, 6.0, 20.0]),
    prices=st.lists(st.sampled_from([0.5, 1.0, 1.5, 4.0]), min_size=12, max_size=12),
    quantile=st.sampled_from([0.5, 0.9]),
)
def test_the_search_finds_what_simulating_everything_finds(library, lengths, slo, rate, prices, quantile):
    ids = sorted({hardware.id for hardware, _ in library})

    def price(of):
        return prices[ids.index(of.hardware.id)] * of.devices * of.replicas

    load = Target(rate, Workload(OpenLoop(rate), lengths, 300), parse_slo(slo), price)
    search = search_of(library, load, top=len(library), quantile=quantile)
    search.run()
    everything = exhaustive(library, load, quantile)
    assert {each.candidate.hardware.id: each.usd_per_hour for each in search.found} == everything
    best = search_of(library, load, top=1, executor=Threads(2), quantile=quantile)
    best.run()
    assert [each.usd_per_hour for each in best.found] == sorted(everything.values())[:1]


def chat_load(rate: float, slo: str = "ttft:500ms,tpot:30ms") -> Target:
    workload = Workload(OpenLoop(rate), Independent(LogNormal(600, 1.0), Fixed(100)), 500)
    return Target(rate, workload, parse_slo(slo), lambda of: 2.0 * of.devices * of.replicas)


LIBRARY = [(device(kind, speed), tp) for kind in range(3) for speed in (0.25, 1.0) for tp in (1, 2)]


def test_answers_come_cheapest_first_whoever_simulates():
    found = []
    for executor in (Threads(1), Threads(3), Elsewhere()):
        search = search_of(LIBRARY, chat_load(40.0), top=3, executor=executor)
        search.run()
        found.append([(each.candidate.hardware.id, each.replicas, each.usd_per_hour) for each in search.found])
    assert found[0] == found[1] == found[2]
    assert [usd for *_, usd in found[0]] == sorted(usd for *_, usd in found[0])
    assert len({name for name, *_ in found[0]}) == 3


def test_each_answer_keeps_the_slo_and_one_replica_less_does_not():
    load = chat_load(100.0)
    search = search_of(LIBRARY, load, top=3)
    search.run()
    assert any(each.replicas > 1 for each in search.found)
    for each in search.found:
        again = replace(each.scenario, deployment=replace(each.scenario.deployment))
        assert again.report(load.workload.at_rate(load.rate_per_s / each.replicas)).meets_slo
        if each.replicas > 1:
            less = load.rate_per_s / (each.replicas - 1)
            assert less > each.answer.capacity.rate_per_s or not again.report(load.workload.at_rate(less)).meets_slo


def test_an_answer_is_that_of_the_one_search_for_the_highest_rate():
    """Where the asked requests are too few for a queue to build up, the highest rate says that it takes more."""
    load = chat_load(60.0)._replace(slo=parse_slo("e2el:20s"))
    search = search_of(LIBRARY, load._replace(workload=replace(load.workload, request_count=60)), top=3)
    search.run()
    assert len(search.found) == 3
    for each in search.found:
        by_cost = answer(each.scenario, load.rate_per_s)
        assert (each.replicas, each.answer.capacity.rate_per_s) == (by_cost.replicas, by_cost.capacity.rate_per_s)
        assert each.usd_per_hour == 2.0 * each.candidate.devices * each.replicas
    several = [(each.scenario, 60.0 / (each.replicas - 1)) for each in search.found if each.replicas > 1]
    assert any(scenario.report(scenario.workload.at_rate(rate)).meets_slo for scenario, rate in several)


def test_slower_steps_take_no_fewer_replicas():
    found = []
    for quantile in (0.1, 0.5, 0.9):
        search = search_of(LIBRARY, chat_load(100.0), top=len(LIBRARY), quantile=quantile)
        search.run()
        found.append({each.candidate.hardware.id: each.usd_per_hour for each in search.found})
    fast, predicted, slow = found
    assert all(fast[each] <= predicted[each] for each in predicted)
    assert all(predicted[each] <= slow[each] for each in slow)
    assert sum(predicted.values()) < sum(slow.values()) or len(slow) < len(predicted)


def test_most_of_a_large_library_is_cut_without_a_simulation():
    library = [(device(kind, 1.0 + at / 100), tp) for kind in range(3) for at in range(20) for tp in (1, 2)]
    load = chat_load(2.0)._replace(price=lambda of: float(of.hardware.memory_bytes) * of.devices * of.replicas)
    search = search_of(library, load, top=3)
    search.run()
    assert len(search.found) == 3
    assert search.simulated < len(library) / 4


def test_a_device_without_a_price_comes_last():
    def usd_per_hour(of: Rental) -> float | None:
        return None if of.hardware.id.startswith("h100") else 2.0 * of.devices * of.replicas

    search = search_of(LIBRARY, chat_load(2.0)._replace(price=usd_per_hour), top=6)
    search.run()
    usd = [each.usd_per_hour for each in search.found]
    assert usd[-1] is None
    assert None not in usd[: usd.index(None)]


def test_spot_is_ranked_with_its_spare_instances():
    """One l40s at $1 twice, of which one is spare, costs more than one that never goes away at $1.50."""
    wild = Interruptions(0.5, 24 * 3600.0)

    def offers(hardware, devices):
        spot = hardware.id.startswith("l40s")
        return (
            own_offer("l40s" if spot else "h100-sxm", 1.0 if spot else 1.5, devices, "spot" if spot else "reserved"),
        )

    load = chat_load(0.5, "ttft:2s,tpot:60ms")
    load = priced_target(load.rate_per_s, load.workload, load.slo, offers, wild)
    search = search_of([(device(1, 1.0), 1), (device(2, 1.0), 1)], load, top=2)
    search.run()
    assert [each.candidate.hardware.id for each in search.found] == ["h100-sxm-1.0", "l40s-1.0"]
    for each in search.found:
        assert each.usd_per_hour == each.price(load, each.replicas)
        assert each.usd_per_hour == each.scenario.packing(each.replicas).usd_per_hour
    assert search.found[1].usd_per_hour > 1.5


def test_owned_devices_are_ranked_with_the_electricity_of_their_load():
    """An L40S costs less than an L4 to own, and less with both waiting; at work it takes more than the difference."""
    usd = {"l4": 0.25, "l40s": 0.20}

    def offers(hardware, devices):
        name = hardware.id.split("-")[0]
        return (own_offer(name, usd[name], devices, "owned").model_copy(update={"usd_per_kwh": 1.0}),)

    load = chat_load(1.0, "ttft:2s,tpot:60ms")
    load = priced_target(load.rate_per_s, load.workload, load.slo, offers)
    search = search_of([(device(0, 1.0), 1), (device(1, 1.0), 1)], load, top=2)
    search.run()
    assert [each.candidate.hardware.id for each in search.found] == ["l4-1.0", "l40s-1.0"]
    for each in search.found:
        paid = answer(each.scenario, load.rate_per_s, Capacity(2.0, each.report, "")).at_load
        assert each.usd_per_hour == pytest.approx(paid.usd_per_hour)
        assert each.usd_per_hour == each.price(load, each.replicas)
    waiting_usd = [load.price(Rental(device(kind, 1.0), devices=1)) for kind in (0, 1)]
    assert waiting_usd[1] < waiting_usd[0]


def test_what_can_never_keep_the_slo_ends_the_search():
    search = search_of(LIBRARY, chat_load(2.0, "ttft:1ms"), top=3)
    search.run()
    assert search.found == []
    assert {each.never for each in search.out} == {"ttft"}
    assert search.simulated == 0


def test_an_interrupt_leaves_what_is_known():
    load, asked = chat_load(40.0), []
    search = search_of(LIBRARY, load, top=6)

    def stop(_looked: int, _all: int) -> None:
        asked.append(1)
        if search.found:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.run(stop)
    whole = search_of(LIBRARY, load, top=6)
    whole.run()
    kept = [each.candidate.hardware.id for each in search.found]
    assert kept == [each.candidate.hardware.id for each in whole.found][: len(kept)]
    assert search.least_usd_left >= search.found[-1].usd_per_hour


def test_several_pipelines_are_searched_too():
    deployment = deploy("qwen3-0.6b", "l4", layout=default_layout(MODEL, pp=2))
    assert deployment.devices == 2
    light = LightBounds(MODEL, ("bf16", "bf16"), Demand(chat_load(5.0).workload.requests(), chat_load(5.0).slo))
    candidate = Candidate(
        MODEL,
        deployment.hardware,
        deployment.layout,
        light.device_s(deployment.hardware),
        lambda _layout: deployment,
    )
    search = Search(chat_load(5.0), [candidate])
    search.run()
    assert search.found[0].report.meets_slo
