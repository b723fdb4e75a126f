"""Scheduling policies, compiled: which requests compute how many tokens in the next step.

The same State and code drive the simulator and the reference engine: `schedule` decides a step, which then takes its
time (a prediction, or a real forward pass), and `complete` (completion.py) applies its results. The running list holds
first the sequences that decode, in the order in which they began to, then those whose prompt is still being computed,
in order of admission. Rules: docs/serving-rules.md; those of vLLM: docs/vllm-rules.md.
"""

import numpy as np

from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.output_estimate import charge, expect, has_room, learn
from simulator.scheduler.prefix_cache import blocks_per_prefix_block, cached_prefix_blocks, hold, shared_prefix_blocks
from simulator.scheduler.state import PROMPTS_FIRST, STATIC, UNCACHED, State, blocks, whole_blocks
from simulator.scheduler.transitions import begin_request, compute_prompt, make_room, preempt, promise, take


@inlined
def _decodes(s: State, now_s: float) -> None:
    """Let every decoding sequence compute its next token; preempt where its KV-cache block is missing."""
    book, limits, place = s.book[0], s.limits, -s.book[0].tick % s.limits.block_size
    picky = limits.by_priority or limits.prefix_block_tokens > 0  # who lacks a block decides what goes
    if limits.draft_tokens > 0 or (picky and s.growth[place] > book.free_blocks):
        _decode_one_by_one(s, now_s)
        return
    while s.growth[place] > book.free_blocks:  # the last gives way, whoever before it lacks the block
        preempt(s, book.running - 1, False, now_s)
    take(s, s.growth[place])
    book.budget -= book.decoding
    book.scheduled = book.decoding


@compiled
def _decode_one_by_one(s: State, now_s: float) -> None:
    """Give each decoding sequence its blocks in order, including those of draft tokens, which it keeps."""
    book, new, j = s.book[0], 1 + s.limits.draft_tokens, 0
    while j < book.decoding:
        tokens, need, fits = s.slots[j].cached + book.tick, 0, True
        room = s.slots[j].room if s.limits.draft_tokens > 0 else whole_blocks(s.limits, tokens)
        if tokens + new > room:
            need = blocks(s.limits, tokens + new) - blocks(s.limits, room)
            room = whole_blocks(s.limits, tokens + new)
        if need > book.free_blocks:
            j, fits = make_room(s, j, need, now_s)
        if fits:
            take(s, need)
            s.slots[j].room = room
            book.budget -= new
            book.scheduled += 1
            j += 1


@compiled
def _most_new(s: State, lacking: int) -> int:
    """Return how many of a prompt's `lacking` tokens it may compute in this step."""
    limits, book = s.limits, s.book[0]
    if limits.long_prefill_tokens > 0 and limits.chunked_prefill and book.running + book.waiting > 1:
        lacking = min(lacking, limits.long_prefill_tokens)
    return min(lacking, book.budget)


@compiled
def _prompts_under_way(s: State, now_s: float) -> None:
    """Let prompts that were admitted before compute their next tokens, in order of admission."""
    book, limits, j = s.book[0], s.limits, s.book[0].decoding
    while j < book.running:
        past, request, fits = s.slots[j].cached, s.requests[s.slots[j].request], True
        new = _most_new(s, request.prompt_tokens + request.emitted - past)
        need = blocks(limits, past + new) - blocks(limits, past)
        if need > book.free_blocks:
            j, fits = make_room(s, j, need, now_s)
        if fits:
            take(s, need)
            compute_prompt(s, j, new)
            j += 1


@compiled
def _admit_head(s: State, now_s: float) -> bool:
    """Admit the head of the queue; return False if its tokens or blocks do not fit."""
    book, limits, request = s.book[0], s.limits, s.requests[s.book[0].head]
    known, past, hits, saved = request.prompt_tokens + request.emitted, 0, 0, 0
    if request.prefilled:
        past = request.prompt_tokens
    elif limits.prefix_block_tokens > 0:
        hits = cached_prefix_blocks(s, book.head, known)
        past = hits * limits.prefix_block_tokens
        saved = shared_prefix_blocks(s, book.head, hits) * blocks_per_prefix_block(s)
    if limits.estimated_tokens > 0 and not has_room(s, blocks(limits, known) - saved):
        return False
    new = _most_new(s, known - past)
    if not limits.chunked_prefill and new < known - past:
        return False
    kept_free = limits.watermark_blocks if book.running > 0 else 0
    if blocks(limits, known if limits.admit_full_prompt else past + new) - saved > book.free_blocks - kept_free:
        return False
    if limits.admit_full_output:
        if book.promised + promise(s, book.head) > limits.num_blocks:
            return False
        book.promised += promise(s, book.head)
    if hits > 0:
        hold(s, book.head, hits)
    take(s, blocks(limits, past + new) - saved)
    begin_request(s, past, hits, new, now_s)
    if limits.estimated_tokens > 0:
        charge(s, book.running - 1)
    return True


