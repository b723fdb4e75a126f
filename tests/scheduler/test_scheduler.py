"""The compiled scheduler and event loop against the independent oracle, step by step and to the last bit.

Rules beyond vLLM's own are compared in test_oracle_policies.py; here are their limits and their book-keeping.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import WorkloadError
from simulator.models import operations
from simulator.scheduler import state
from simulator.scheduler.completion import complete
from simulator.scheduler.draft_acceptance import accepted, uniform
from simulator.scheduler.policies import schedule
from simulator.scheduler.prefix_cache import blocks_per_prefix_block
from simulator.scheduler.state import SchedulerLimits, State, blocks
from simulator.scheduler.waiting_queue import dequeue, enqueue
from simulator.simulation.engine_loop import Run, opening, simulate
from simulator.simulation.rejection import rejections
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.traces import read_trace
from simulator.workloads.workload import Requests, Workload
from tests.oracle.engine import OracleLimits, OracleResult, run_oracle
from tests.support.hand_made import TABLE, UNIT_S, requests_of


def limits(**changes: int) -> SchedulerLimits:
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
    return SchedulerLimits(**(values | changes))


def seconds(batch: list[tuple[int, int]]) -> float:
    """The table's formula for a model without windows."""
    tokens = sum(new for new, _ in batch)
    keys = sum(operations.pairs(new, past) for new, past in batch)
    return float(TABLE.token_s[tokens] + TABLE.logit_s[len(batch)] + TABLE.slopes[0] * keys)


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


@settings(max_examples=50, deadline=None)
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
    run = simulate(ours, TABLE, requests_of(rows, concurrency))
    assert_equal(run, run_oracle(rows, theirs, seconds))


