"""Tuning: the search finds what trying everything finds, puts back what does not gain, keeps to its budget."""

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cost.capacity import capacity
from simulator.cost.scenario import Scenario
from simulator.cost.tuning import GAIN, HighestRate, Throughput, tune
from simulator.deployment.deployment import deploy
from simulator.errors import InfercastError, WorkloadError
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.load_question import SloQuestion
from simulator.questions.tune_question import TuneQuestion
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.slo import Slo
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class Load:
    seed: int = 0


@dataclass(frozen=True)
class Case:
    score: float
    workload: Load = field(default_factory=Load)


@dataclass
class Given:
    """An objective that reads the score from the case; other random numbers halve what is above 1."""

    unit: str = "points/s"
    asked: int = 0

    def beyond(self, case, least_per_s):
        self.asked += 1
        score = case.score if not case.workload.seed else 1 + (case.score - 1) / 2
        return (score, None) if score > least_per_s * (1 + GAIN) else None


VALUES = {"a": ["", "1", "2", "3"], "b": ["", "x"], "c": ["", "p", "q"]}


def searched(factors, budget=1_000, refuse=()):
    """Tune a score that is a product of one factor for each setting, 1 for its default."""

    def make(point):
        if any(point[name] == value for name, value in refuse):
            raise InfercastError("it", "cannot be", "Give another")
        score = 1.0
        for name, value in point.items():
            score *= factors.get((name, value), 1.0)
        return Case(score)

    objective = Given()
    return tune(make, VALUES, objective, budget), objective


FACTORS = st.dictionaries(
    st.sampled_from([(name, value) for name, values in VALUES.items() for value in values[1:]]),
    st.floats(0.5, 3.0).filter(lambda factor: abs(factor - 1) > 0.02),
)


@settings(deadline=None)
@given(FACTORS)
def test_settings_that_do_not_depend_on_each_other_are_tuned_as_by_trying_all(factors):
    found, _ = searched(factors)
    scores = []
    for chosen in itertools.product(*VALUES.values()):
        score = 1.0
        for name, value in zip(VALUES, chosen, strict=True):
            score *= factors.get((name, value), 1.0)
        scores.append(score)
    assert found.best.per_s >= max(scores) / (1 + GAIN) ** len(VALUES)
    assert found.default.per_s == 1
    for name, value in found.best.point.items():
        assert not value or found.without[name] * (1 + GAIN) < found.best.per_s  # nothing is changed for nothing


def test_a_gain_of_one_per_cent_is_none_and_another_seed_judges_the_best():
    found, _ = searched({("a", "1"): 1.009, ("b", "x"): 2.0})
    assert found.best.point == {"a": "", "b": "x", "c": ""}
    assert found.without == {"b": 1.0}
    assert found.again == (1.0, 1.5)
    assert found.gain == pytest.approx(0.5)


def test_where_one_setting_matters_only_beside_another_the_second_round_finds_it():
    def make(point):
        return Case({("", ""): 1.0, ("", "x"): 2.0, ("2", "x"): 4.0}.get((point["a"], point["b"]), 0.9))

    assert tune(make, VALUES, Given()).best.point == {"a": "2", "b": "x", "c": ""}


def test_a_budget_is_kept_and_impossible_settings_are_told_once():
    found, objective = searched({("c", "q"): 2.0}, budget=3)
    assert (found.tried, found.best.per_s) == (3, 1.0)
    assert objective.asked == 3 + 2  # and both on other random numbers
    whole, _ = searched({("c", "q"): 2.0})
    ends, cut = (searched({("c", "q"): 2.0}, budget=whole.tried - less)[0].is_cut for less in (0, 1))
    assert (found.is_cut, whole.is_cut, ends, cut) == (True, False, False, True)
    found, _ = searched({("b", "x"): 2.0}, refuse=[("a", "2"), ("a", "3")])
    assert found.best.per_s == 2.0
    assert len(found.refused) == 1


def test_where_nothing_is_possible_the_first_error_is_told():
    with pytest.raises(InfercastError, match="cannot be"):
        searched({}, refuse=[("c", value) for value in VALUES["c"]])


# --------------------------------------------------------------------------------------------------------- simulated

LLAMA = deploy("llama-3.1-8b", "l40s")
LOAD = Workload(OpenLoop(1.0), Independent(Fixed(512), Fixed(64)), 1_000)
SCENARIO = Scenario(LLAMA, LOAD, Slo({"ttft": 1.0, "tpot": 0.05}))


def test_the_highest_rate_is_that_of_the_capacity_search_whatever_it_is_compared_with():
    objective = HighestRate()
    default, report = objective.beyond(SCENARIO, 0.0)
    assert default == capacity(SCENARIO).rate_per_s
    for least in (0.4 * default, default):  # tiles make steps jump: rates between fail and are kept in turns
        again, _ = objective.beyond(SCENARIO, least) or (default, report)
        assert again == pytest.approx(default, rel=0.03)
    pair = replace(SCENARIO, replicas=2)
    assert objective.beyond(pair, 1.9 * default)[0] == pytest.approx(2 * default, rel=0.03)
    assert report.meets_slo


def test_throughput_is_that_of_all_replicas_and_only_within_the_slo():
    loop = replace(SCENARIO, workload=replace(LOAD, arrivals=ClosedLoop(16), request_count=160), replicas=2)
    per_s, report = Throughput().beyond(loop, 0.0)
    assert per_s == report.output_tokens_per_s
    assert per_s == pytest.approx(2 * Throughput().beyond(replace(loop, replicas=1), 0.0)[0])
    assert Throughput().beyond(replace(loop, slo=Slo({"tpot": 0.001})), 0.0) is None


