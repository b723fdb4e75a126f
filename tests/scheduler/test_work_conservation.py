"""Work conservation: whatever the policy, no engine stands still while a request that has arrived is unfinished."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.scheduler.state import POLICIES, SchedulerLimits
from simulator.simulation.engine_loop import Run, simulate
from simulator.workloads.workload import Requests
from tests.support.hand_made import TABLE

ROOM = 20  # blocks of 4 tokens: one request of 40 + 30 tokens, and some of a second


def idle_with_work_s(run: Run) -> float:
    """Seconds between steps (and before the first) in which some request had arrived and was not finished."""
    ends_s = run.steps.start_s + run.steps.seconds
    idle_s = 0.0
    for start_s, end_s in zip(np.append(0.0, ends_s[:-1]), run.steps.start_s, strict=True):
        arrived = run.requests.arrival_s < end_s  # one that arrives when the step starts made nobody wait
        left = arrived & (run.finished_s > start_s)
        if left.any():
            idle_s += max(0.0, end_s - max(start_s, run.requests.arrival_s[left].min()))
    return idle_s


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=20),
    seqs=st.integers(1, 6),
    full=st.booleans(),
)
def test_no_engine_stands_still_beside_work(policy, rows, seqs, full):
    arrival_s, prompts, outputs = (np.array(each) for each in zip(*sorted(rows), strict=True))
    allowed = SchedulerLimits(POLICIES[policy], seqs, 128, ROOM, 4, admit_full_prompt=full)
    run = simulate(allowed, TABLE, Requests(arrival_s, prompts, outputs))
    assert len(run.rejected) == 0
    assert idle_with_work_s(run) <= 1e-12


def test_standing_still_is_seen():
    """A run whose last step is moved by a second has stood still for a second."""
    arrival_s, ones = np.zeros(2), np.ones(2, np.int64)
    run = simulate(
        SchedulerLimits(POLICIES["continuous"], 1, 128, ROOM, 4, admit_full_prompt=True),
        TABLE,
        Requests(arrival_s, ones, ones),
    )
    run.steps.start_s[-1] += 1.0
    run.finished_s[-1] += 1.0
    assert idle_with_work_s(run) == pytest.approx(1.0)
