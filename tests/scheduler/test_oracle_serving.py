"""The oracle of every way of serving against timetables worked out by hand; a step lasts 1 s unless said otherwise.

The letters are the rules of docs/serving-rules.md.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.oracle.engine import OracleJob, OracleLimits, OracleResult, run_oracle
from tests.oracle.speculation import sampled, uniform
from tests.support.timetables import finish, held, one_second, timetable


def hits(result: OracleResult) -> list[int | None]:
    return [request.hit_tokens for request in result.requests]


def loaded(result: OracleResult) -> list[int]:
    return [step.loaded_tokens for step in result.steps]


# ---------------------------------------------------------------- Q, L, W, F, O, D, U, G


def test_the_most_urgent_waits_least_and_preempts_nobody() -> None:
    limits = OracleLimits(1, 64, num_blocks=9, by_priority=True)
    jobs = [OracleJob(0.0, 4, 3, priority=2), OracleJob(0.1, 4, 1, priority=1), OracleJob(0.2, 4, 1, priority=0)]
    result = run_oracle(jobs, limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((0, 1, 4),), ((0, 1, 5),), ((2, 4, 0),), ((1, 4, 0),)]


def test_the_least_urgent_gives_way_though_it_is_scheduled_already() -> None:
    # 5 blocks of 2. At 3 s A (less urgent) is scheduled, then B lacks a block: A leaves the step and recomputes 3 + 3.
    limits = OracleLimits(4, 64, num_blocks=5, block_size=2, by_priority=True)
    jobs = [OracleJob(0.0, 3, 4, priority=1), OracleJob(0.5, 3, 3, priority=0)]
    result = run_oracle(jobs, limits, one_second)
    assert timetable(result) == [
        ((0, 3, 0),),
        ((0, 1, 3), (1, 3, 0)),
        ((0, 1, 4), (1, 1, 3)),
        ((1, 1, 4),),
        ((0, 6, 0),),
    ]
    assert held(result) == [2, 4, 5, 3, 3]
    assert [request.preemptions for request in result.requests] == [1, 0]
    assert finish(result) == [5.0, 4.0]


def test_the_running_behind_the_least_urgent_go_on_without_it() -> None:
    # At 3 s A lacks a fourth block and is the least urgent itself; B, behind it, is looked at all the same.
    limits = OracleLimits(4, 64, num_blocks=5, block_size=2, by_priority=True)
    jobs = [OracleJob(0.0, 4, 5, priority=1), OracleJob(0.5, 3, 3, priority=0)]
    result = run_oracle(jobs, limits, one_second)
    assert timetable(result) == [
        ((0, 4, 0),),
        ((0, 1, 4), (1, 3, 0)),
        ((0, 1, 5), (1, 1, 3)),
        ((1, 1, 4),),
        ((0, 7, 0),),
        ((0, 1, 7),),
    ]
    assert held(result) == [2, 5, 5, 3, 4, 4]


def test_a_long_prompt_leaves_room_unless_it_is_alone() -> None:
    # B's prompt ends before A's, so B, decoding, goes first from then on.
    limits = OracleLimits(4, 8, num_blocks=99, long_prefill_tokens=4)
    together = run_oracle([(0.0, 10, 1), (0.0, 3, 2)], limits, one_second)
    assert timetable(together) == [((0, 4, 0), (1, 3, 0)), ((1, 1, 3), (0, 4, 4)), ((0, 2, 8),)]
    later = run_oracle([(0.0, 20, 1), (1.5, 6, 1)], limits, one_second)
    assert timetable(later) == [((0, 8, 0),), ((0, 8, 8),), ((0, 4, 16), (1, 4, 0)), ((1, 2, 4),)]


def test_whole_prompts() -> None:
    # 8 tokens: B's 4 do not fit behind A's 5, so B and C behind it wait. A prompt of 9 is never computed.
    limits = OracleLimits(4, 8, num_blocks=99, chunked_prefill=False)
    result = run_oracle([(0.0, 5, 2), (0.0, 4, 1), (0.0, 1, 1), (0.0, 9, 2)], limits, one_second)
    assert timetable(result) == [((0, 5, 0),), ((0, 1, 5), (1, 4, 0), (2, 1, 0))]
    assert result.rejected == [3]


def test_prompts_first() -> None:
    limits = OracleLimits(4, 8, num_blocks=99, policy="prompts-first")
    result = run_oracle([(0.0, 5, 3), (0.5, 12, 1)], limits, one_second)
    assert timetable(result) == [((0, 5, 0),), ((1, 8, 0),), ((1, 4, 8),), ((0, 1, 5),), ((0, 1, 6),)]
    assert finish(result) == [5.0, 3.0]


def test_prompts_first_decodes_when_its_prompts_are_preempted() -> None:
    # 3 blocks of 4: at 2 s B lacks its third block, goes, and is not admitted again at once; A decodes.
    limits = OracleLimits(4, 8, 3, block_size=4, policy="prompts-first", full_prompt_must_fit=False)
    result = run_oracle([(0.0, 4, 2), (0.5, 12, 1)], limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((1, 8, 0),), ((0, 1, 4),), ((1, 8, 0),), ((1, 4, 8),)]
    assert held(result) == [1, 3, 2, 2, 3]


def test_full_output() -> None:
    # The workload of test_last_of_running_preempts_itself: 3 + 3 blocks at the end are more than 5, so B waits.
    limits = OracleLimits(4, 100, num_blocks=5, block_size=2, admit_full_output=True)
    result = run_oracle([(0.0, 3, 4), (0.0, 3, 4)], limits, one_second)
    alone = [(3, 0), (1, 3), (1, 4), (1, 5)]
    assert timetable(result) == [((index, *part),) for index in (0, 1) for part in alone]
    assert run_oracle([(0.0, 3, 4), (0.0, 3, 2)], limits, one_second).steps[0].scheduled == ((0, 3, 0), (1, 3, 0))


def test_dynamic_batches() -> None:
    # A pair starts when B comes at 3; C is alone and starts 5 s after it came; nobody follows D.
    limits = OracleLimits(4, 8, num_blocks=99, policy="static", batch_size=2, batch_wait_s=5.0)
    jobs = [(0.0, 4, 1), (3.0, 4, 1), (4.5, 4, 1), (20.0, 4, 1)]
    result = run_oracle(jobs, limits, one_second)
    assert [step.start_s for step in result.steps] == [3.0, 9.5, 20.0]
    assert timetable(result) == [((0, 4, 0), (1, 4, 0)), ((2, 4, 0),), ((3, 4, 0),)]
    one_place = OracleLimits(1, 8, num_blocks=99, policy="static", batch_size=2, batch_wait_s=5.0)
    assert [step.start_s for step in run_oracle(jobs, one_place, one_second).steps] == [0.0, 3.0, 4.5, 20.0]


def test_uncached() -> None:
    # A step costs its tokens. A: 3, then 4, then 5, then B's 2.
    limits = OracleLimits(8, 1, num_blocks=0, policy="uncached")
    result = run_oracle([(0.0, 3, 3), (0.5, 2, 1)], limits, lambda step: float(sum(new for new, _ in step)))
    assert timetable(result) == [((0, 3, 0),), ((0, 4, 0),), ((0, 5, 0),), ((1, 2, 0),)]
    assert held(result) == [0, 0, 0, 0]
    assert [request.first_token_s for request in result.requests] == [3.0, 14.0]
    assert finish(result) == [12.0, 14.0]


def test_prefilled_requests() -> None:
    limits = OracleLimits(4, 100, num_blocks=5, block_size=2)
    alone = run_oracle([OracleJob(1.0, 4, 3, prefilled=True)], limits, one_second)
    assert timetable(alone) == [((0, 1, 4),), ((0, 1, 5),)]
    assert (alone.requests[0].first_token_s, finish(alone)) == (1.0, [3.0])
    # Of two, B is preempted in the second step with 2 tokens produced: it recomputes 3 + 2 like any other.
    two = run_oracle([OracleJob(0.0, 3, 4, prefilled=True)] * 2, limits, one_second)
    assert timetable(two) == [((0, 1, 3), (1, 1, 3)), ((0, 1, 4),), ((0, 1, 5),), ((1, 5, 0),), ((1, 1, 5),)]
    assert held(two) == [4, 3, 3, 3, 3]


# ---------------------------------------------------------------- K, H


def test_a_window_bounds_blocks() -> None:
    # Blocks of 2: a window of 3 touches 3 of them at most, in each of two windowed groups; one group is full.
    limits = OracleLimits(4, 100, num_blocks=99, block_size=2, window=3, window_groups=2)
    result = run_oracle([(0.0, 3, 6)], limits, one_second)
    assert held(result) == [3 * 2, 3 * 2, 3 * 3, 3 * 3, 4 + 2 * 3, 4 + 2 * 3]
    assert held(run_oracle([(0.0, 20, 1)], replace(limits, full_groups=0), one_second)) == [2 * 3]
    # 20 tokens fit into 10 + 2 x 3 blocks, and would not without the window.
    assert run_oracle([(0.0, 20, 1)], replace(limits, num_blocks=16), one_second).rejected == []
    assert run_oracle([(0.0, 20, 1)], replace(limits, num_blocks=16, window=20), one_second).rejected == [0]


def test_a_prefix_block_takes_the_blocks_of_full_groups_alone() -> None:
    # A prefix block of 4 tokens: 2 blocks in each of 2 full groups. B finds it and takes its own 2 windowed blocks.
    limits = OracleLimits(4, 64, 99, block_size=2, prefix_block_tokens=4, window=2, full_groups=2, window_groups=1)
    result = run_oracle([OracleJob(0.0, 6, 1, ids=(1,)), OracleJob(0.0, 6, 1, ids=(1,))], limits, one_second)
    assert timetable(result) == [((0, 6, 0), (1, 2, 4))]
    assert held(result) == [4 + (2 + 2) + (2 + 2)]


def test_a_step_sees_what_came_before_the_last_one_began() -> None:
    # B comes during the first step and C at its end, when the third is decided; D, later, is in the fourth.
    limits = OracleLimits(4, 64, num_blocks=99, async_scheduling=True)
    result = run_oracle([(0.0, 4, 4), (0.5, 4, 1), (1.0, 4, 1), (1.5, 4, 1)], limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((0, 1, 4),), ((0, 1, 5), (1, 4, 0), (2, 4, 0)), ((0, 1, 6), (3, 4, 0))]


def test_an_engine_that_runs_dry_sees_all() -> None:
    # B comes during A's only step: nothing was decided, so B starts with C, at once.
    limits = OracleLimits(4, 4, num_blocks=99, async_scheduling=True)
    together = run_oracle([(0.0, 4, 1), (0.5, 2, 1), (0.75, 2, 1)], limits, one_second)
    assert timetable(together) == [((0, 4, 0),), ((1, 2, 0), (2, 2, 0))]
    # Of A's two steps, B comes during the first, so the third is decided with B alone when the second begins.
    apart = run_oracle([(0.0, 8, 1), (0.5, 2, 1), (1.5, 2, 1)], limits, one_second)
    assert timetable(apart) == [((0, 4, 0),), ((0, 4, 4),), ((1, 2, 0),), ((2, 2, 0),)]
    assert [step.start_s for step in apart.steps] == [0.0, 1.0, 2.0, 3.0]


# ---------------------------------------------------------------- P


def test_a_prefix_is_found_in_the_same_step_and_held_once() -> None:
    # Units of 4 tokens, 2 blocks. B, of the same 8 tokens, computes the last 4 again and gives their blocks back.
    limits = OracleLimits(4, 64, num_blocks=6, block_size=2, prefix_block_tokens=4)
    jobs = [OracleJob(0.0, 8, 2, ids=(1, 2)), OracleJob(0.0, 8, 1, ids=(1, 2))]
    result = run_oracle(jobs, limits, one_second)
    assert timetable(result) == [((0, 8, 0), (1, 4, 4)), ((0, 1, 8),)]
    assert held(result) == [4, 5]
    assert hits(result) == [0, 4]
    # With 5 blocks it does not find the two that it would give back, and waits until A has finished.
    tight = OracleLimits(4, 64, num_blocks=5, block_size=2, prefix_block_tokens=4)
    result = run_oracle(jobs, tight, one_second)
    assert timetable(result) == [((0, 8, 0),), ((0, 1, 8),), ((1, 4, 4),)]
    assert held(result) == [4, 5, 4]


def test_a_hit_of_everything_leaves_one_token() -> None:
    limits = OracleLimits(4, 64, num_blocks=99, block_size=2, prefix_block_tokens=4)
    jobs = [OracleJob(0.0, 8, 1, ids=(1, 2)), OracleJob(5.0, 9, 1, ids=(1, 2)), OracleJob(9.0, 8, 1, ids=(1, 3))]
    assert timetable(run_oracle(jobs, limits, one_second)) == [((0, 8, 0),), ((1, 1, 8),), ((2, 4, 4),)]


FIVE = [
    OracleJob(0.0, 4, 1, ids=(1, 2)),
    OracleJob(1.0, 4, 1, ids=(3, 4)),
    OracleJob(2.0, 5, 1, ids=(1, 2)),
    OracleJob(3.0, 5, 1, ids=(3, 4)),
]


def test_the_least_recently_idle_is_evicted() -> None:
    # 6 blocks of 1, prefix blocks of 2. A leaves 2, 1 idle; B takes 4 blocks: 2 goes. C hits 1, takes 5: 4 and 3 go.
    limits = OracleLimits(4, 64, num_blocks=6, block_size=1, prefix_block_tokens=2)
    result = run_oracle(FIVE, limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((1, 4, 0),), ((2, 3, 2),), ((3, 5, 0),)]
    assert held(result) == [4, 4, 5, 5]
    assert loaded(result) == [0, 0, 0, 0]


def test_the_host_keeps_what_was_evicted() -> None:
    # As before, with one prefix block on the host: C finds 1 cached, 2 on the host. Of the evicted 4 and 3, 3 stays.
    limits = OracleLimits(4, 64, num_blocks=6, block_size=1, prefix_block_tokens=2, host_prefix_blocks=1)
    result = run_oracle(FIVE, limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((1, 4, 0),), ((2, 1, 4),), ((3, 3, 2),)]
    assert held(result) == [4, 4, 5, 5]
    assert loaded(result) == [0, 0, 2, 2]
    assert hits(result) == [0, 0, 4, 2]


def test_output_is_found_once_its_request_has_finished() -> None:
    # A: 3 + 6 tokens, prefix blocks of 4. B comes while A decodes its second and finds nothing; C finds all 8 tokens.
    limits = OracleLimits(4, 64, num_blocks=99, block_size=1, prefix_block_tokens=4)
    jobs = [OracleJob(0.0, 3, 6, ids=(1, 2)), OracleJob(3.5, 5, 1, ids=(1,)), OracleJob(9.0, 9, 1, ids=(1, 2))]
    result = run_oracle(jobs, limits, one_second)
    assert result.steps[4].scheduled == ((0, 1, 6), (1, 5, 0))
    assert result.steps[-1].scheduled == ((2, 1, 8),)
    assert held(result) == [3, 4, 5, 6, 12, 8, 9]


def test_the_preempted_finds_what_it_left() -> None:
    # test_last_of_running_preempts_itself, with prefix blocks of one block: B comes back to 4 of its 5 tokens.
    limits = OracleLimits(4, 100, num_blocks=5, block_size=2, prefix_block_tokens=2)
    jobs = [OracleJob(0.0, 3, 4, ids=(10, 11, 12)), OracleJob(0.0, 3, 4, ids=(20, 21, 22))]
    result = run_oracle(jobs, limits, one_second)
    assert timetable(result) == [
        ((0, 3, 0), (1, 3, 0)),
        ((0, 1, 3), (1, 1, 3)),
        ((0, 1, 4),),
        ((0, 1, 5),),
        ((1, 1, 4),),
        ((1, 1, 5),),
    ]
    assert held(result) == [4, 4, 3, 3, 3, 3]
    assert hits(result) == [0, 0]  # at the first admission


def test_a_prefilled_prompt_is_registered_but_not_looked_up() -> None:
    # B brings its own 8 tokens (4 blocks), of which A's prefix block is held once; C finds both prefix blocks.
    limits = OracleLimits(4, 64, num_blocks=99, block_size=2, prefix_block_tokens=4)
    jobs = [
        OracleJob(0.0, 5, 3, ids=(1,)),
        OracleJob(0.0, 8, 3, ids=(1, 2), prefilled=True),
        OracleJob(0.0, 9, 1, ids=(1, 2)),
    ]
    result = run_oracle(jobs, limits, one_second)
    assert result.steps[0].scheduled == ((0, 5, 0), (1, 1, 8), (2, 1, 8))
    assert held(result)[0] == 3 + (5 - 2) + (5 - 4)
    assert hits(result) == [0, 0, 8]


def test_a_victim_takes_along_what_it_did_not_compute() -> None:
    # Chunks of 1, 4 blocks of 2. At 3 s A's sixth token would complete its third prefix block, but B lacks a
    # block: A goes, and comes back to its first two prefix blocks alone.
    limits = OracleLimits(
        4,
        3,
        4,
        block_size=2,
        by_priority=True,
        long_prefill_tokens=1,
        prefix_block_tokens=2,
        full_prompt_must_fit=False,
    )
    jobs = [OracleJob(0.0, 7, 1, priority=1, ids=(1, 2, 3)), OracleJob(0.5, 3, 1, priority=0, ids=(9,))]
    result = run_oracle(jobs, limits, one_second)
    assert timetable(result) == [
        ((0, 3, 0),),
        ((0, 1, 3), (1, 1, 0)),
        ((0, 1, 4), (1, 1, 1)),
        ((1, 1, 2),),
        ((0, 3, 4),),
    ]
    assert held(result) == [2, 3, 4, 2, 4]


# ---------------------------------------------------------------- S


def test_drafts_all_accepted() -> None:
    # 2 drafts: 3 tokens a step after the first. The last step has 2 tokens to produce and computes 3 all the same.
    limits = OracleLimits(4, 64, num_blocks=9, block_size=4, draft_tokens=2, acceptance=(1.0, 1.0))
    result = run_oracle([(0.0, 4, 6)], limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((0, 3, 4),), ((0, 3, 7),)]
    assert held(result) == [1, 2, 3]
    assert [step.decodes for step in result.steps] == [(False,), (True,), (True,)]


def test_drafts_all_rejected() -> None:
    limits = OracleLimits(4, 64, num_blocks=9, block_size=4, draft_tokens=2, acceptance=(0.0, 1.0))
    result = run_oracle([(0.0, 4, 3)], limits, one_second)
    assert timetable(result) == [((0, 4, 0),), ((0, 3, 4),), ((0, 3, 5),)]
    assert run_oracle([(0.0, 4, 1)], limits, one_second).requests[0].finished_s == 1.0


def test_drafts_share_the_budget() -> None:
    # 7 // 3 = 2 places. A and B compute 3 each, and C, behind them, waits for a place.
    limits = OracleLimits(4, 7, num_blocks=99, draft_tokens=2, acceptance=(0.0, 0.0))
    result = run_oracle([(0.0, 1, 2), (0.0, 9, 2), (0.0, 1, 1)], limits, one_second)
    assert timetable(result) == [((0, 1, 0), (1, 6, 0)), ((0, 3, 1), (1, 3, 6)), ((1, 3, 9), (2, 1, 0))]


def test_blocks_for_drafts_count_before_the_start() -> None:
    # p + n - 1 + k = 4 + 2 - 1 + 3 = 8 tokens are 2 blocks of 4; one more is a third.
    limits = OracleLimits(4, 64, num_blocks=2, block_size=4, draft_tokens=3, acceptance=(0.0,) * 3)
    result = run_oracle([(0.0, 4, 2), (0.0, 5, 2)], limits, one_second)
    assert result.rejected == [1]
    assert held(result) == [1, 2]


def test_expected_acceptance() -> None:
    # 1 + 0.5 + 0.5 x 0.5 = 1.75 tokens a step: 1, 2, 2, 2 and again.
    limits = OracleLimits(4, 64, num_blocks=99, draft_tokens=2, acceptance=(0.5, 0.5), expected_acceptance=True)
    result = run_oracle([(0.0, 4, 100)], limits, one_second)
    past = [step.scheduled[0][2] for step in result.steps]
    assert np.diff(past[1:10]).tolist() == [1, 2, 2, 2, 1, 2, 2, 2]


def test_sampled_acceptance_has_its_mean() -> None:
    # 1 + 0.8 + 0.8 x 0.5 = 2.2 tokens; the standard error of 20,000 draws is 0.005.
    draws = [sampled((0.8, 0.5), index, computed) for index in range(200) for computed in range(1, 101)]
    assert np.mean(draws) == pytest.approx(2.2, abs=0.02)
    assert set(draws) == {1, 2, 3}


def test_counter_hash_worked_out() -> None:
    # S5 for one number, 0: 1234567891^5 modulo 2^31 - 1, step by step.
    squared = 1234567891 * 1234567891 % 2147483647
    fourth = squared * squared % 2147483647
    assert uniform(0) == fourth * 1234567891 % 2147483647 / 2147483647
    assert uniform(0, 0) == uniform(0 + round(uniform(0) * 2147483647) - 1234567891)
