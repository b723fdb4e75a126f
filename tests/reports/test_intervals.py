"""Error bars: what a prediction rests on, how wide its interval is, and that it holds its share of what is left out."""

import csv
import gzip
import math
from dataclasses import replace
from functools import cache, partial
from operator import itemgetter

import numpy as np
import pytest

from simulator.cost.capacity import capacity
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import deploy
from simulator.deployment.memory import CACHE_ERROR
from simulator.reports.interval_widths import WidthKey, basis_of, shipped, width_key
from simulator.reports.intervals import Interval, PredictionRange, interval, step_factors
from simulator.reports.slo import Slo
from simulator.validation.prediction import ask, predict
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Independent, LogNormal
from simulator.workloads.workload import Workload
from tests.support.measured import published, recipe
from tests.support.paths import FIXTURES
from tools.fit_intervals import Summary, alike, held, in_table, open_loops, residuals, summaries
from tools.fit_widths import Residual, Residuals

METRICS = ("ttft_ms", "tpot_ms", "throughput_out_tok_s", "tg_tok_s", "pp_tok_s")
REGIMES = ("fixed_batch", "single", "closed_loop", "open_loop", "offline")


ROUNDING = 1e-12  # of a quotient times its divisor
DRAWS = np.linspace(-0.9, 0.9, 10)  # places in an interval, from end to end of one of 90 %


@pytest.fixture(scope="module")
def left_out(tmp_path_factory) -> list[Residual]:
    """Errors of predictions that had not seen the row's source: what `tools.fit_efficiency --left-out` wrote."""
    path = tmp_path_factory.mktemp("left_out") / "left_out.csv"
    path.write_bytes(gzip.decompress((FIXTURES / "left_out.csv.gz").read_bytes()))
    with path.open(newline="") as file:
        assert next(csv.reader(file))[0] == "left_out"
    return residuals(path)


@pytest.fixture(scope="module")
def known(left_out) -> Residuals:
    """Those of which the table is made."""
    return Residuals(in_table(left_out))


@pytest.mark.parametrize(
    ("hardware", "engine", "basis"),
    [
        ("h100-sxm", "vllm", "fitted"),
        ("rtx-4090", "llama.cpp", "fitted"),
        ("l40s", "vllm", "family"),  # kernel tables of L40S, but no measured run of vLLM on an Ada workstation card
        ("t4", "vllm", "guess"),
        ("t4", "sglang", "guess"),
    ],
)
def test_the_label_says_what_a_prediction_rests_on(hardware, engine, basis):
    assert basis_of(deploy("llama-3.1-8b", hardware, engine)) == basis


def test_own_measurements_are_the_basis_of_what_they_are_of_and_of_nothing_else():
    deployment = deploy("llama-3.1-8b", "t4", "vllm")
    kernels = deployment.engine.kernels_on(deployment.hardware).of_engine
    kernels = kernels.model_copy(update={"residuals": {"tpot_ms fixed_batch": (0.02, -0.03, 0.05, -0.01)}})
    engine = deployment.engine.model_copy(update={"kernels": (kernels,)})
    changed = type(deployment)(deployment.model, deployment.hardware, engine, deployment.layout)
    assert basis_of(changed) == "measured"
    kinds = [("tpot_ms", "fixed_batch"), ("ttft_ms", "fixed_batch"), ("throughput_out_tok_s", "offline")]
    guessed, measured = ([interval(each, *kind) for kind in kinds] for each in (deployment, changed))
    assert measured[0].basis == "measured" != guessed[0].basis
    assert measured[0].high / measured[0].low < guessed[0].high / guessed[0].low
    assert measured[1:] == guessed[1:]


def test_one_own_setup_stands_beside_the_widths_of_what_the_answer_rested_on():
    widths = []
    for traits in ((), ("family", "guess")):
        low, high = shipped().with_own([0.02], WidthKey("tpot_ms", "single", traits), 0.8)
        widths.append(high - low)
    assert widths[0] < widths[1]


def test_an_interval_holds_the_prediction_and_grows_with_the_level():
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    for metric in METRICS:
        for regime in REGIMES:
            narrow, wide = (interval(deployment, metric, regime, level) for level in (0.5, 0.9))
            assert wide.low <= narrow.low <= 1.0 <= narrow.high <= wide.high
    low, high = interval(deployment, "tpot_ms", "fixed_batch").around(10.0)
    assert low <= 10.0 <= high


@pytest.mark.parametrize("weaker", [("family",), ("family", "guess"), ("experts",), ("tail",), ("desktop",)])
def test_what_is_further_from_the_fit_is_no_surer(weaker):
    """Each is less sure on one side at least; rates of the family's own tables may be as sure as fitted ones."""
    for metric in METRICS:
        (low, high), (least, most) = (shipped().ends(WidthKey(metric, "single", each), 0.8) for each in ((), weaker))
        assert least <= low <= 0 <= high <= most
    assert weaker == ("family",) or any(each.traits[weaker[-1]] > 1 for each in (shipped().slower, shipped().faster))


