"""The time per request is told apart from what steps take, whatever the steps' own error is."""

import numpy as np
import pytest

from tools.fit_requests import Requests, fitted, lines, without

GROUPS = [("a", "h100", "m"), ("a", "h200", "m"), ("b", "h100", "n")]
FACTORS = (0.8, 1.0, 2.1)  # of prompts that are predicted too slow, right, and too fast
REQUEST_S = 0.0055


def made(rng: np.random.Generator, each: int = 12) -> Requests:
    """Return requests whose steps last a factor as long as predicted, the factor being their group's own."""
    steps_s = rng.uniform(0.01, 0.4, 3 * each)
    known_s = 4e-6 * rng.integers(128, 8192, 3 * each)
    factors = np.repeat(FACTORS, each)
    groups = [group for group in GROUPS for _ in range(each)]
    return Requests(factors * steps_s + known_s + REQUEST_S, steps_s, known_s, groups)


def test_prompts_that_are_predicted_too_fast_leave_the_time_per_request_alone():
    rows = made(np.random.default_rng(0))
    assert fitted(rows) == pytest.approx(REQUEST_S, rel=1e-3)
    one_factor = rows._replace(groups=[GROUPS[0]] * len(rows.groups))
    assert abs(fitted(one_factor) / REQUEST_S - 1) > 0.1


def test_a_few_rows_that_wait_for_something_else_do_not_count():
    rows = made(np.random.default_rng(1))
    late = rows.ttft_s.copy()
    late[::9] *= 3.0
    assert fitted(rows._replace(ttft_s=late)) == pytest.approx(REQUEST_S, rel=0.02)


def test_each_group_is_left_out_in_turn():
    rows = made(np.random.default_rng(2))
    left = without(rows, GROUPS[1])
    assert len(left.ttft_s) == len(left.groups) == 24
    assert GROUPS[1] not in left.groups
    first, *others = lines(rows)
    assert first == "request_s 5.5 ms: 36 rows of 3 groups"
    assert [line.split(" without ")[1] for line in others] == [", ".join(group) for group in GROUPS]
