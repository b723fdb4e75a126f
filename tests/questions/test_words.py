"""A question and its command line: every field has its flag and its default, and what is written is read again."""

import pickle
import typing
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simulator.cli import build
from simulator.cli.commands.estimate import BatchOptions
from simulator.cli.completion import table
from simulator.cli.options.compare_options import CompareOptions
from simulator.cli.options.deployment_options import DeploymentOptions, grouped
from simulator.cli.options.workload_options import RunOptions, SloOptions, WorkloadOptions
from simulator.errors import InfercastError, Setting
from simulator.limits import MOST_NUMBER, MOST_WHOLE
from simulator.questions.batch_question import BatchQuestion, BatchSizes
from simulator.questions.compare_question import CompareQuestion
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.load_question import LoadQuestion, RunQuestion, SloQuestion
from simulator.questions.words import (
    FIELDS,
    FLAGS,
    arguments,
    as_typed,
    comma_list,
    probability,
    share,
    typed_number,
    whole_numbers,
)
from simulator.questions.workload_question import WorkloadQuestion
from simulator.units import LEAST

QUESTIONS = {  # and the options of the command line that read them
    DeploymentQuestion: DeploymentOptions,
    CompareQuestion: CompareOptions,
    WorkloadQuestion: WorkloadOptions,
    SloQuestion: SloOptions,
    RunQuestion: RunOptions,
    BatchSizes: BatchOptions,
}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def options(of: type) -> dict[str, Any]:
    """Return typer's option of each field."""
    hints = get_type_hints(of, include_extras=True)
    return {each.name: hints[each.name].__metadata__[0] for each in fields(of)}


def values(kind: Any, least: float | None) -> st.SearchStrategy[Any]:
    """Return what a field of a kind may hold."""
    kinds = get_args(kind) if typing.get_origin(kind) in (typing.Union, UnionType) else (kind,)
    made = {
        str: TEXT,
        bool: st.booleans(),
        int: st.integers(0 if least is None else int(least), MOST_WHOLE),
        float: st.floats(-MOST_NUMBER if least is None else least, MOST_NUMBER).filter(
            lambda x: not 0 < abs(x) < LEAST
        ),
        Path: st.text("abc/._ -", min_size=1, max_size=12).map(Path),
        type(None): st.none(),
    }
    return st.one_of(*(made.get(each, st.lists(TEXT, min_size=1, max_size=3).map(tuple)) for each in kinds))


@st.composite
def questions(draw: st.DrawFn, of: type) -> Any:
    """Draw a question of a kind, each field with its default or anything that it may hold."""
    hints, read = get_type_hints(of), options(QUESTIONS[of])
    given = {}
    for each in fields(of):
        if each.default is MISSING or draw(st.booleans()):
            given[each.name] = draw(values(hints[each.name], read[each.name].min))
    return of(**given)


def parsed(of: type, words: list[str]) -> Any:
    """Return the options that a command reads from its words."""
    seen: list[Any] = []

    def command(asked: Any) -> None:
        seen.append(asked)

    command.__annotations__ = {"asked": of, "return": None}
    app = typer.Typer()
    app.command()(grouped(command))
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return seen[0]


@pytest.mark.parametrize("of", QUESTIONS, ids=lambda of: of.__name__)
def test_every_field_is_an_option_with_the_same_default_and_a_flag_of_its_name(of):
    read, theirs = options(QUESTIONS[of]), {each.name: each for each in fields(QUESTIONS[of])}
    for each in fields(of):
        assert theirs[each.name].default == each.default, each.name
        flag = FLAGS.get(each.name, f"--{each.name.replace('_', '-')}")
        assert flag in read[each.name].param_decls or read[each.name].default == flag, each.name
    own = theirs.keys() - {each.name for each in fields(of)}
    assert own <= {"profiles"}  # where the names are looked up is no part of a question


@pytest.mark.parametrize("of", QUESTIONS, ids=lambda of: of.__name__)
@given(st.data())
@settings(max_examples=30)
def test_what_is_written_is_read_again(of, data):
    asked = data.draw(questions(of))
    read = parsed(QUESTIONS[of], arguments(asked))
    for each in fields(of):
        found, wanted = getattr(read, each.name), getattr(asked, each.name)
        assert (tuple(found) if isinstance(found, list) else found) == wanted, each.name


def test_only_what_is_not_the_default_is_written():
    for of, words in ((DeploymentQuestion, ["--model", "m", "--hardware", "h"]), (WorkloadQuestion, [])):
        needed = {"model": "m", "hardware": "h"} if of is DeploymentQuestion else {}
        assert arguments(of(**needed)) == words
    changed = DeploymentQuestion("m", "h", pp="2", changes=("a=1", "b=2"), gpu_memory_utilization="0.9")
    assert arguments(changed)[4:] == ["--pp", "2", "--gpu-memory-utilization", "0.9", "--set", "a=1", "--set", "b=2"]
    assert arguments(RunQuestion(whole_run=True)) == ["--whole-run"]


