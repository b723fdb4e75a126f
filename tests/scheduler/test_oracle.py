"""The oracle against timetables worked out by hand (a step lasts 1 s unless said otherwise), and against its laws."""

import random

import pytest

from tests.oracle.engine import OracleLimits, OracleResult, run_oracle
from tests.support.timetables import finish, held, one_second, timetable


def test_chunked_prefill() -> None:
    # Budget 8: A's 10 tokens take two steps; B rides along with A's second chunk (2 + 5 <= 8).
    limits = OracleLimits(max_num_seqs=4, max_num_batched_tokens=8, num_blocks=100, block_size=4)
    result = run_oracle([(0.0, 10, 3), (0.0, 5, 2)], limits, one_second)
    assert timetable(result) == [
        ((0, 8, 0),),
        ((0, 2, 8), (1, 5, 0)),
        ((0, 1, 10), (1, 1, 5)),
        ((0, 1, 11),),
    ]
    assert held(result) == [2, 5, 5, 3]
    assert [request.first_token_s for request in result.requests] == [2.0, 2.0]
    assert [request.scheduled_s for request in result.requests] == [0.0, 1.0]
    assert finish(result) == [4.0, 3.0]


def test_budget_may_not_reach_all_of_running() -> None:
    # Budget 2, three sequences decoding: the third keeps its block and waits.
    limits = OracleLimits(max_num_seqs=3, max_num_batched_tokens=2, num_blocks=9, block_size=4)
    result = run_oracle([(0.0, 1, 3), (0.0, 1, 3), (0.0, 1, 1)], limits, one_second)
    assert timetable(result) == [
        ((0, 1, 0), (1, 1, 0)),
        ((0, 1, 1), (1, 1, 1)),
        ((0, 1, 2), (1, 1, 2)),
        ((2, 1, 0),),
    ]
    late = run_oracle([(0.0, 1, 2), (0.0, 3, 1), (0.0, 1, 1)], limits, one_second)
    assert timetable(late) == [((0, 1, 0), (1, 1, 0)), ((0, 1, 1), (1, 1, 1)), ((1, 1, 2), (2, 1, 0))]
    assert held(late) == [2, 2, 2]


def test_last_of_running_preempts_itself() -> None:
    # 5 blocks of 2 tokens; both grow to 5 tokens (3 blocks) in the third step: B, the last, gives way.
    # Then A takes its 6th token, 3 blocks; B's 5 known tokens need 3 of 2 free blocks until A is done.
    limits = OracleLimits(max_num_seqs=4, max_num_batched_tokens=100, num_blocks=5, block_size=2)
    result = run_oracle([(0.0, 3, 4), (0.0, 3, 4)], limits, one_second)
    assert timetable(result) == [
        ((0, 3, 0), (1, 3, 0)),
        ((0, 1, 3), (1, 1, 3)),
        ((0, 1, 4),),
        ((0, 1, 5),),
        ((1, 5, 0),),
        ((1, 1, 5),),
    ]
    assert held(result) == [4, 4, 3, 3, 3, 3]
    assert finish(result) == [4.0, 6.0]
    assert [request.preemptions for request in result.requests] == [0, 1]
    assert [request.first_token_s for request in result.requests] == [1.0, 1.0]


def test_first_of_running_preempts_the_last_and_goes_on() -> None:
    # A needs a third block in the second step; B, not yet looked at, loses its 3. A retries and runs.
    limits = OracleLimits(max_num_seqs=4, max_num_batched_tokens=100, num_blocks=5, block_size=2)
    result = run_oracle([(0.0, 4, 3), (0.0, 5, 2), (0.5, 1, 1)], limits, one_second)
    assert timetable(result) == [
        ((0, 4, 0), (1, 5, 0)),
        ((0, 1, 4),),  # B is back at the head of the queue and needs 3 of 2 free blocks;
        ((0, 1, 5),),  # C's one token would fit, but C stands behind B
        ((1, 6, 0), (2, 1, 0)),  # B recomputes 5 + 1 tokens and so produces its second, last token
    ]
    assert held(result) == [5, 3, 3, 4]
    assert finish(result) == [3.0, 4.0, 4.0]
    assert result.requests[1].first_token_s == 1.0
    assert result.requests[1].preemptions == 1


