"""Llama 4's chunks, counted by brute force: prompts, decodes, the event loop, bounds, and what engines make of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.mean_steps import decode_step
from simulator.cost.scenario import Scenario
from simulator.deployment.batches import Batch, attended, decode_counts, prefill_counts
from simulator.deployment.cache_blocks import CacheGroups, groups_of
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.settings import Settings
from simulator.models.model import load_model
from simulator.models.operations import Counts, Sequence, Span, count, pairs
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import POLICIES, SchedulerLimits, local_pairs
from simulator.simulation.engine_loop import opening, simulate
from simulator.simulation.scheduler_limits import limits
from simulator.simulation.step_seconds import step_seconds
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.workload import Requests, Workload

SPANS = st.one_of(st.none(), st.builds(Span, st.integers(1, 40), st.booleans()))
SMALL = SchedulerLimits(POLICIES["continuous"], 4, 64, 99, 16, admit_full_prompt=False)
CHUNK = 8192


def scout(hardware: str = "h200-sxm", engine: str = "tensorrt-llm", tp: int = 8) -> Deployment:
    return deploy("llama-4-scout", hardware, engine, default_layout(load_model("llama-4-scout"), tp=tp))


def keys(position: int, span: Span | None) -> int:
    """The tokens that the query at a position attends to, one by one."""
    seen = range(position + 1)
    if span is None:
        return len(seen)
    if span.chunked:
        return sum(each // span.tokens == position // span.tokens for each in seen)
    return sum(each > position - span.tokens for each in seen)


@given(st.integers(0, 120), st.integers(0, 120), SPANS)
def test_pairs_are_the_keys_of_each_query(new, past, span):
    by_hand = [keys(position, span) for position in range(past, past + new)]
    assert pairs(new, past, span) == sum(by_hand)
    assert pairs(np.array([float(new)]), float(past), span) == [sum(by_hand)]
    if span and by_hand:
        assert local_pairs(SMALL._replace(window=span.tokens, chunked=span.chunked), new, past) == sum(by_hand)
        assert span.seen(past + new) == by_hand[-1]


@given(st.integers(1, 3), st.integers(1, 30_000), st.integers(0, 20_000))
def test_prompts_and_decodes_are_counted_within_their_chunks(size, tokens, past):
    one = scout()
    prompts = prefill_counts(one, Batch(size, tokens, 1), past=past)
    assert np.sum(prompts.prefill_pairs_windowed) == size * pairs(tokens, past, Span(CHUNK, chunked=True))
    ours = decode_counts(one, Batch(size, tokens, 2), np.array([tokens + 1.0]))
    assert ours.decode_reads_windowed == [size * (tokens % CHUNK + 1)]
    assert count([Sequence(1, tokens)] * size, attended(one)).decode_reads_windowed == size * (tokens % CHUNK + 1)


@pytest.mark.parametrize("prompt", [8_100, 20_000])
def test_the_event_loop_counts_decodes_across_the_end_of_a_chunk(prompt):
    one, batch = scout(), Batch(1, prompt, 5_000)
    run = simulate(limits(one), one.step_model().table(one.max_num_batched_tokens, 16), requests(batch))
    tpot_s = float((run.finished_s - run.first_token_s)[0]) / 4_999
    assert tpot_s == pytest.approx(float(estimate(one, batch).expected.tpot_s), rel=1e-9)
    steps_s, end = run.steps.seconds[run.steps.prompts == 0], CHUNK - prompt % CHUNK
    assert steps_s[end - 2] > steps_s[0] > steps_s[end + 2]  # the next chunk has hardly begun


def requests(batch: Batch) -> Requests:
    ones = np.ones(batch.size, np.int64)
    return Requests(np.zeros(batch.size), batch.prompt_tokens * ones, batch.output_tokens * ones)


def test_decodes_take_no_less_than_the_mean_one_alone():
    """Two sequences of 35 and 17 cached tokens in chunks of 16: 4 and 2 with the new one, of which one takes 30 s."""
    allowed = SMALL._replace(window=16, chunked=True, window_blocks=2)
    lone_s, slopes = np.array([0.0, 10.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    table = StepTable(np.zeros(65), np.zeros(65), slopes, lone_s=lone_s)
    s = opening(allowed, requests(Batch(2, 35, 9)))
    book = s.book[0]
    book.shown_s, book.decoding, book.decode_now, book.open_reads, book.open_base_sum = 1.0, 2, 1, 2, 4
    s.slots.cached[:2], s.slots.chunk_start[:2] = (35, 17), (32, 16)
    assert step_seconds(s, table)[0] == 30.0
    table.lone_s[1] = 1.0
    assert step_seconds(s, table)[0] == 6.0


def test_what_attention_reads_by_hand():
    """20,000 tokens of prompt are two chunks and 3,616 tokens; 199 decodes read 3,617 to 3,815 of the third one."""
    load = Workload(OpenLoop(1.0), Independent(Fixed(20_000), Fixed(200)), 2)
    scenario = Scenario(scout(), load)
    found = lower_bounds(scenario)
    prompt_s, decodes_s = found._attention_s
    slopes, local = found._floor.slopes, 2 * CHUNK * (CHUNK + 1) // 2 + 3616 * 3617 // 2
    assert prompt_s == pytest.approx(slopes[2:] @ [20_000, 200_010_000, local], rel=1e-9)
    assert decodes_s == pytest.approx(slopes[:2] @ [199 * 20_100, 199 * 3_716], rel=1e-9)
    assert scenario.report(load).run.busy_s >= found.busy_s


def test_the_mean_decode_is_over_the_chunks_of_a_whole_output():
    """192 of 1,000 steps read the end of the first chunk, 8,001 to 8,192 tokens, the others 1 to 808 of the next."""
    load = Workload(OpenLoop(1.0), Independent(Fixed(8_000), Fixed(1_000)), 2)
    scenario = Scenario(scout(), load)
    mean = decode_step(scenario.deployment, scenario.report(load))
    assert mean.decode_reads_windowed / mean.tokens == pytest.approx((192 * 8096.5 + 808 * 404.5) / 1000)


# --------------------------------------------------------------------------------------------- what engines make of it


@pytest.mark.parametrize(
    ("engine", "hardware", "span"),
    [
        ("vllm", "b200-sxm", Span(CHUNK, chunked=True)),
        ("tensorrt-llm", "b200-sxm", Span(CHUNK, chunked=True)),
        ("sglang", "h200-sxm", Span(CHUNK, chunked=True)),
        ("sglang", "b200-sxm", Span(1_048_576)),  # trtllm_mha, as triton and aiter, attends to all
        ("sglang-0.5", "mi300x", Span(1_048_576)),
        ("llama.cpp", "h200-sxm", Span(CHUNK)),
        ("ollama", "h200-sxm", Span(1_048_576)),
    ],
)
def test_kernels_without_chunks_mask_what_they_read(engine, hardware, span):
    one = scout(hardware, engine, tp=1)
    assert attended(one) == span
    assert attended(one.at_light) == Span(CHUNK, chunked=True)
    counted = decode_counts(one, Batch(1, 10_000, 2), 10_001.0)
    assert counted.decode_reads_windowed == {True: 10_001 - CHUNK, False: min(span.tokens, 10_001)}[span.chunked]
    gemma = deploy("gemma-3-12b", hardware, engine)
    assert attended(gemma) == gemma.model.span


@pytest.mark.parametrize(("engine", "whole"), [("vllm-0.8", True), ("vllm-0.14", False), ("vllm", False)])
def test_vllm_keeps_chunks_before_0_14(engine, whole):
    """VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE is 0 in 0.13.0; from 0.14.0 on 12 layers make a group."""
    assert groups_of(scout(engine=engine)) == (CacheGroups(48, 1, 0) if whole else CacheGroups(12, 1, 3))
    assert groups_of(deploy("gemma-3-27b", "h100-sxm", engine)) == CacheGroups(10, 1, 6)


def test_a_step_of_the_profile_reads_no_cache_before_its_chunk():
    """3 of 4 layers of Scout are local: 8 KV heads of 128 keys and values in 16 bits."""
    reads = [op.cache_bytes for op in load_model("llama-4-scout").ops() if op.rate == "decode_attention"]
    counts = Counts(decode_reads=10_000.0, decode_reads_windowed=float(Span(CHUNK, chunked=True).seen(10_000)))
    assert sorted(float(counts.dot(each)) for each in reads) == [1808 * 4096.0, 10_000 * 4096.0]


def test_ollama_keeps_chunks_and_llama_cpp_a_window():
    """48 layers of 8 KV heads of 128 keys and values in 16 bits; 36 of them keep 8,192 tokens in llama.cpp."""
    slots = {}
    for engine in ("ollama", "llama.cpp"):
        settings = Settings(max_num_seqs=1, max_model_len=100_000)
        one = deploy("llama-4-scout", "m3-ultra-80", engine, settings=settings)
        slots[engine] = memory_plan(one).block_bytes / 4096
    assert slots == {"ollama": 48 * 100_000, "llama.cpp": 12 * 100_000 + 36 * CHUNK}
