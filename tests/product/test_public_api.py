"""The public API: names, documentation with an example, types that a user's checker sees, answers that are tables."""

import ast
import inspect
import math
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_origin

import numpy as np
import pandas as pd
import pytest

import simulator
from simulator.frames import MOST_ROWS, Framed

SOURCE = Path(simulator.__file__)
ANSWERS = {  # what the verbs return
    "answer": "cost.capacity.Answer",
    "capacity": "cost.capacity.Capacity",
    "check_logs": "calibration.engine_logs.LogCheck",
    "compare": "cost.capacity.Comparison",
    "estimate": "deployment.estimate.Estimate",
    "judge_claims": "claims.verdict.Verdicts",
    "memory_plan": "deployment.memory.MemoryPlan",
    "offload_curve": "deployment.offload_curve.OffloadCurve",
    "packed": "cost.packing.Packing",
    "simulate": "reports.report.Report",
    "sweep": "questions.sweep.SweepAnswers",
    "training_of": "cost.training.Training",
    "validate": "validation.scores.Validation",
}


def typed_names() -> dict[str, str]:
    """The names that a type checker sees, each with the module that it is imported from."""
    block = next(node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: node.module for node in imports for name in node.names}


def answer_class(verb: str) -> type:
    module, _, name = ANSWERS[verb].rpartition(".")
    return getattr(import_module(f"simulator.{module}"), name)


def test_a_type_checker_sees_what_is_there():
    assert sorted(typed_names()) == simulator.__all__
    for name, module in typed_names().items():
        assert inspect.unwrap(getattr(simulator, name)) is getattr(import_module(module), name)
    assert set(simulator.__all__) <= set(dir(simulator))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'guess'"):
        simulator.guess  # noqa: B018


@pytest.mark.parametrize("name", simulator.__all__)
def test_is_documented_with_an_example(name):
    """`make test` runs the examples, as doctests."""
    first, *rest = inspect.getdoc(getattr(simulator, name)).splitlines()
    assert first.endswith((".", ":"))
    assert any(line.startswith(">>> ") for line in rest)


@pytest.mark.parametrize("verb", ANSWERS)
def test_answers_are_frozen_tables(verb):
    answer = answer_class(verb)
    returned = inspect.signature(getattr(simulator, verb)).return_annotation
    assert (get_origin(returned) or returned) in (answer, answer.__name__)
    assert issubclass(answer, Framed)
    assert answer.__dataclass_params__.frozen
    assert fields(answer)
    assert answer.__repr__ is Framed.__repr__  # not the tree of all profiles


def test_every_verb_is_judged():
    verbs = {name for name in simulator.__all__ if inspect.isfunction(getattr(simulator, name))}
    makers = {"default_layout", "deploy", "offers", "own_offer", "parse_slo", "read_trace"}  # parts of questions
    assert {name for name in verbs - makers if not name.startswith("load_")} == set(ANSWERS)


def test_a_notebook_shows_the_table():
    plan = simulator.memory_plan(simulator.deploy("llama-3.1-8b", "h100-sxm"))
    shown = plan._repr_html_()
    assert shown.count("<tr") == 2 + len(plan.to_frame())
    assert "16,060,000,000" in shown
    assert "16,060,000,000" in repr(plan)


def test_a_long_table_is_cut_and_says_so():
    found = simulator.judge_claims(*range(1, 8))
    rows = len(found.to_frame())
    assert rows > MOST_ROWS
    assert f"{MOST_ROWS} of {rows} rows" in found._repr_html_()
    assert f"{MOST_ROWS} of {rows} rows" in repr(found)
    assert found.to_frame()["reason"][0] in found._repr_html_()  # whole, not cut


class Named(Framed):
    """An answer with a name that is markup."""

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"model": ["<b>mine</b>"]}, index=pd.Index(["<i>"], name="case"))


def test_names_are_text():
    assert "<b>" not in Named()._repr_html_()
    assert "<i>" not in Named()._repr_html_()
    assert "<b>mine</b>" in repr(Named())


def test_what_a_prompt_shows_is_short():
    """Profiles and deployments name themselves; `infercast profiles` shows their figures."""
    deployment = simulator.deploy("llama-3.1-8b", "h100-sxm", "vllm-0.33")
    assert repr(deployment) == "Deployment(llama-3.1-8b (bf16) on h100-sxm, vllm-0.33)"
    assert repr(deployment.hardware) == "Hardware('h100-sxm')"
    chat = simulator.load_workload("chat")
    load = simulator.Workload(chat.arrivals(1.0), chat.lengths)
    assert len(repr(simulator.Scenario(deployment, load))) < 3_000


L4 = simulator.DeploymentQuestion("llama-3.2-1b", "l4")


def load(arrivals, tokens=64, requests=50):
    lengths = simulator.Independent(simulator.Fixed(tokens), simulator.Fixed(8))
    return simulator.Workload(arrivals, lengths, request_count=requests)


def test_numbers_of_a_column_are_as_good_as_python_s():
    deployment = simulator.deploy("llama-3.2-1b", "l4", settings=simulator.Settings(max_num_seqs=64))
    (size,) = pd.Series([64])
    again = simulator.deploy("llama-3.2-1b", "l4", settings=simulator.Settings(max_num_seqs=size))
    runs = [
        simulator.simulate(simulator.Scenario(each, load(simulator.ClosedLoop(count), count, count)))
        for each, count in ((deployment, 64), (again, size))
    ]
    pd.testing.assert_frame_equal(*[run.to_frame() for run in runs])
    alone = [simulator.estimate(deployment, simulator.Batch(count, count, count)) for count in (64, size)]
    pd.testing.assert_frame_equal(*[each.to_frame() for each in alone])


@pytest.mark.parametrize("given", [1.5, "8", np.float64(8), 0])
def test_a_batch_has_whole_numbers(given):
    with pytest.raises(simulator.InfercastError, match="whole requests and tokens"):
        simulator.Batch(given, 10, 10)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda: simulator.compare([], -1.0), "finite rate above 0"),
        (lambda: simulator.compare([], math.inf), "finite rate above 0"),
        (
            lambda: simulator.answer(simulator.Scenario(simulator.deploy("llama-3.2-1b", "l4"), load(None)), 0.0),
            "above 0",
        ),
        (lambda: simulator.sweep(simulator.BatchQuestion(L4), level=80), "level 80"),
        (lambda: simulator.sweep(simulator.BatchQuestion(L4), level=0.99), "up to 0.95"),
        (lambda: simulator.validate("nowhere.csv", level=0.0), "level 0:"),
        (lambda: simulator.validate("nowhere.csv"), "cannot be read"),
        (lambda: simulator.sweep(simulator.BatchQuestion(L4), jobs=0), "0 jobs"),
        (lambda: simulator.Terms("reservd"), "Nearest: reserved"),
        (lambda: simulator.Terms(providers="Seeweb"), "Give \\('Seeweb',\\)"),
        (lambda: simulator.Settings(changes="policy=static"), "Give \\('policy=static',\\)"),
    ],
)
def test_a_mistake_in_python_is_one_line_in_three_parts(mistake, told):
    with pytest.raises(simulator.InfercastError, match=told):
        mistake()