def test_full_prompt_must_fit() -> None:
    # Budget 4, 5 blocks of 2. A: 4 + 3 (3 blocks in the end), B: 5 + 2. Step 2 has 3 tokens and 2 blocks for B.
    requests = [(0.0, 4, 3), (0.0, 5, 2)]
    careful = OracleLimits(max_num_seqs=4, max_num_batched_tokens=4, num_blocks=5, block_size=2)
    result = run_oracle(requests, careful, one_second)
    alone = [((1, 4, 0),), ((1, 1, 4),), ((1, 1, 5),)]
    assert timetable(result) == [((0, 4, 0),), ((0, 1, 4),), ((0, 1, 5),), *alone]
    assert result.requests[1].preemptions == 0
    # Without the rule B's first chunk gets in, and is thrown out at once when its second finds no block.
    # It is not admitted again in that step, although 2 blocks and 3 tokens of budget are free.
    careless = OracleLimits(4, 4, num_blocks=5, block_size=2, full_prompt_must_fit=False)
    result = run_oracle(requests, careless, one_second)
    assert timetable(result) == [((0, 4, 0),), ((0, 1, 4), (1, 3, 0)), ((0, 1, 5),), *alone]
    assert held(result) == [2, 5, 3, 2, 3, 3]
    assert result.requests[1].preemptions == 1
    assert result.requests[1].scheduled_s == 1.0


def test_admission_does_not_skip_ahead() -> None:
    # 4 blocks of 4: A holds 2 then 3, B needs 3, C would fit but stands behind B.
    limits = OracleLimits(max_num_seqs=8, max_num_batched_tokens=100, num_blocks=4, block_size=4)
    result = run_oracle([(0.0, 8, 3), (0.0, 12, 1), (0.0, 2, 1)], limits, one_second)
    assert timetable(result) == [((0, 8, 0),), ((0, 1, 8),), ((0, 1, 9),), ((1, 12, 0), (2, 2, 0))]
    assert held(result) == [2, 3, 3, 4]


@pytest.mark.parametrize(("policy", "expected"), [("continuous", [100.0, 11.0]), ("static", [100.0, 110.0])])
def test_short_request_behind_a_long_one(policy: str, expected: list[float]) -> None:
    # 10 output tokens behind 100: continuous joins at 1 s (10 steps), static waits for the batch (100 s + 10).
    limits = OracleLimits(2, 64, num_blocks=100, policy=policy)
    result = run_oracle([(0.0, 10, 100), (0.5, 10, 10)], limits, one_second)
    assert finish(result) == expected


def test_static_batch_is_padded_until_its_last_request() -> None:
    # A step costs its number of sequences; the budget of 4 does not split the prompts of 5 and 3.
    limits = OracleLimits(2, 4, num_blocks=4, block_size=4, policy="static")
    result = run_oracle([(0.0, 5, 4), (0.0, 3, 2), (0.0, 2, 1)], limits, lambda step: float(len(step)))
    assert timetable(result) == [
        ((0, 5, 0), (1, 3, 0)),
        ((0, 1, 5), (1, 1, 3)),
        ((0, 1, 6), (1, 1, 4)),  # B is done: padding, which attends to itself
        ((0, 1, 7), (1, 1, 5)),
        ((2, 2, 0),),
    ]
    assert held(result) == [3, 3, 3, 3, 1]  # ceil(8/4) + ceil(4/4), reserved from the start
    assert finish(result) == [8.0, 4.0, 9.0]
    assert [request.first_token_s for request in result.requests] == [2.0, 2.0, 9.0]


def test_static_batch_takes_what_fits() -> None:
    # 3 blocks: A and B reserve 2 each, so B, and C behind it, wait.
    limits = OracleLimits(8, 64, num_blocks=3, block_size=4, policy="static")
    result = run_oracle([(0.0, 5, 2), (0.0, 5, 2), (0.0, 1, 1)], limits, one_second)
    assert timetable(result) == [((0, 5, 0),), ((0, 1, 5),), ((1, 5, 0), (2, 1, 0)), ((1, 1, 5), (2, 1, 1))]


