"""The compiled scheduler and event loop against the independent oracle, step by step and to the last bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import OracleLimits, OracleResult, run_oracle

from simulator import state, work
from simulator.roofline import StepTable
from simulator.simulate import Run, simulate
from simulator.state import Limits
from simulator.workload import Requests

# Multiples of a power of two: every sum is exact, so the order of adding cannot blur a comparison to the bit. A key
# costs the same for a decode and for a prompt, because the oracle's (new, past) does not tell the two apart.
UNIT_S = 2.0**-20
TABLE = StepTable(
    token_s=(1000 + 11 * np.arange(4096)) * UNIT_S,
    logit_s=(100 + np.arange(65)) * UNIT_S,
    slopes=np.array([3, 1, 0, 3, 1]) * UNIT_S,
)


def limits(**changes: int) -> Limits:
    """Small limits without a window."""
    values = {
        "policy": state.CONTINUOUS,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "num_blocks": 20,
        "block_size": 4,
        "admit_full_prompt": True,
        "async_scheduling": False,
        "window": 0,
        "full_groups": 1,
        "window_groups": 0,
        "window_blocks": 0,
    }
    return Limits(**(values | changes))


def seconds(batch: list[tuple[int, int]]) -> float:
    """The table's formula for a model without windows."""
    tokens = sum(new for new, _ in batch)
    keys = sum(work.pairs(new, past) for new, past in batch)
    return float(TABLE.token_s[tokens] + TABLE.logit_s[len(batch)] + TABLE.slopes[0] * keys)


def table_of(rows: list[tuple[float, int, int]], concurrency: int = 0) -> Requests:
    arrival_s, prompts, outputs = zip(*rows, strict=True)
    return Requests(np.array(arrival_s), np.array(prompts), np.array(outputs), concurrency)


def assert_equal(run: Run, oracle: OracleResult) -> None:
    assert oracle.rejected == []
    assert len(run.steps) == len(oracle.steps)
    for ours, theirs in zip(run.steps, oracle.steps, strict=True):
        assert ours.start_s == theirs.start_s
        assert ours.decodes + ours.prompts == len(theirs.scheduled)
        assert ours.prompt_tokens + ours.decodes == sum(new for _, new, _ in theirs.scheduled)
        assert ours.blocks == theirs.blocks_held
    for index, theirs in enumerate(oracle.requests):
        assert run.requests.arrival_s[index] == theirs.arrival_s
        assert run.scheduled_s[index] == theirs.scheduled_s
        assert run.first_token_s[index] == theirs.first_token_s
        assert run.finished_s[index] == theirs.finished_s
        assert run.preemptions[index] == theirs.preemptions


lengths = st.tuples(st.floats(0, 0.3), st.integers(1, 40), st.integers(1, 30))


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(lengths, min_size=1, max_size=25),
    max_num_seqs=st.integers(1, 8),
    extra_tokens=st.integers(0, 40),
    extra_blocks=st.integers(0, 40),
    block_size=st.sampled_from([1, 3, 4, 16]),
    full=st.booleans(),
    concurrency=st.sampled_from([0, 0, 1, 3]),
    static=st.booleans(),
)
def test_equals_the_oracle(rows, max_num_seqs, extra_tokens, extra_blocks, block_size, full, concurrency, static):
    rows = sorted(rows)
    if concurrency:
        rows = [(0.0, prompt, output) for _, prompt, output in rows]
    num_blocks = max(-(-(prompt + output - 1) // block_size) for _, prompt, output in rows) + extra_blocks
    ours = limits(
        policy=state.STATIC if static else state.CONTINUOUS,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + extra_tokens,
        num_blocks=num_blocks,
        block_size=block_size,
        admit_full_prompt=full,
    )
    theirs = OracleLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + extra_tokens,
        num_blocks=num_blocks,
        block_size=block_size,
        policy="static" if static else "continuous",
        concurrency=concurrency,
        full_prompt_must_fit=full,
    )
    run = simulate(ours, TABLE, table_of(rows, concurrency))
    assert_equal(run, run_oracle(rows, theirs, seconds))


def test_a_short_request_waits_for_its_static_batch_only_in_that_policy():
    rows = [(0.0, 4, 100), (0.0, 4, 10), (0.001, 4, 10)]
    static = simulate(limits(policy=state.STATIC, max_num_seqs=2, num_blocks=100), TABLE, table_of(rows))
    mixed = simulate(limits(max_num_seqs=2, num_blocks=100), TABLE, table_of(rows))
    assert static.first_token_s[2] > static.finished_s[0]
    assert mixed.finished_s[2] < mixed.finished_s[0]


@pytest.mark.parametrize("window", [1, 5, 16, 33])
@settings(max_examples=100, deadline=None)
@given(rows=st.lists(lengths, min_size=1, max_size=15), num_blocks=st.integers(80, 120))
def test_windowed_reads_and_blocks_equal_a_plain_count(window, rows, num_blocks):
    """One full and two windowed groups: recount blocks and keys of every decode step from the requests' times."""
    window_blocks = -(-window // 4) + 1
    run = simulate(
        limits(num_blocks=num_blocks, window=window, window_groups=2, window_blocks=window_blocks, max_num_seqs=3),
        TABLE,
        table_of(sorted(rows)),
    )
    assert not np.isnan(run.finished_s).any()
    assert run.steps.blocks.max() <= num_blocks
    for step in run.steps[(run.steps.prompts == 0) & (not run.preemptions.any())]:
        cached = [
            prompt + int(((run.steps.start_s >= first_s) & (run.steps.start_s <= step.start_s)).sum())
            for prompt, first_s, finished_s in zip(
                run.requests.prompt_tokens, run.first_token_s, run.finished_s, strict=True
            )
            if first_s <= step.start_s < finished_s
        ]
        full = [-(-tokens // 4) for tokens in cached]
        assert step.blocks == sum(each + 2 * min(each, window_blocks) for each in full)
        keys_s = 3 * UNIT_S * sum(cached) + UNIT_S * sum(min(tokens, window) for tokens in cached)
        assert step.seconds == TABLE.token_s[len(cached)] + TABLE.logit_s[len(cached)] + keys_s


def test_async_scheduling_shows_an_arrival_one_step_later():
    rows = [(0.0, 8, 20), (0.0015, 8, 2)]
    at_once = simulate(limits(num_blocks=100), TABLE, table_of(rows))
    lagging = simulate(limits(num_blocks=100, async_scheduling=True), TABLE, table_of(rows))
    step = np.searchsorted(at_once.steps.start_s, at_once.scheduled_s[1])
    assert lagging.scheduled_s[1] == lagging.steps.start_s[step + 1]