@inlined
def _admissions(s: State, now_s: float) -> None:
    """Admit requests from the head of the queue while token budget, sequence slots and blocks last."""
    book, limits = s.book[0], s.limits
    since, waiting = book.tick - book.admitted_tick, book.waiting
    each = 1 if limits.num_scheduler_steps > 1 else 1 + limits.draft_tokens  # tokens of a decode in one pass
    places = min(limits.max_num_seqs, limits.max_num_batched_tokens // each)
    is_closed = book.free_blocks < limits.least_free_blocks or since < limits.prompt_interval
    if limits.least_waiting > 0:
        is_closed = is_closed or book.running >= places or (book.has_looked == 1 and waiting < limits.least_waiting)
        book.has_looked = 0 if is_closed and book.running > 0 else 1
    if is_closed and book.running > 0:
        return
    if limits.estimated_tokens > 0:
        if book.is_full:
            return
        expect(s)
    while book.budget > 0 and book.running < places and book.waiting > 0:
        if not _admit_head(s, now_s):
            break
    if book.waiting < waiting:
        book.admitted_tick = book.tick


@inlined
def _prompts(s: State, now_s: float, running: int) -> None:
    """Compute prompts: those under way, then new ones unless a preemption has shortened the running list."""
    _prompts_under_way(s, now_s)
    if s.book[0].running == running:
        _admissions(s, now_s)


@inlined
def _continuous(s: State, now_s: float) -> None:
    """As vLLM V1: one token budget for decodes first, then prompts under way, then the waiting queue."""
    running = s.book[0].running
    _decodes(s, now_s)
    _prompts(s, now_s, running)


@compiled
def _prompts_first(s: State, now_s: float) -> None:
    """As SGLang and vLLM V0: steps of prompts alone while any prompt gets tokens, else steps of decodes alone."""
    book = s.book[0]
    book.decode_now = 0
    _prompts(s, now_s, book.running)
    if book.scheduled == 0:
        book.decode_now = 1
        _decodes(s, now_s)


@inlined
def received_s(s: State, decided_s: float) -> float:
    """Return up to when a step that is decided at `decided_s` has received arrivals.

    `s` is as the step before it left it. Rule H2.
    """
    book = s.book[0]
    decodes_alone = book.decode_now == 1 and book.prompt_tokens == 0
    if not decodes_alone or book.tick - book.received_tick >= s.limits.scheduler_recv_interval:
        book.received_tick, book.received_s = book.tick, decided_s
    return book.received_s


@compiled
def wake_s(s: State, now_s: float) -> float:
    """Return when to ask an engine again that has requests waiting but nothing to do; infinity: not by itself.

    Rule D.
    """
    if s.limits.policy != STATIC or s.book[0].waiting == 0:
        return np.inf
    due_s = s.requests[s.book[0].head].arrival_s + s.limits.batch_wait_s
    return due_s if due_s > now_s else np.inf


@compiled
def _is_due(s: State, now_s: float) -> bool:
    """Return whether an idle engine starts a static batch: it is full, waited for long enough, or nothing follows."""
    book, limits = s.book[0], s.limits
    if book.waiting >= min(limits.batch_size, limits.max_num_seqs) or book.last_call:
        return True
    return book.waiting > 0 and now_s >= s.requests[book.head].arrival_s + limits.batch_wait_s


@compiled
def _static(s: State, now_s: float) -> None:
    """Fill an idle engine with a static batch; its requests keep their slots and blocks until the last one ends."""
    book, limits = s.book[0], s.limits
    book.scheduled = book.decoding
    if book.decoding > 0 or not _is_due(s, now_s):
        return
    while book.running < limits.max_num_seqs and book.waiting > 0:
        reserved = promise(s, book.head)
        if reserved > book.free_blocks:
            break
        book.free_blocks -= reserved
        begin_request(s, 0, 0, s.requests[book.head].prompt_tokens, now_s)


@compiled
def _uncached(s: State, now_s: float) -> None:
    """Serve one request at a time without a KV cache, computing all its tokens again in each step."""
    book = s.book[0]
    if book.running > 0:
        request = s.requests[s.slots[0].request]
        compute_prompt(s, 0, request.prompt_tokens + request.emitted)
    elif book.waiting > 0:
        begin_request(s, 0, 0, s.requests[book.head].prompt_tokens, now_s)


@compiled
def schedule(s: State, now_s: float) -> int:
    """Decide the next step and return how many sequences take part; 0 means that there is nothing to do.

    Sequences below `book.decoding` compute their next token (and draft tokens) if `book.decode_now` is 1; the others
    compute `chunk` tokens of their prompt.
    """
    book = s.book[0]
    book.prompt_tokens = book.prompt_pairs = book.prompt_pairs_windowed = book.loaded_tokens = book.scheduled = 0
    book.preempted = 0
    book.budget = s.limits.max_num_batched_tokens
    book.decode_now = 1
    if s.limits.policy == STATIC:
        _static(s, now_s)
    elif s.limits.policy == PROMPTS_FIRST:
        _prompts_first(s, now_s)
    elif s.limits.policy == UNCACHED:
        _uncached(s, now_s)
    else:
        _continuous(s, now_s)
    if book.decoding == 0:
        book.decode_now = 0
    if s.limits.estimated_tokens > 0:
        learn(s)
    return book.scheduled
