"""Predictions by several processes or threads: the same as by one, in the same order."""

from collections import Counter

import pytest

from simulator.executors.processes import Processes
from simulator.executors.threads import Threads
from simulator.validation import parallel
from simulator.validation.measurements import Measurement
from simulator.validation.parallel import predict_all
from simulator.validation.prediction import predict
from tests.support.measured import published


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
def test_predictions_are_those_of_one_process_to_the_bit(rows, monkeypatch):
    monkeypatch.setattr(parallel, "GROUP_SETUPS", 2)
    alone, together = predict(rows, level=0.8), predict_all(rows, level=0.8, executor=Processes(2, start_s=0))
    assert [each.measurement for each in together] == rows
    assert list(map(repr, together)) == list(map(repr, alone))
    assert {each.value is None for each in alone} == {True, False}


def test_any_executor_gives_the_predictions_of_one(rows):
    assert list(map(repr, predict_all(rows[:5], executor=Threads(2)))) == list(map(repr, predict(rows[:5])))


def test_every_setup_is_in_one_group_and_long_simulations_come_first():
    setups = list(dict.fromkeys(row.setup for row in published()))
    groups = list(parallel._groups(setups))
    assert Counter(setup for group in groups for setup in group) == Counter(setups)
    assert max(map(len, groups)) == parallel.GROUP_SETUPS
    ranks = [[parallel._alike(setup)[0] for setup in group] for group in groups]
    assert all(len(set(each)) == 1 for each in ranks)
    assert ranks == sorted(ranks, key=lambda each: each[0])