def test_closed_loop() -> None:
    # Two users. B is done at 1, so C arrives at 1; A and C are done at 2, so D arrives at 2 (and nobody else is left).
    limits = OracleLimits(8, 64, num_blocks=100, concurrency=2)
    result = run_oracle([(9.0, 4, 2), (9.0, 4, 1), (9.0, 4, 1), (9.0, 4, 1)], limits, one_second)
    assert timetable(result) == [((0, 4, 0), (1, 4, 0)), ((0, 1, 4), (2, 4, 0)), ((3, 4, 0),)]
    assert [request.arrival_s for request in result.requests] == [0.0, 0.0, 1.0, 2.0]
    assert finish(result) == [2.0, 1.0, 2.0, 3.0]


def test_arrivals_at_during_and_after_a_step() -> None:
    # B arrives exactly where a step starts and is in it; C arrives during a step and waits; D finds the engine idle.
    limits = OracleLimits(8, 64, num_blocks=100)
    result = run_oracle([(0.0, 4, 2), (10.25, 4, 1), (1.5, 4, 1), (1.0, 4, 1)], limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((0, 1, 4), (3, 4, 0)), ((2, 4, 0),), ((1, 4, 0),)]
    assert [step.start_s for step in result.steps] == [0.0, 1.0, 2.0, 10.25]


def test_rejected_up_front() -> None:
    # 2 blocks of 4: 8 tokens at most, so 5 + 4 - 1 passes and 5 + 5 - 1 does not.
    limits = OracleLimits(8, 64, num_blocks=2, block_size=4, concurrency=1)
    result = run_oracle([(0.0, 5, 5), (0.0, 5, 4), (0.0, 9, 1), (0.0, 8, 1)], limits, one_second)
    assert result.rejected == [0, 2]
    assert finish(result) == [None, 4.0, None, 5.0]
    capped = OracleLimits(8, 64, num_blocks=9, max_model_len=10)
    assert run_oracle([(0.0, 5, 5), (0.0, 5, 6)], capped, one_second).rejected == [1]


@pytest.mark.parametrize("policy", ["continuous", "static"])
@pytest.mark.parametrize("concurrency", [0, 3])
@pytest.mark.parametrize("full_prompt_must_fit", [True, False])
def test_laws(policy: str, concurrency: int, full_prompt_must_fit: bool) -> None:
    preemptions = 0
    for seed in range(60):
        dice = random.Random(seed)
        limits = OracleLimits(
            max_num_seqs=dice.randint(1, 6),
            max_num_batched_tokens=dice.randint(1, 20),
            num_blocks=dice.randint(1, 12),
            block_size=dice.randint(1, 4),
            policy=policy,
            concurrency=concurrency,
            full_prompt_must_fit=full_prompt_must_fit,
        )
        requests = [(dice.uniform(0, 9), dice.randint(1, 12), dice.randint(1, 9)) for _ in range(12)]
        result = run_oracle(requests, limits, lambda step: 0.1 + 0.01 * sum(new for new, _ in step))
        check_laws(result, limits)
        preemptions += sum(request.preemptions for request in result.requests)
    assert (preemptions > 0) == (policy == "continuous")


def check_laws(result: OracleResult, limits: OracleLimits) -> None:
    for before, after in zip(result.steps, result.steps[1:], strict=False):
        assert before.end_s <= after.start_s
    for step in result.steps:
        assert 1 <= len(step.scheduled) <= limits.max_num_seqs
        assert 1 <= step.blocks_held <= limits.num_blocks
        if limits.policy == "continuous":
            assert sum(new for _, new, _ in step.scheduled) <= limits.max_num_batched_tokens
    for request in result.requests:
        if request.index in result.rejected:
            assert request.arrival_s is None and request.finished_s is None
            continue
        assert request.arrival_s <= request.scheduled_s < request.first_token_s <= request.finished_s
        assert request.blocks == 0
        mine = [
            (new, past)
            for step in result.steps
            for index, new, past in step.scheduled
            if index == request.index and step.end_s <= request.finished_s
        ]
        restarts = sum(past == 0 for _, past in mine) - 1
        assert restarts <= request.preemptions
        last_start = max(position for position, (_, past) in enumerate(mine) if past == 0)
        assert sum(new for new, _ in mine[last_start:]) == request.final_tokens