def test_a_short_request_waits_for_its_static_batch_only_in_that_policy():
    rows = [(0.0, 4, 100), (0.0, 4, 10), (0.001, 4, 10)]
    static = simulate(limits(policy=state.STATIC, max_num_seqs=2, num_blocks=100), TABLE, requests_of(rows))
    mixed = simulate(limits(max_num_seqs=2, num_blocks=100), TABLE, requests_of(rows))
    assert static.first_token_s[2] > static.finished_s[0]
    assert mixed.finished_s[2] < mixed.finished_s[0]


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(lengths, min_size=1, max_size=15), num_blocks=st.integers(80, 120), held=st.integers(1, 3))
def test_groups_of_recurrent_layers_hold_a_few_blocks_of_each_sequence(rows, num_blocks, held):
    """One full and three recurrent groups, no window: each of these holds as many blocks as the full one, or `held`."""
    run = simulate(
        limits(num_blocks=num_blocks, window_groups=3, window_blocks=held, max_num_seqs=3),
        TABLE,
        requests_of(sorted(rows)),
    )
    assert not np.isnan(run.finished_s).any()
    assert run.steps.blocks.max() <= num_blocks
    for step in run.steps[(run.steps.prompts == 0) & (not run.preemptions.any())]:
        alive = (run.first_token_s <= step.start_s) & (step.start_s < run.finished_s)
        cached = [
            int(run.requests.prompt_tokens[each])
            + int(((run.steps.start_s >= run.first_token_s[each]) & (run.steps.start_s <= step.start_s)).sum())
            for each in np.flatnonzero(alive)
        ]
        full = [-(-tokens // 4) for tokens in cached]
        assert step.blocks == sum(each + 3 * min(each, held) for each in full)


@pytest.mark.parametrize("window", [1, 5, 16, 33])
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(lengths, min_size=1, max_size=15), num_blocks=st.integers(80, 120), chunked=st.booleans())
def test_windowed_reads_and_blocks_equal_a_plain_count(window, rows, num_blocks, chunked):
    """One full and two windowed groups: recount blocks and keys of every decode step from the requests' times."""
    window_blocks = -(-window // 4) + 1
    groups = {"window": window, "window_groups": 2, "window_blocks": window_blocks}
    run = simulate(
        limits(num_blocks=num_blocks, max_num_seqs=3, chunked=chunked, **groups),
        TABLE,
        requests_of(sorted(rows)),
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
        seen = [(tokens - 1) % window + 1 if chunked else min(tokens, window) for tokens in cached]
        keys_s = 3 * UNIT_S * sum(cached) + UNIT_S * sum(seen)
        assert step.seconds == TABLE.token_s[len(cached)] + TABLE.logit_s[len(cached)] + keys_s


def test_requests_that_finish_in_one_step_are_listed_in_the_order_in_which_they_run():
    s = opening(limits(num_blocks=100), together(4, 4, 1))
    for together_done in ([0, 1, 2], [3]):  # the list begins anew with each step
        for index in together_done:
            enqueue(s, index)
        schedule(s, 0.0)
        assert complete(s, 1.0) == len(together_done)
        found, request = [], s.book[0].first_done
        while request >= 0:
            found.append(int(request))
            request = s.requests[request].next
        assert found == together_done


@pytest.mark.parametrize("most", [1, 3])
def test_two_long_prompts_take_turns(most):
    """Rule L: each computes `most` of its 6 tokens in a step, however many there is room for; alone it computes all."""
    both = simulate(limits(long_prefill_tokens=most), TABLE, requests_of([(0.0, 6, 1), (0.0, 6, 1)]))
    assert both.steps.prompt_tokens.tolist() == [2 * most] * (6 // most)
    alone = simulate(limits(long_prefill_tokens=most), TABLE, requests_of([(0.0, 6, 1)]))
    assert alone.steps.prompt_tokens.tolist() == [6]


def test_async_scheduling_shows_an_arrival_one_step_later():
    rows = [(0.0, 8, 20), (0.0015, 8, 2)]
    at_once = simulate(limits(num_blocks=100), TABLE, requests_of(rows))
    lagging = simulate(limits(num_blocks=100, async_scheduling=True), TABLE, requests_of(rows))
    step = np.searchsorted(at_once.steps.start_s, at_once.scheduled_s[1])
    assert lagging.scheduled_s[1] == lagging.steps.start_s[step + 1]


# ---------------------------------------------------------------- speculation


def together(count: int = 4, prompt: int = 20, output: int = 13) -> Requests:
    return requests_of([(0.0, prompt, output)] * count)


@pytest.mark.parametrize("drafts", [1, 3])
def test_drafts_that_are_never_accepted_are_wasted_tokens(drafts):
    roomy = limits(num_blocks=1000, max_num_batched_tokens=200)
    plain = simulate(roomy, TABLE, together())
    wasted = simulate(roomy._replace(draft_tokens=drafts), TABLE, together(), acceptance=(0.0,) * drafts)
    assert len(plain.steps) == len(wasted.steps) == 13
    computed = 4 * (1 + drafts)
    extra_s = TABLE.token_s[computed] - TABLE.token_s[4] + TABLE.logit_s[computed] - TABLE.logit_s[4]
    assert (wasted.steps.seconds[1:] == plain.steps.seconds[1:] + extra_s + 3 * UNIT_S * 4 * drafts).all()


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("output", [1, 2, 9, 10])
def test_drafts_that_are_always_accepted_come_k_plus_one_at_a_time(expected, output):
    allowed = limits(num_blocks=1000, max_num_batched_tokens=200, draft_tokens=3, expected_acceptance=expected)
    run = simulate(allowed, TABLE, together(output=output), acceptance=(1.0, 1.0, 1.0))
    assert len(run.steps) == 1 + -(-(output - 1) // 4)
    assert (run.finished_s == run.end_s).all()


@pytest.mark.parametrize("expected", [False, True])
def test_acceptance_gives_its_tokens_per_step(expected):
    """1 + 0.8 + 0.8 0.6 + 0.8 0.6 0.5 = 2.52 tokens; 25,000 draws are within 1 % of it."""
    allowed = limits(num_blocks=100_000, max_num_batched_tokens=2000, max_num_seqs=64, draft_tokens=3)
    allowed = allowed._replace(expected_acceptance=expected)
    run = simulate(allowed, TABLE, together(64, 10, 1001), acceptance=(0.8, 0.6, 0.5))
    assert 64 * 1000 / run.steps.decodes.sum() == pytest.approx(2.52, rel=0.01)


@settings(deadline=None)
@given(acceptance=st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=6))
def test_one_draw_accepts_each_draft_with_the_product_of_all_up_to_it(acceptance):
    """Exactly: the draws that accept more than i drafts are the interval from 0 to a0 a1 .. ai."""
    packed = opening(limits(draft_tokens=len(acceptance)), together(), acceptance).limits
    for i, product in enumerate(np.cumprod(acceptance)):
        assert product == 0 or accepted(packed, np.nextafter(product, 0)) > i
        assert accepted(packed, product) <= i
    assert accepted(packed, 0.0) == np.count_nonzero(np.cumprod(acceptance))


def test_drawn_drafts_follow_their_law_and_forget_the_step_before():
    """Chi-square over all steps but each request's last, of accepted drafts and of pairs of steps; 0.1 % quantiles."""
    acceptance, count = (0.8, 0.6, 0.5), 64
    allowed = limits(num_blocks=100_000, max_num_batched_tokens=2000, max_num_seqs=count, draft_tokens=3)
    s, before, steps = opening(allowed, together(count, 10, 1001), acceptance), np.full(count, 10), []
    for index in range(count):
        enqueue(s, index)
    while s.book[0].finished == 0:
        schedule(s, 0.0)
        complete(s, 0.0)
        after = s.slots.cached[:count] + s.book[0].tick
        steps.append(after - before)
        before = after
    drawn = np.array(steps[1:-1]) - 1  # the first computed the prompts, the last may be cut
    more = np.concatenate([[1.0], np.cumprod(acceptance), [0.0]])
    law = more[:-1] - more[1:]
    single = np.bincount(drawn.ravel(), minlength=4)
    assert ((single - law * drawn.size) ** 2 / (law * drawn.size)).sum() < 16.27  # 3 degrees of freedom
    pairs = np.bincount((4 * drawn[:-1] + drawn[1:]).ravel(), minlength=16)
    both = np.outer(law, law).ravel() * drawn[1:].size
    assert ((pairs - both) ** 2 / both).sum() < 37.7  # 15


@settings(deadline=None)
@given(counts=st.tuples(*[st.integers(0, 2**40)] * 3))
def test_the_counter_hash_is_its_definition(counts):
    prime, mixed = 2**31 - 1, 1234567891
    for count in counts:
        mixed = pow(mixed + count, 5, prime)
    assert uniform(*counts) == mixed / prime


# ---------------------------------------------------------------- prompts that wait


@pytest.mark.parametrize(("least", "step"), [(0, 1), (17, 1), (18, 9)])
def test_prompts_wait_for_free_blocks_beside_what_runs(least, step):
    """Eight tokens and a new one take three of 20 blocks, so 17 are free; after nine steps nothing runs."""
    run = simulate(limits(least_free_blocks=least), TABLE, requests_of([(0.0, 8, 9), (1e-9, 8, 2)]))
    assert run.scheduled_s.tolist() == [0.0, run.steps.start_s[step]]


@pytest.mark.parametrize(("watermark", "step"), [(0, 1), (15, 1), (16, 9)])
def test_an_admission_leaves_the_watermark_free_beside_what_runs(watermark, step):
    """Of the 17 blocks that are free a prompt of 8 tokens takes two; alone it is admitted all the same."""
    run = simulate(limits(watermark_blocks=watermark), TABLE, requests_of([(0.0, 8, 9), (1e-9, 8, 2)]))
    assert run.scheduled_s.tolist() == [0.0, run.steps.start_s[step]]


@pytest.mark.parametrize(("least", "step"), [(0, 1), (1, 1), (2, 2)])
def test_prompts_follow_prompts_only_if_enough_requests_wait(least, step):
    """The second comes while the first is computed: next, or behind one step of decodes."""
    few = limits(policy=state.PROMPTS_FIRST, least_waiting=least)
    run = simulate(few, TABLE, requests_of([(0.0, 8, 9), (1e-9, 8, 2)]))
    assert run.scheduled_s.tolist() == [0.0, run.steps.start_s[step]]


def test_prompts_wait_for_steps_with_a_decode_and_come_together():
    """Three such steps after the first prompt; then that of the second and third is itself the first of three."""
    load = requests_of([(0.0, 4, 20), (1e-9, 4, 20), (1e-9, 4, 20), (0.0045, 4, 1)])
    run = simulate(limits(prompt_interval=3), TABLE, load)
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, 4, 4, 7]].tolist()


# ---------------------------------------------------------------- decodes that are decided at once

AT_ONCE = {"policy": state.PROMPTS_FIRST, "chunked_prefill": False, "num_scheduler_steps": 4, "draft_tokens": 3}


def test_a_step_of_decodes_is_several_that_the_host_prepares_once():
    """A prompt of 4 tokens, then four passes that read 5, 6, 7, 8 tokens; the host's part of three is not paid."""
    table = TABLE._replace(host_s=np.array([5, 3, 2, 0]) * UNIT_S)
    run = simulate(limits(**AT_ONCE), table, requests_of([(0.0, 4, 5)]))
    each_s = table.token_s[1] + table.logit_s[1]
    host_s = (5 + 3 + 2 * 6.5) * UNIT_S
    assert run.steps.seconds[1:].tolist() == [4 * each_s + table.slopes[0] * 26 - 3 * host_s]
    assert run.finished_s.tolist() == [run.end_s]


def test_nothing_joins_decodes_that_are_decided_and_what_ends_early_is_computed_on():
    """The first request needs two passes of four; the second, which arrives in the first, waits for the last."""
    run = simulate(limits(**AT_ONCE), TABLE, requests_of([(0.0, 4, 3), (0.0015, 4, 1)]))
    assert run.steps.decodes.tolist() == [0, 1, 0]
    assert run.finished_s[0] == run.scheduled_s[1] == run.steps.start_s[2]
    alone = simulate(limits(**AT_ONCE), TABLE, requests_of([(0.0, 4, 5)]))
    assert run.steps.seconds[1] == alone.steps.seconds[1]


# ---------------------------------------------------------------- shared prefixes


def test_a_prompt_that_is_all_in_the_cache_has_one_token_to_compute():
    load = replace(requests_of([(0.0, 33, 2), (1.0, 33, 2)]), prefixes=Prefixes.of([[5, 6], [5, 6]]))
    run = simulate(limits(num_blocks=100, max_num_batched_tokens=64, prefix_block_tokens=16), TABLE, load)
    assert run.hit_tokens.tolist() == [0, 32]
    assert run.steps.prompt_tokens.tolist() == [33, 0, 1, 0]


def test_a_warm_cache_saves_the_first_prompt_too_and_keeps_what_is_most_recent():
    load = requests_of([(0.0, 33, 2)])
    warm = replace(Prefixes.of([[5, 6]]), warm=np.array([0, 1]))
    run = simulate(limits(num_blocks=100, prefix_block_tokens=16), TABLE, replace(load, prefixes=warm))
    assert run.hit_tokens.tolist() == [32]
    full = limits(num_blocks=10, prefix_block_tokens=16)  # two prefix blocks fit; of three the least recent goes
    more = replace(Prefixes.of([[5, 6], [7]]), warm=np.array([2, 0, 1]))
    run = simulate(full, TABLE, replace(requests_of([(0.0, 33, 2), (9.0, 17, 1)]), prefixes=more))
    assert run.hit_tokens.tolist() == [32, 0]
    oldest = replace(Prefixes.of([[7], [5, 6]]), warm=np.array([0, 1, 2]))
    run = simulate(full, TABLE, replace(requests_of([(0.0, 17, 1), (9.0, 33, 2)]), prefixes=oldest))
    assert run.hit_tokens[0] == 0
    with pytest.raises(WorkloadError, match="warm block"):
        replace(warm, warm=np.array([2]))


def test_a_front_end_slower_than_the_engine_sets_the_rate():
    """Four streams of 100 tokens at 1 ms a token: 0.4 s, of which the engine works less than 0.25."""
    load = requests_of([(0.0, 1, 100)] * 4, concurrency=4)
    free, bound = (simulate(limits(stream_s=each, num_blocks=200), TABLE, load) for each in (0.0, 1e-3))
    assert free.finished_s.max() < 0.25
    assert bound.finished_s.max() == pytest.approx(0.4, rel=0.01)
    assert bound.end_s == free.end_s  # the engine does not wait
    assert bound.first_token_s[0] == free.first_token_s[0] + 4e-3


def test_an_engine_that_nothing_warmed_up_takes_longer_for_its_first_step_alone():
    load = requests_of([(1.0, 16, 3), (1.0, 16, 3), (60.0, 16, 3)])
    warm, cold = (simulate(limits(first_call_s=each), TABLE, load) for each in (0.0, 9.0))
    assert (cold.first_token_s - warm.first_token_s).tolist() == pytest.approx([9.0, 9.0, 0.0])
    assert (cold.steps.seconds - warm.steps.seconds).tolist() == pytest.approx([9.0, *[0.0] * (len(warm.steps) - 1)])


@pytest.mark.parametrize("name", ["mooncake_fast25_conversation", "mooncake_fast25_synthetic"])
def test_an_unlimited_cache_hits_what_a_plain_count_of_repeated_blocks_says(name, traces: Path):
    load = Workload.from_trace(read_trace(traces / f"{name}.csv.gz")).requests()
    seen: set[int] = set()
    counted = []
    for row, prompt_tokens in enumerate(load.prompt_tokens.tolist()):
        first, count = int(load.prefixes.first[row]), int(load.prefixes.count[row])
        ids = load.prefixes.ids[first : first + count].tolist()
        run_of_hits = next((index for index, block in enumerate(ids) if block not in seen), len(ids))
        counted.append(512 * min(run_of_hits, (prompt_tokens - 1) // 512))
        seen.update(ids)
    allowed = limits(max_num_seqs=256, max_num_batched_tokens=4000, num_blocks=10**8, prefix_block_tokens=512)
    table = TABLE._replace(logit_s=np.zeros(300))
    assert simulate(allowed, table, load).hit_tokens.tolist() == counted
    assert sum(counted) > 0.1 * load.prompt_tokens.sum()


def recount(s: State) -> None:
    """Blocks, prefix blocks and tokens by a plain count over the running list and the prefix blocks."""
    book, holders = s.book[0], s.prefix_blocks.holders[:-2]
    running = s.slots[: book.running]
    decodes = np.arange(book.running) < book.decoding
    tokens = running.cached + book.tick * decodes
    held = running.room * decodes + tokens * ~decodes if s.limits.draft_tokens else tokens
    extra_holders = int(np.maximum(holders - 1, 0).sum())
    assert book.extra_holders == extra_holders
    assert holders.sum() == running.held_prefix_blocks.sum()
    in_use = sum(blocks(s.limits, int(each)) for each in held) - extra_holders * blocks_per_prefix_block(s)
    assert book.free_blocks == s.limits.num_blocks - in_use
    for end, count, place in (
        (-2, book.idle_prefix_blocks, state.ON_DEVICE),
        (-1, book.host_prefix_blocks, state.ON_HOST),
    ):
        assert count == ((s.prefix_blocks.place[:-2] == place) & (holders == 0)).sum()
        block, length = s.prefix_blocks[end].next, 0
        while block != len(s.prefix_blocks) + end:
            block, length = s.prefix_blocks[block].next, length + 1
        assert length == count
    assert book.idle_prefix_blocks * blocks_per_prefix_block(s) <= book.free_blocks
    assert book.host_prefix_blocks <= s.limits.host_prefix_blocks
    assert book.base_sum == running.cached[decodes].sum()
    assert book.prompt_cached == running.cached[~decodes].sum()


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=20),
    drafts=st.sampled_from([0, 0, 2]),
    extra_blocks=st.integers(0, 20),
    host_prefix_blocks=st.sampled_from([0, 3]),
    long=st.sampled_from([0, 5]),
    by_priority=st.booleans(),
    prompts_first=st.booleans(),
)
def test_blocks_prefix_blocks_and_tokens_are_what_a_recount_gives(
    rows, drafts, extra_blocks, host_prefix_blocks, long, by_priority, prompts_first
):
    tables = [[100 * (kind % 3) + block + (50 if block >= kind else 0) for block in range(20)] for _, _, kind in rows]
    load = requests_of([(0.0, prompt, output) for prompt, output, _ in rows])
    load = replace(load, prefixes=Prefixes.of(tables), priority=[kind for _, _, kind in rows])
    allowed = limits(
        policy=state.PROMPTS_FIRST if prompts_first else state.CONTINUOUS,
        num_blocks=max(-(-(prompt + output - 1 + drafts) // 2) for prompt, output, _ in rows) + extra_blocks,
        block_size=2,
        prefix_block_tokens=4,
        host_prefix_blocks=host_prefix_blocks,
        draft_tokens=drafts,
        long_prefill_tokens=long,
        by_priority=by_priority,
    )
    s, now_s = opening(allowed, load, (0.5,) * drafts), 0.0
    for index in range(len(load)):
        enqueue(s, index)
    while s.book[0].finished < len(load):
        assert schedule(s, now_s) > 0
        now_s += 1.0
        complete(s, now_s)
        recount(s)
    assert s.book[0].free_blocks == allowed.num_blocks
    assert not s.growth.any()
    assert not s.prefix_blocks.holders.any()


# ---------------------------------------------------------------- the queue


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
    leaving=st.sets(st.integers(0, 29)),
    by_priority=st.booleans(),
)
def test_the_queue_is_in_order_whoever_leaves_it(rows, leaving, by_priority):
    arrival_s = sorted(float(arrival) for _, arrival in rows)
    load = replace(requests_of([(each, 4, 1) for each in arrival_s]), priority=[urgency for urgency, _ in rows])
    s = opening(limits(by_priority=by_priority), load)
    for index in range(len(rows)):
        enqueue(s, index)
    leaving = sorted(each for each in leaving if each < len(rows))
    for index in leaving:
        dequeue(s, index)
    left = [index for index in range(len(rows)) if index not in leaving]
    assert s.book[0].waiting == s.book[0].waiting_blocks == len(left)
    if by_priority:
        left.sort(key=lambda index: (rows[index][0], arrival_s[index], index))
    for index in left:
        assert s.book[0].head == index
        dequeue(s, index)
    assert s.book[0].waiting == s.book[0].waiting_blocks == 0


@settings(deadline=None)
@given(
    num_blocks=st.integers(1, 12),
    window_groups=st.integers(0, 2),
    prompt=st.integers(1, 60),
    output=st.integers(1, 30),
    chunked=st.booleans(),
    whole_output=st.booleans(),
)
def test_a_request_alone_ends_unless_it_is_rejected(num_blocks, window_groups, prompt, output, chunked, whole_output):
    """And one is rejected only where its last step but one has no block, or its prompt no step."""
    rules = {"window": 9, "window_groups": window_groups, "window_blocks": 4} if window_groups else {}
    allowed = limits(num_blocks=num_blocks, chunked_prefill=chunked, admit_full_output=whole_output, **rules)
    alone = Requests(np.zeros(1), np.array([prompt]), np.array([output]))
    held = -(-(prompt + output - 1) // allowed.block_size)
    too_large = held + window_groups * min(held, 4) > num_blocks
    too_long = prompt > allowed.max_num_batched_tokens and not chunked
    found = rejections(allowed, alone)
    assert [("cache" in because, "chunked" in because) for because in found] == [
        reason for reason, holds in (((True, False), too_large), ((False, True), too_long)) if holds
    ]
    if not found:
        assert np.isfinite(simulate(allowed, TABLE, alone).finished_s).all()


def test_a_static_batch_computes_prompts_beyond_the_budget_of_a_step():
    whole = limits(chunked_prefill=False, policy=state.STATIC)
    alone = Requests(np.zeros(1), np.array([whole.max_num_batched_tokens + 1]), np.array([4]))
    assert np.isfinite(simulate(whole, TABLE, alone).finished_s).all()
    with pytest.raises(WorkloadError, match=r"the request, rejected: .*prompts of more than 32 tokens, not chunked"):
        simulate(whole._replace(policy=state.CONTINUOUS), TABLE, alone)


def test_rejected_requests_are_named_and_counted_once_and_take_no_part():
    """A step has 32 tokens, the context 100, the cache 20 blocks of 4: a request of 81 tokens caches 80."""
    requests = Requests(np.zeros(5), np.array([16, 40, 32, 60, 71]), np.array([4, 4, 49, 50, 11]))
    run = simulate(limits(chunked_prefill=False, max_model_len=100), TABLE, requests)
    assert run.rejected.rows.tolist() == [1, 3, 4]
    assert run.rejected.reasons == {
        "more than 100 tokens (max_model_len)": 1,
        "more than the 81 tokens that the KV cache holds (20 blocks)": 1,
        "prompts of more than 32 tokens, not chunked (max_num_batched_tokens)": 1,
    }
    assert run.requests.prompt_tokens.tolist() == [16, 32]
    assert np.isfinite(run.finished_s).all()
    alone = simulate(limits(chunked_prefill=False), TABLE, requests.only(np.array([0, 2])))
    assert run.finished_s.tolist() == alone.finished_s.tolist()


def test_what_a_preemption_makes_too_long_for_a_step_is_told():
    """Two grow by 14 tokens until 20 blocks of 4 are full; the one put back then has 34 to compute, a step 32."""
    requests = Requests(np.zeros(2), np.array([32, 20]), np.array([40, 40]))
    with pytest.raises(WorkloadError, match="1 of 2 requests that wait for ever"):
        simulate(limits(chunked_prefill=False), TABLE, requests)
    assert np.isfinite(simulate(limits(), TABLE, requests).finished_s).all()