@pytest.mark.parametrize(
    ("question", "of"),
    [
        (BatchQuestion(DeploymentQuestion("m", "h"), BatchSizes("8")), (DeploymentQuestion, BatchSizes)),
        (
            LoadQuestion(DeploymentQuestion("m", "h"), WorkloadQuestion(input_len="1")),
            (DeploymentQuestion, WorkloadQuestion, SloQuestion, RunQuestion),
        ),
    ],
)
def test_a_command_takes_every_field_of_what_its_question_consists_of(question, of):
    program, name, *words = question.command()
    assert (program, words[:4]) == ("infercast", ["--model", "m", "--hardware", "h"])
    (command,) = (each for each in build([name]).registered_commands if each.name == name)
    taken = command.callback.__signature__.parameters
    assert {each.name for kind in of for each in fields(kind)} <= taken.keys()


@pytest.mark.parametrize("given", ["", "1,", ",", "a,,b"])
def test_a_list_with_an_empty_part_is_refused(given):
    with pytest.raises(InfercastError, match="a part of the list is empty"):
        comma_list(given, "--model")


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "x", "1,0", "²"])
def test_what_is_no_whole_number_above_0_is_refused(given):
    with pytest.raises(InfercastError, match="--tp"):
        whole_numbers(given, "--tp")


@pytest.mark.parametrize("given", ["1.1", "-0.1", "nan", "often"])
def test_what_is_no_probability_is_refused(given):
    with pytest.raises(InfercastError, match="it is not a probability"):
        probability(given, "--acceptance-rate")


def test_what_is_no_number_is_refused():
    assert typed_number("inf", "--request-rate") == float("inf")
    with pytest.raises(InfercastError, match=r"--request-rate 'fast': it is not a number. Give, say, --request-rate 2"):
        typed_number("fast", "--request-rate")
    with pytest.raises(InfercastError, match=r"Give, say, --gpu-memory-utilization 0\.9"):
        DeploymentQuestion("llama-3.1-8b", "h100-sxm", gpu_memory_utilization="90%").deployment()


def test_a_bare_share_above_one_is_refused():
    with pytest.raises(InfercastError, match=r"--headroom 10: as a share it is 1000 %. Write 10% or 0.1, or 1000% if"):
        share("10", "--headroom")
    written = {"1000%": 10.0, "10%": 0.1, "1": 1.0, "0.1": 0.1, "-0.5": -0.5, "0": 0.0}
    assert {text: share(text, "--growth") for text in written} == pytest.approx(written)


@pytest.mark.parametrize("text", ["1,000", "1,024", "12,000,000"])
def test_thousands_are_no_list(text):
    with pytest.raises(InfercastError, match=f"a comma makes a list. Give --isl {text.replace(',', '')}"):
        comma_list(text, "--isl")


def test_numbers_that_may_be_a_list_are_one():
    assert comma_list("1,512,1024", "--isl") == ["1", "512", "1024"]


def told(given: Any, options: dict[str, Any]) -> InfercastError:
    """Return an error about something, raised where these options were given."""
    with pytest.raises(InfercastError) as caught, as_typed(options):
        raise InfercastError(given, "it cannot be", "Give another")
    return caught.value


def test_an_option_is_named_from_the_field_of_an_error_and_never_from_its_prose():
    assert told("tp 3", {"tp": "3"}).given == "tp 3"
    error = told((Setting("ep", 2), "with", Setting("tp", 4), "in tp 4"), {"ep": 2, "tp": "4"})
    assert (error.given, error.fields) == ("--ep 2 with --tp 4 in tp 4", {"ep": 2, "tp": 4})
    assert told(Setting("seed", -1), {"tp": "4"}).given == "seed -1"
    assert told(Setting("tp", 3, "--tp 3"), {"tp": "1,2"}).given == "--tp 3"  # said already


def test_of_two_options_for_one_field_the_one_with_its_value_is_named():
    given = {"hardware": "h100-sxm", "host": "8480"}
    assert told(Setting("hardware", "8480"), given).given == "--host 8480"
    assert told(Setting("hardware", "h100-sxm"), given).given == "--hardware h100-sxm"


def test_fields_are_listed_for_options_that_there_are():
    taken = {
        flag for each in table()["commands"].values() for option in each.values() for flag in option.get("flags", [])
    }
    assert {f"--{each.replace('_', '-')}" for each in FIELDS} <= taken


def test_an_error_in_python_has_its_fields():
    with pytest.raises(InfercastError) as caught:
        DeploymentQuestion("llama-3.1-8b", "h100-sxm", tp="3").deployment()
    assert (caught.value.given, caught.value.fields) == ("--tp 3", {"tp": 3})
    again = pickle.loads(pickle.dumps(caught.value))  # from another process
    assert (str(again), again.fields) == (str(caught.value), {"tp": 3})