@pytest.mark.slow
def test_a_small_batch_limit_is_found_to_be_raised():
    """Four sequences at once, of a limit that may be raised, serve fewer than sixteen."""
    asked = DeploymentQuestion("llama-3.1-8b", "l40s", max_num_seqs="4,16", max_num_batched_tokens="2048")
    users = WorkloadQuestion(input_len="512", output_len="64")
    fixed = replace(asked, cache_dtype="bf16", gpu_memory_utilization="0.92")
    question = TuneQuestion(fixed, users, SloQuestion("ttft:2s,tpot:100ms"))
    found = tune(question.scenario, question.coordinates, question.objective)
    assert found.best.point["--max-num-seqs"] == "16"
    assert found.gain > 0.5
    assert question.flags(found.best.point)[:2] == ["--max-num-seqs", "16"]
    assert found.without["--max-num-seqs"] < found.best.per_s


@pytest.mark.slow
@pytest.mark.parametrize(("hardware", "slo"), [("l40s", "ttft:1s,tpot:60ms"), ("h100-sxm", "ttft:300ms,tpot:20ms")])
def test_the_search_finds_the_best_of_all_combinations(hardware, slo):
    question = TuneQuestion(DeploymentQuestion("llama-3.1-8b", hardware), CHAT, SloQuestion(slo))
    values = {"--max-num-seqs": ["", "16", "64"], "--max-num-batched-tokens": ["", "512", "1024"]}
    values["--cache-dtype"] = ["", "fp8"]
    found = tune(question.scenario, values, HighestRate())
    points = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    scores = [HighestRate().beyond(question.scenario(point), 0.0)[0] for point in points]
    assert found.best.per_s == pytest.approx(max(scores), rel=0.03)
    assert found.tried < len(points)


# --------------------------------------------------------------------------------------------------------- questions

ASKED, CHAT, BOUNDS = DeploymentQuestion("llama-3.1-8b", "l40s"), WorkloadQuestion("chat"), SloQuestion("ttft:1s")


def test_what_is_given_is_fixed_and_lists_restrict():
    asked = replace(ASKED, max_num_seqs="64", cache_dtype="bf16,fp8", gpu_memory_utilization="0.9")
    found = TuneQuestion(asked, CHAT, devices=4, drafts=("eagle:0.7",)).coordinates
    assert "--max-num-seqs" not in found
    assert "--gpu-memory-utilization" not in found
    assert found["--cache-dtype"] == ["", "fp8"]
    assert found["--tp"] == ["", "2", "4"]
    assert found["speculation"][:2] == ["", "eagle x 1"]
    point = dict.fromkeys(found, "") | {"speculation": "eagle x 3", "--tp": "2", "--set chunked_prefill": "false"}
    question = TuneQuestion(asked, CHAT, BOUNDS, 4, ("eagle:0.7",))
    scenario = question.scenario(point)
    assert (scenario.replicas, scenario.deployment.tp, scenario.deployment.max_num_seqs) == (2, 2, 64)
    assert scenario.deployment.settings.speculation.rates == (0.7, 0.7, 0.7)
    assert not scenario.deployment.engine.chunked_prefill
    assert scenario.deployment.layout.cache_dtype == "bf16"


def test_the_flags_are_read_as_the_same_deployment():
    question = TuneQuestion(ASKED, CHAT, BOUNDS, drafts=("medusa:0.6",))
    point = {"--max-num-seqs": "32", "--set long_prefill_tokens": "256", "speculation": "medusa x 2"}
    flags = question.flags(point)
    words = dict(zip(flags[::2], flags[1::2], strict=True))
    typed = replace(
        ASKED,
        max_num_seqs=words["--max-num-seqs"],
        changes=(words["--set"],),
        speculative_model=words["--speculative-model"],
        num_speculative_tokens=int(words["--num-speculative-tokens"]),
        acceptance_rate=words["--acceptance-rate"],
    )
    assert typed.deployment() == question.scenario(point).deployment


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"accepted": SloQuestion()}, "tune without --slo"),
        ({"users": WorkloadQuestion("chat", request_rate="2")}, "tune searches"),
        ({"users": WorkloadQuestion(input_len="1,2", output_len="3")}, "several loads"),
    ],
)
def test_loads_that_are_not_tuned_are_refused(changed, told):
    with pytest.raises(WorkloadError, match=told):
        replace(TuneQuestion(ASKED, CHAT, BOUNDS), **changed).objective  # noqa: B018


def test_without_a_number_of_devices_they_are_those_of_one_replica_as_asked():
    question = TuneQuestion(replace(ASKED, tp="2"), CHAT, BOUNDS)
    assert [question.scenario(point).replicas for point in ({}, {"--tp": "1"})] == [1, 2]


def test_drafts_without_a_rate_and_devices_that_do_not_divide_are_refused():
    with pytest.raises(InfercastError, match="no default acceptance would be honest"):
        TuneQuestion(ASKED, CHAT, BOUNDS, drafts=("eagle",)).coordinates  # noqa: B018
    with pytest.raises(InfercastError, match="no whole number of them"):
        TuneQuestion(replace(ASKED, tp="2"), CHAT, BOUNDS, devices=3).scenario({})