def test_traits_are_those_of_the_deployment_and_the_statistic():
    dense, experts = (deploy(model, "h100-sxm") for model in ("llama-3.1-8b", "gpt-oss-120b"))
    assert width_key(dense, "mean ttft_ms", "closed_loop") == ("ttft_ms", "closed_loop", ())
    assert width_key(experts, "p95 ttft_ms", "closed_loop").traits == ("experts", "tail")
    assert width_key(deploy("llama-3.1-8b", "l40s"), "tpot_ms", "single").traits == ("family",)
    assert width_key(deploy("llama-3.1-8b", "t4"), "tpot_ms", "single").traits == ("family", "guess")
    desktop = deploy("llama-3.1-8b", "rtx-4090", "llama.cpp")
    kinds = ("pp_tok_s", "single"), ("ttft_ms", "fixed_batch"), ("ttft_ms", "closed_loop"), ("tg_tok_s", "single")
    assert ["desktop" in width_key(desktop, *kind).traits for kind in kinds] == [True, True, False, False]
    assert "desktop" not in width_key(dense, *kinds[0]).traits
    median, tail = (interval(dense, f"{stat} ttft_ms", "closed_loop") for stat in ("median", "p99"))
    assert tail.high > median.high


def test_requests_per_second_go_with_output_tokens():
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    assert interval(deployment, "req_s", "offline") == interval(deployment, "throughput_out_tok_s", "offline")


def test_an_interval_is_widened_by_what_lies_outside_and_by_nothing_else():
    found = Interval(0.8, 1.5, 0.8, "fitted")
    assert found.holding(20.0, [17.0, 29.0]) == found
    assert found.holding(20.0, [10.0]) == found._replace(low=0.5)
    assert Interval(1.1, 1.5, 0.8, "fitted").holding(20.0, []).low == 1.0  # the prediction itself


def test_a_prediction_is_made_again_with_both_ends_of_the_steps_and_of_the_cache():
    """Of steps in open loops alone; of the cache where it is nearly full, a twentieth of the memory each way."""
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    short, long = interval(deployment, "throughput_out_tok_s", "offline").of_inverse.around(1.0)

    def others(regime):
        return PredictionRange(deployment, regime, 0.8, 1.0, lambda factor: factor, lambda share: share).others

    assert others("open_loop") == (short, long, -CACHE_ERROR, CACHE_ERROR)
    assert others("closed_loop") == (-CACHE_ERROR, CACHE_ERROR)
    assert PredictionRange(deployment, "open_loop", 0.8, 1.0).others == ()


@pytest.mark.slow
def test_the_shipped_table_is_the_one_of_what_was_left_out(known):
    made = known.tables[""]
    for ours, theirs in ((made.slower, shipped().slower), (made.faster, shipped().faster)):
        assert ours.width == pytest.approx(theirs.width, rel=0.01)
        assert ours.shape == pytest.approx(theirs.shape, rel=0.02)
        for kind in ("metric", "regime", "traits"):
            assert getattr(ours, kind) == pytest.approx(getattr(theirs, kind), rel=0.02), kind


@pytest.mark.slow
def test_intervals_of_80_per_cent_hold_on_sources_that_nothing_has_seen(known):
    """Neither the constants nor the table have seen the row's source. Of n groups, 80 % is told to 2 sqrt(0.16 / n)."""
    found = dict(summaries(held(known)))
    regimes = ("fixed_batch", "single", "closed_loop", "offline", "limited")
    kinds = ("all", *regimes, "dense", "experts", "fitted", "family", "guess")
    for name in (*kinds, *(name for name, each in found.items() if each.rows > 1000)):  # metrics and sources, too
        assert abs(found[name].inside_groups - 0.8) < 2 * math.sqrt(0.8 * 0.2 / found[name].groups), name
    assert max(found[name].inside for name in ("all", *regimes, "experts")) <= 0.86
    assert min(found[name].inside for name in kinds) >= 0.75
    same = alike(known)
    assert found["all"].score < same.score  # and factors win it, not width
    assert found["all"].width < 1.05 * same.width


@pytest.mark.slow
def test_so_do_the_simulated_intervals_of_open_loops(left_out, known):
    loops = open_loops(left_out, published(), known)
    assert 0.75 <= Summary.of(loops).inside <= 0.96  # 59 of 62 rows; three groups
    ttft = [each for each in loops if each.residual.key.metric == "ttft_ms"]
    assert Summary.of(ttft).inside >= 0.75


@pytest.mark.slow
def test_runs_under_published_limits_are_told_apart_alike(left_out):
    regimes = {each.id: each.key.regime for each in left_out}
    rows = [row for row in published() if row.id in regimes]
    limited = {setup: bool(recipe(setup).latency_limits_s) for setup in {row.setup for row in rows}}
    for row in rows:
        assert (regimes[row.id] == "limited") == limited[row.setup], row.id


