"""Every scheduling policy, compiled: who computes how many tokens in the next step, and what a finished step changes.

One `State` drives the simulator and the reference engine alike. `schedule` decides a step, something takes the time for
it (a prediction or a forward pass), `complete` advances. The running list is in order of admission: first the sequences
that decode, then those whose prompt is still being computed.

All decoding sequences advance in lockstep, so nothing is updated per token: a sequence holds `cached[j] + tick`
tokens, its end is the tick `last_tick[j]`, and sums over the batch move by additions. Rules: docs/vllm-rules.md.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CONTINUOUS, STATIC = 0, 1
POLICIES = {"continuous": CONTINUOUS, "static": STATIC}
NEVER = 2**62

BOOK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "tick",  # decode steps so far
            "running",  # sequences in the running list
            "decoding",  # of these, the first so many decode
            "free_blocks",
            "arrived",  # requests 0 .. arrived-1 have arrived
            "fresh",  # requests 0 .. fresh-1 have been admitted at least once
            "preempted",  # size of the stack of preempted requests; they go first
            "next_event_tick",  # no decoding sequence ends or outgrows its window before it
            "base_sum",  # of `cached` over decoding sequences
            "open_base_sum",  # the same over those still inside their window
            "open_reads",  # number of those
            "unfinished",  # decoding sequences that have tokens to produce (static batches pad the others)
            "finished",  # requests finished so far
            "released",  # closed loop: requests 0 .. released-1 have been sent
            "decode_now",  # this step: decoding sequences advance
            "prompt_tokens",  # this step: tokens of prompts
            "prompt_pairs",
            "prompt_pairs_windowed",
            "scheduled",  # this step: sequences
        )
    ]
)


class Limits(NamedTuple):
    """What an engine is allowed; blocks(t) = full_groups ceil(t/b) + window_groups min(ceil(t/b), window_blocks)."""

    policy: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    admit_full_prompt: bool
    async_scheduling: bool  # a step is decided while the one before runs, so it misses the arrivals in between
    window: int  # 0: no layer has one
    full_groups: int
    window_groups: int
    window_blocks: int


REQUEST = np.dtype(
    [
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("emitted", np.int64),  # tokens produced before the last preemption
        ("preemptions", np.int64),
        ("scheduled_s", np.float64),
        ("first_token_s", np.float64),
        ("finished_s", np.float64),
        ("stalled_s", np.float64),  # time between preemptions and the next tokens
    ]
)

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("cached", np.int64),  # tokens in the cache; minus `tick` while decoding
        ("last_tick", np.int64),  # tick at which a decoding sequence has produced everything
        ("chunk", np.int64),  # tokens of its prompt that this step computes
        ("open_reads", np.int64),  # 1 while a decoding sequence is shorter than the window
        ("open_blocks", np.int64),  # 1 while its windowed blocks still grow
    ]
)
Table = np.recarray[Any, Any]  # rows are records: row.field reads and writes


class State(NamedTuple):
    """Everything a scheduler knows."""

    limits: Limits
    book: Table  # one row
    requests: Table
    slots: Table  # the running list, in order of admission
    preempted: Ints  # a stack of requests
    growth: Ints  # blocks that decoding sequences need when -tick is this modulo the block size


def new_state(limits: Limits, prompt_tokens: Ints, output_tokens: Ints) -> State:
    """Return the state before the first request arrives."""
    book = np.zeros(1, BOOK).view(np.recarray)
    book[0].free_blocks = limits.num_blocks
    book[0].next_event_tick = NEVER
    requests = np.zeros(len(prompt_tokens), REQUEST).view(np.recarray)
    requests.prompt_tokens, requests.output_tokens = prompt_tokens, output_tokens
    for name in ("scheduled_s", "first_token_s", "finished_s"):
        requests[name] = np.nan
    slots = np.zeros(limits.max_num_seqs, SLOT).view(np.recarray)
    return State(
        limits, book, requests, slots, np.zeros(limits.max_num_seqs, np.int64), np.zeros(limits.block_size, np.int64)
    )


@compiled
def blocks(limits: Limits, tokens: int) -> int:
    """Return the cache blocks that a sequence of so many cached tokens holds."""
    full = -(-tokens // limits.block_size)
    return limits.full_groups * full + limits.window_groups * min(full, limits.window_blocks)


@compiled
def pairs(new: int, past: int, window: int) -> int:
    """Count causal query-key pairs of `new` tokens after `past`; a window of 0 is none (see work.pairs)."""
    growing = new if window == 0 else max(0, min(new, window - past))
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * window


@compiled
def waiting(s: State) -> int:
    """Count requests that have arrived and are neither running nor finished."""
    book = s.book[0]
    return book.preempted + book.arrived - book.fresh


@compiled
def _track(s: State, j: int, sign: int) -> None:
    """Add a decoding sequence to the running sums, or take it out."""
    limits, book, base = s.limits, s.book[0], s.slots[j].cached
    book.base_sum += sign * base
    if limits.window > 0:
        book.open_reads += sign * s.slots[j].open_reads
        book.open_base_sum += sign * s.slots[j].open_reads * base
    s.growth[base % limits.block_size] += sign * (limits.full_groups + limits.window_groups * s.slots[j].open_blocks)


@compiled
def _next_event(s: State, j: int) -> int:
    """Return the tick at which a decoding sequence ends or stops growing in its windowed layers."""
    limits, event = s.limits, s.slots[j].last_tick
    if limits.window > 0:
        if s.slots[j].open_reads:
            event = min(event, limits.window - 1 - s.slots[j].cached)
        if s.slots[j].open_blocks:
            event = min(event, limits.window_blocks * limits.block_size - s.slots[j].cached)
    return event


@compiled
def _close_windows(s: State, j: int) -> None:
    """Note what a decoding sequence of cached + tick tokens has outgrown."""
    limits, tokens = s.limits, s.slots[j].cached + s.book[0].tick
    s.slots[j].open_reads = 1 if tokens + 1 < limits.window else 0
    s.slots[j].open_blocks = 1 if tokens < limits.window_blocks * limits.block_size else 0


@compiled
def _preempt_last(s: State, now_s: float) -> None:
    """Free the newest running sequence and put it at the head of the queue; all its tokens will be recomputed."""
    book = s.book[0]
    j = book.running - 1
    request, tokens = s.slots[j].request, s.slots[j].cached
    if j < book.decoding:
        tokens += book.tick
        s.requests[request].emitted = s.requests[request].output_tokens - (s.slots[j].last_tick - book.tick)
        s.requests[request].stalled_s -= now_s
        _track(s, j, -1)
        book.decoding -= 1
        book.unfinished -= 1
    book.free_blocks += blocks(s.limits, tokens)
    book.running -= 1
    s.requests[request].preemptions += 1
    s.preempted[book.preempted] = request
    book.preempted += 1


@compiled
def _decode_under_pressure(s: State, now_s: float) -> bool:
    """Give each decoding sequence its block in order of admission, preempting from the end; True if any was."""
    book, limits = s.book[0], s.limits
    before, j = book.running, 0
    while j < book.decoding:
        tokens = s.slots[j].cached + book.tick
        need = blocks(limits, tokens + 1) - blocks(limits, tokens)
        while need > book.free_blocks and book.running > j:
            _preempt_last(s, now_s)
        if j < book.running:
            book.free_blocks -= need
        j += 1
    return book.running < before


@compiled
def _schedule_chunk(s: State, j: int, take: int) -> None:
    """Let the prompt at a position compute its next tokens in this step."""
    book, limits, past = s.book[0], s.limits, s.slots[j].cached
    s.slots[j].chunk = take
    if take == 0:
        return
    book.prompt_tokens += take
    book.prompt_pairs += pairs(take, past, 0)
    if limits.window > 0:
        book.prompt_pairs_windowed += pairs(take, past, limits.window)
    book.scheduled += 1


@compiled
def _admit(s: State, now_s: float) -> int:
    """Move the head of the queue to the end of the running list and return its position."""
    book = s.book[0]
    if book.preempted > 0:
        book.preempted -= 1
        request = s.preempted[book.preempted]
    else:
        request = book.fresh
        book.fresh += 1
        s.requests[request].scheduled_s = now_s
    j = book.running
    s.slots[j].request = request
    s.slots[j].cached = 0
    book.running += 1
    return j


@compiled
def _head(s: State) -> int:
    book = s.book[0]
    return s.preempted[book.preempted - 1] if book.preempted > 0 else book.fresh


@compiled
def _continuous(s: State, now_s: float) -> None:
    """vLLM V1: decodes first, then prompts under way, then the queue, within one budget of tokens."""
    book, limits = s.book[0], s.limits
    need = s.growth[-book.tick % limits.block_size]
    preempting = False
    if need <= book.free_blocks:
        book.free_blocks -= need
    else:
        preempting = _decode_under_pressure(s, now_s)
    book.decode_now = 1 if book.decoding > 0 else 0
    book.scheduled = book.decoding
    budget = limits.max_num_batched_tokens - book.decoding

    j = book.decoding
    while j < book.running:
        request = s.slots[j].request
        take = min(s.requests[request].prompt_tokens + s.requests[request].emitted - s.slots[j].cached, budget)
        need = blocks(limits, s.slots[j].cached + take) - blocks(limits, s.slots[j].cached)
        while need > book.free_blocks and book.running > j:
            _preempt_last(s, now_s)
            preempting = True
        if j < book.running:
            book.free_blocks -= need
            budget -= take
            _schedule_chunk(s, j, take)
        j += 1

    while not preempting and budget > 0 and book.running < limits.max_num_seqs and waiting(s) > 0:
        request = _head(s)
        tokens = s.requests[request].prompt_tokens + s.requests[request].emitted
        take = min(tokens, budget)
        if blocks(limits, tokens if limits.admit_full_prompt else take) > book.free_blocks:
            break
        book.free_blocks -= blocks(limits, take)
        budget -= take
        _schedule_chunk(s, _admit(s, now_s), take)


@compiled
def _static(s: State, now_s: float) -> None:
    """Fill an empty engine with a batch that keeps its slots and its reserved cache until its last token."""
    book, limits = s.book[0], s.limits
    book.decode_now = 1 if book.decoding > 0 else 0
    book.scheduled = book.decoding
    while book.decoding == 0 and book.running < limits.max_num_seqs and waiting(s) > 0:
        request = book.fresh
        reserved = blocks(limits, s.requests[request].prompt_tokens + s.requests[request].output_tokens - 1)
        if reserved > book.free_blocks:
            break
        book.free_blocks -= reserved
        _schedule_chunk(s, _admit(s, now_s), s.requests[request].prompt_tokens)


@compiled
def schedule(s: State, now_s: float) -> int:
    """Decide the next step and return how many sequences take part; 0 means that there is nothing to do.

    Positions below `book.decoding` compute one token each if `book.decode_now`, the others `chunk[j]` tokens.
    """
    book = s.book[0]
    book.prompt_tokens = book.prompt_pairs = book.prompt_pairs_windowed = 0
    if s.limits.policy == STATIC:
        _static(s, now_s)
    else:
        _continuous(s, now_s)
    return book.scheduled


@compiled
def _finish(s: State, request: int, tokens: int, end_s: float) -> None:
    """Record the last token of a request; a static batch keeps its blocks until its end."""
    book = s.book[0]
    s.requests[request].finished_s = end_s
    book.finished += 1
    if s.limits.policy != STATIC:
        book.free_blocks += blocks(s.limits, tokens)


@compiled
def _retire_decodes(s: State, end_s: float) -> int:
    """Take out the decoding sequences that are done, keep the others in order; return how many are left."""
    book = s.book[0]
    kept, book.next_event_tick = 0, NEVER
    for j in range(book.decoding):
        if s.slots[j].last_tick == book.tick:
            _finish(s, s.slots[j].request, s.slots[j].cached + book.tick, end_s)
            book.unfinished -= 1
            if s.limits.policy != STATIC:
                _track(s, j, -1)
                continue
            s.slots[j].last_tick = NEVER
        _move(s, j, kept)
        if s.limits.window > 0:
            _track(s, kept, -1)
            _close_windows(s, kept)
            _track(s, kept, 1)
        book.next_event_tick = min(book.next_event_tick, _next_event(s, kept))
        kept += 1
    return kept


@compiled
def _move(s: State, source: int, target: int) -> None:
    if source != target:
        s.slots[target].request = s.slots[source].request
        s.slots[target].cached = s.slots[source].cached
        s.slots[target].last_tick = s.slots[source].last_tick
        s.slots[target].open_reads = s.slots[source].open_reads
        s.slots[target].open_blocks = s.slots[source].open_blocks


@compiled
def _first_token(s: State, j: int, end_s: float) -> bool:
    """Emit the token that ends a prompt; return whether the sequence goes on to decode."""
    book, request = s.book[0], s.slots[j].request
    if s.requests[request].emitted == 0:
        s.requests[request].first_token_s = end_s
    else:
        s.requests[request].stalled_s += end_s
    left = s.requests[request].output_tokens - s.requests[request].emitted - 1
    s.slots[j].cached -= book.tick
    s.slots[j].last_tick = book.tick + left if left > 0 else NEVER
    if left > 0:
        book.unfinished += 1
        return True
    _finish(s, request, s.slots[j].cached + book.tick, end_s)
    return s.limits.policy == STATIC


@compiled
def _advance_prompts(s: State, first: int, end_s: float) -> int:
    """Advance the prompts from a position on; those that end join the decoding sequences. Return the new end."""
    book = s.book[0]
    kept, before = book.decoding, book.running
    for j in range(first, before):
        s.slots[kept].request, s.slots[kept].cached = s.slots[j].request, s.slots[j].cached + s.slots[j].chunk
        request = s.slots[kept].request
        if s.slots[kept].cached == s.requests[request].prompt_tokens + s.requests[request].emitted:
            if not _first_token(s, kept, end_s):
                continue
            _close_windows(s, kept)
            _track(s, kept, 1)
            book.next_event_tick = min(book.next_event_tick, _next_event(s, kept))
            book.decoding += 1
        kept += 1
    return kept


@compiled
def complete(s: State, end_s: float) -> int:
    """Advance every sequence of the step that ended at `end_s`; return how many requests finished."""
    book = s.book[0]
    finished, first = book.finished, book.decoding
    book.tick += book.decode_now
    if book.tick >= book.next_event_tick:
        book.decoding = _retire_decodes(s, end_s)
    if book.decoding < first or book.running > first:
        book.running = _advance_prompts(s, first, end_s)
    if s.limits.policy == STATIC and book.unfinished == 0:
        _clear(s)
    return book.finished - finished


@compiled
def _clear(s: State) -> None:
    """End a static batch."""
    book = s.book[0]
    book.running = book.decoding = book.base_sum = book.open_base_sum = book.open_reads = 0
    book.free_blocks = s.limits.num_blocks
    book.next_event_tick = NEVER
    s.growth[:] = 0
