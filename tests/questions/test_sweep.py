"""Sweeps: every combination once, the same from a store as computed, and anew where anything has changed."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from simulator import profile
from simulator.errors import InfercastError
from simulator.executors.processes import Processes
from simulator.executors.program import _files, _is_named
from simulator.questions import sweep as module
from simulator.questions.batch_question import BatchQuestion, BatchSizes
from simulator.questions.case_answer import CaseAnswer
from simulator.questions.cost_question import CostQuestion
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.load_question import LoadQuestion, RunQuestion, SloQuestion
from simulator.questions.price_question import PriceQuestion
from simulator.questions.sweep import SweepCase, answers, sweep
from simulator.questions.workload_question import WorkloadQuestion
from tests.support.commands import answer
from tests.support.paths import ROOT

ASKED = BatchQuestion(DeploymentQuestion("llama-3.1-8b", "l40s,l4", tp="1,3"), BatchSizes("1,8", input_len="64"))
HERE = Processes(1)


class Interrupted:
    """An executor that does some tasks, then is interrupted."""

    width = 1

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def finished(self, work, tasks):
        yield from HERE.finished(work, tasks[: self.tasks])
        raise KeyboardInterrupt


class Nobody:
    """An executor that must not be needed."""

    width = 1

    def finished(self, _work, tasks):
        assert not tasks
        return iter(())


def cases(question=ASKED, level: float = 0.8) -> list[SweepCase]:
    return [SweepCase(each, level) for each in question.each()]


def texts(found) -> list[str]:
    return [found.known[place].text() for place in range(len(found.cases))]


def test_python_sweeps_costs_as_the_command_does():
    users = WorkloadQuestion(input_len="256", output_len="32", request_rate="1,2", num_prompts=200)
    prices = PriceQuestion("on-demand,spot", price_date="2026-11-23")
    asked = CostQuestion(DeploymentQuestion("llama-3.1-8b", "l40s"), users, SloQuestion("ttft:1s"), prices)
    rows = sweep(asked, jobs=1).rows
    assert [(row["price_commitment"], row["asked_rate_per_s"]) for row in rows] == [
        ("on-demand", 1.0),
        ("on-demand", 2.0),
        ("spot", 1.0),
        ("spot", 2.0),
    ]
    for question, row in zip(asked.each(), rows, strict=True):
        assert answer(*question.command()[1:])["answers"][0]["usd_per_hour"] == row["usd_per_hour"]


def test_a_sweep_answers_every_combination_and_tells_what_is_impossible():
    found = sweep(ASKED)
    shown = found.to_frame()[["hardware", "tp", "batch"]].to_numpy().tolist()
    assert shown == [["l40s", 1, 1], ["l40s", 1, 8], ["l4", 1, 1], ["l4", 1, 8]]
    assert len(found.refused) == 4 and all("tp 3" in str(each) or "3" in str(each) for each in found.refused)


def test_a_case_is_what_a_user_types_and_its_answer_the_same_row():
    [case] = cases(replace(ASKED, deployment=DeploymentQuestion("llama-3.1-8b", "l4"), sizes=BatchSizes("8")))
    words = "infercast estimate --model llama-3.1-8b --hardware l4 --batch 8"
    assert " ".join(case.question.command()) == words
    assert sweep(case.question).rows == list(case.answer().rows)


def test_answers_from_a_store_are_the_computed_ones_to_the_bit(tmp_path):
    store = tmp_path / "sweep.db"
    computed = answers(cases(), HERE)
    assert texts(answers(cases(), HERE, store)) == texts(computed)
    assert texts(answers(cases(), Nobody(), store)) == texts(computed)
    assert repr(answers(cases(), Nobody(), store).rows) == repr(computed.rows)


def test_an_interrupted_sweep_goes_on_with_what_is_left(tmp_path):
    store = tmp_path / "sweep.db"
    first = answers(cases(), Interrupted(3), store)
    assert first.interrupted and sorted(first.known) == [0, 1, 2]
    done: list[tuple[int, int]] = []
    second = answers(cases(), HERE, store, lambda some, every: done.append((some, every)))
    assert done == [(number, 8) for number in range(1, 9)] and not second.interrupted
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT key) FROM results").fetchone() == (8, 8)
    assert texts(second) == texts(answers(cases(), HERE))


def test_an_interrupt_of_the_python_api_is_raised_after_what_is_finished_was_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        sweep(ASKED, Interrupted(3), tmp_path / "sweep.db")
    with closing(sqlite3.connect(tmp_path / "sweep.db")) as connection:
        assert connection.execute("SELECT count(*) FROM results").fetchone() == (3,)


def test_an_interrupt_right_after_an_answer_was_stored_leaves_it_out_of_nothing(tmp_path, monkeypatch):
    put = module.ResultsStore.put

    def interrupted(self, *row: str) -> None:
        put(self, *row)
        raise KeyboardInterrupt

    monkeypatch.setattr(module.ResultsStore, "put", interrupted)
    found = answers(cases(), HERE, tmp_path / "sweep.db")
    assert found.interrupted and sorted(found.known) == [0]


def test_another_version_of_the_program_computes_anew(tmp_path, monkeypatch):
    answers(cases(), HERE, tmp_path / "sweep.db")
    monkeypatch.setattr(module, "program_digest", lambda: "another")
    with pytest.raises(AssertionError):
        answers(cases(), Nobody(), tmp_path / "sweep.db")


def test_a_question_that_is_asked_twice_is_computed_once():
    twice = cases()[:1] * 2
    done: list[int] = []

    class Counting:
        width = 1

        def finished(self, work, tasks):
            done.append(len(tasks))
            return HERE.finished(work, tasks)

    found = answers(twice, Counting())
    assert done == [1] and len(found.rows) == 2 and found.rows[0] == found.rows[1]


def test_the_first_refusal_is_raised_where_nothing_else_is_there():
    with pytest.raises(InfercastError, match="tp"):
        sweep(replace(ASKED, deployment=DeploymentQuestion("llama-3.1-8b", "l40s", tp="3,7")))


def test_the_key_follows_all_that_the_answer_follows_from(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,num_prefill_tokens,num_decode_tokens\n0,64,8\n1,64,8\n")
    load = LoadQuestion(DeploymentQuestion("llama-3.1-8b", "l40s"), WorkloadQuestion(trace=trace), SloQuestion())
    [case] = cases(load)
    others = [
        replace(case, level=0.9),
        replace(case, explain=True),
        replace(case, question=replace(load, run=RunQuestion(whole_run=True))),
        replace(case, question=replace(load, deployment=DeploymentQuestion("llama-3.1-8b", "l4"))),
        replace(case, question=replace(load, accepted=SloQuestion("ttft:1s"))),
    ]
    keys = [case.key, *(each.key for each in others)]
    assert len({*keys}) == len(keys) and case.key == keys[0]
    trace.write_text("arrival_s,num_prefill_tokens,num_decode_tokens\n0,64,8\n1,64,9\n")
    assert case.key != keys[0]


def test_the_key_follows_the_named_profiles_alone(tmp_path, monkeypatch):
    folder = tmp_path / "hardware_profiles"
    folder.mkdir()
    text = (ROOT / "hardware_profiles" / "l40s.yaml").read_text()
    for name in ("own-a", "own-b"):
        (folder / f"{name}.yaml").write_text(text.replace("aliases:", "# aliases:"))
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    a, b = cases(BatchQuestion(DeploymentQuestion("llama-3.1-8b", "own-a,own-b")))
    before = a.key, b.key
    (folder / "own-b.yaml").write_text(text + "# another state\n")
    assert a.key == before[0] and b.key != before[1]


@pytest.mark.slow
def test_whatever_profile_is_read_for_an_answer_is_in_its_key(monkeypatch):
    """Profiles of models and devices that a question does not name must not be read, or all of them are in the key."""
    read: set[Path] = set()
    original = profile.Profile.from_yaml.__func__

    def noting(cls, path):
        read.add(path)
        return original(cls, path)

    monkeypatch.setattr(profile.Profile, "from_yaml", classmethod(noting))
    monkeypatch.setattr("simulator.questions.deployment_question._shipped", lambda load, name: load(name))
    deployment = DeploymentQuestion("Meta-Llama-3.1-8B-Instruct-FP8", "H100_SXM")
    load = LoadQuestion(deployment, WorkloadQuestion(workload="chat", request_rate="2", num_prompts=50))
    for question in (BatchQuestion(deployment), load):
        read.clear()
        question.answer()
        named = {path.stem for path in read if _is_named(path)}
        assert named == {"llama-3.1-8b", "h100-sxm"}
        assert all(path in {*_files(ROOT)} for path in read - {each for each in read if _is_named(each)})


def test_a_file_that_differs_where_it_is_answered_is_told():
    [case, *_] = cases()
    with pytest.raises(InfercastError, match="another content where it is answered"):
        module._answer_texts([(case, "another key")])


def test_an_answer_is_read_as_it_was_written():
    answer = CaseAnswer(({"a": 0.1 + 0.2, "b": None, "c": "é", "d": True, "e": 3, "f": float("-inf")},), ("x",), ("y",))
    assert CaseAnswer.read(answer.text()) == answer
    assert json.loads(answer.text())["rows"][0]["e"] == 3
    refused = CaseAnswer.read(CaseAnswer(refused=InfercastError("a", "b", "c")).text()).refused
    assert str(refused) == "a: b. c."


def test_what_is_no_question_is_refused():
    with pytest.raises(InfercastError, match=r"sweep\(1\): a sweep answers a question with comma lists\. Give a Batch"):
        sweep(1)