# ------------------------------------------------------------------------------------------------ open loops


LOADS = (0.2, 0.5, 0.8, 0.95)


@cache
def chat() -> Scenario:
    lengths = Independent(LogNormal(500, 0.8, 4000), LogNormal(150, 0.8, 1000))
    scenario = Scenario(deploy("llama-3.1-8b", "h100-sxm"), Workload(OpenLoop(1.0), lengths, 4_000))
    most = capacity(replace(scenario, slo=Slo({"tpot": 1.0}))).rate_per_s
    return replace(scenario, workload=replace(scenario.workload, arrivals=OpenLoop(most)))


@cache
def loaded(share: float, step_factor: float = 1.0) -> dict[str, float]:
    """Mean latencies at a share of the capacity, with steps that take so many times as long; inf where none exists."""
    scenario = chat().with_steps(step_factor)
    report = scenario.report(scenario.workload.at_rate(share * scenario.workload.arrivals.rate_per_s))
    names = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_latency_ms": "e2el"}
    grows = report.endless
    return {of: math.inf if grows and of != "tpot_ms" else report.metrics[it]["mean"] for of, it in names.items()}


def ends(metric: str, share: float) -> tuple[float, float]:
    bracket = PredictionRange(chat().deployment, "open_loop", 0.8, loaded(share), partial(loaded, share))
    return bracket.ends(metric, itemgetter(metric))


@pytest.mark.parametrize("factor", [0.5, 1.25])
def test_steps_twice_as_long_are_a_clock_that_runs_half_as_fast(factor):
    """All times of a queue scale together: steps times f at a rate r are, times f, steps as they are at f r."""
    assert loaded(0.5, factor)["tpot_ms"] == pytest.approx(factor * loaded(0.5 * factor)["tpot_ms"], rel=1e-6)


@pytest.mark.parametrize("share", LOADS)
def test_an_engine_whose_steps_differ_as_measured_ones_do_lies_within(share):
    """Engines with steps from all over what throughput was measured at: 80 % intervals hold at least 80 % of them."""
    slow, fast = shipped().ends(WidthKey("throughput_out_tok_s", "offline"), np.abs(DRAWS))
    draws = np.exp(np.where(DRAWS < 0, slow, fast))
    for metric in ("ttft_ms", "tpot_ms"):
        low, high = ends(metric, share)
        truths = [loaded(share, round(1 / each, 4))[metric] for each in draws]
        assert sum(low <= truth <= high for truth in truths) >= 8, (metric, low, high, truths)


def test_far_from_saturation_it_is_that_of_a_closed_loop_and_near_it_has_no_end():
    deployment = chat().deployment
    alone = interval(deployment, "ttft_ms", "closed_loop").around(loaded(0.2)["ttft_ms"])
    low, high = ends("ttft_ms", 0.2)
    assert high == pytest.approx(alone[1])
    assert low == pytest.approx(alone[0], rel=0.02)  # with the shortest steps some wait for fewer messages of others
    widths = [high / low for low, high in (ends("tpot_ms", share) for share in LOADS)]
    assert widths[:3] == sorted(widths[:3])
    assert widths[3] > 2 * widths[0]  # a full engine's TPOT has an end, so it widens no further
    assert ends("ttft_ms", 0.95)[1] == math.inf


def test_own_measurements_of_tpot_narrow_the_steps():
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    kernels = deployment.engine.kernels_on(deployment.hardware).of_engine
    own = kernels.model_copy(update={"residuals": {"tpot_ms open_loop": (0.01, -0.02) * 10}})
    engine = deployment.engine.model_copy(update={"kernels": (own,)})
    (low, high), (least, most) = (step_factors(each) for each in (deployment, replace(deployment, engine=engine)))
    assert low < least < 1.0 < most < high


@pytest.mark.slow
def test_a_published_open_loop_has_the_interval_of_its_load():
    rows = [
        row
        for row in published()
        if row.setup.source == "tensorrt-llm-docs-online-serving"
        and row.metric == "ttft_ms"
        and row.setup.regime == "open_loop"
    ]
    found = predict(sorted(rows, key=lambda row: row.setup.rate_per_s), level=0.8)
    assert all(each.low <= each.value <= each.high < math.inf for each in found)  # runs of a stated length
    spreads = []
    for each in (found[0], found[-1]):
        asked, stat = ask(each.measurement.setup), each.measurement.stat
        others = (replace(asked.deployment, step_factor=by) for by in step_factors(asked.deployment, 0.8))
        shortest, longest = (asked.on(other).answer().value("ttft_ms", stat) for other in others)
        ends = each.low * (1 - ROUNDING), each.high * (1 + ROUNDING)
        assert ends[0] <= shortest < longest <= ends[1]  # no narrower than what other steps would give
        spreads.append(longest / shortest)
    assert spreads[1] > spreads[0]  # near saturation longer steps lengthen the queue as well
