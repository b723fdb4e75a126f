"""Predictions by several processes: the same as by one, in the same order, and an end that says why."""

import os
from collections import Counter
from functools import partial

import pytest

from simulator.errors import InfercastError
from simulator.validation import parallel
from simulator.validation.measurements import Measurement
from simulator.validation.parallel import over_groups, predict_all
from simulator.validation.prediction import predict
from tests.support.measured import published


def with_process(group: list[int]) -> tuple[int, list[int]]:
    return os.getpid(), [-each for each in group]


def dies_elsewhere(parent: int, _group: int) -> int:
    if os.getpid() != parent:
        os._exit(3)  # as if the system had ended it
    return parent


def refuses(group: int) -> int:
    if group == 2:
        raise InfercastError("2", "it is the third", "Give another")
    return group


@pytest.fixture(scope="module")
def rows() -> list[Measurement]:
    """Some figures of a few setups of each regime, and one of a model without a profile, one behind the other."""
    every, picked = published(), dict[object, set[object]]()
    for row in every:
        setups = picked.setdefault(row.setup.regime, set())
        if len(setups) < 3 and row.setup.hardware != "Intel Max 1550":
            setups.add(row.setup)
    wanted = {setup for setups in picked.values() for setup in setups}
    return [row for row in every if row.setup in wanted or row.setup.model == "Laguna-XS.2"][::-1]


@pytest.mark.slow
def test_answers_come_in_the_order_of_the_groups_from_several_processes():
    groups = [[each, each + 1] for each in range(40)]
    answers = over_groups(with_process, groups, 2)
    assert [numbers for _, numbers in answers] == [[-each, -each - 1] for each in range(40)]
    processes = {process for process, _ in answers[1:]}
    assert answers[0][0] == os.getpid() and os.getpid() not in processes and 1 <= len(processes) <= 2
    assert {process for process, _ in over_groups(with_process, groups, 1)} == {os.getpid()}
    assert over_groups(with_process, [], 2) == []


@pytest.mark.slow
def test_predictions_are_those_of_one_process_to_the_bit(rows, monkeypatch):
    monkeypatch.setattr(parallel, "SERIAL_SETUPS", 1)
    monkeypatch.setattr(parallel, "GROUP_SETUPS", 2)
    alone, together = predict(rows, level=0.8), predict_all(rows, level=0.8, jobs=2)
    assert [each.measurement for each in together] == rows
    assert list(map(repr, together)) == list(map(repr, alone))
    assert {each.value is None for each in alone} == {True, False}


def test_few_setups_need_one_process(rows, monkeypatch):
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", None)
    assert list(map(repr, predict_all(rows[:5]))) == list(map(repr, predict(rows[:5])))


def test_every_setup_is_in_one_group_and_long_simulations_come_first():
    setups = list(dict.fromkeys(row.setup for row in published()))
    groups = list(parallel._groups(setups))
    assert Counter(setup for group in groups for setup in group) == Counter(setups)
    assert max(map(len, groups)) == parallel.GROUP_SETUPS
    ranks = [[parallel._alike(setup)[0] for setup in group] for group in groups]
    assert all(len(set(each)) == 1 for each in ranks)
    assert ranks == sorted(ranks, key=lambda each: each[0])


@pytest.mark.slow
def test_a_process_that_is_ended_from_outside_and_an_error_are_told():
    with pytest.raises(InfercastError, match=r"2 processes: one of them was ended from outside.*--jobs 1"):
        over_groups(partial(dies_elsewhere, os.getpid()), [1, 2, 3], 2)
    with pytest.raises(InfercastError, match="it is the third"):
        over_groups(refuses, [0, 1, 2, 3], 2)
