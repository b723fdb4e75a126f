"""State changes that all policies share, compiled: blocks, preemption, start of prompts, start and end of decoding.

All decoding sequences grow by one token per decode step, so nothing is updated per token: a decoding sequence has
`cached + tick` tokens in the KV cache, ends at the tick `last_tick`, and sums over the batch change by additions.
Conventions: state.py.
"""

import numpy as np

from simulator.scheduler.draft_acceptance import begin_drafting
from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.prefix_cache import evict, register, release
from simulator.scheduler.state import NEVER, NOBODY, State, blocks, local_pairs, most_blocks, pairs
from simulator.scheduler.waiting_queue import dequeue, enqueue_first, goes_before


@compiled
def track(s: State, j: int, sign: int) -> None:
    """Add (sign 1) a decoding sequence to the running sums, or remove it (sign -1)."""
    limits, book, slot = s.limits, s.book[0], s.slots[j]
    book.base_sum += sign * slot.cached
    if limits.window > 0:
        book.open_reads += sign * slot.open_reads
        book.open_base_sum += sign * slot.open_reads * (slot.cached - slot.chunk_start)
    if limits.draft_tokens == 0:  # else each looks after its blocks itself
        blocks_each = limits.full_groups + limits.window_groups * slot.open_blocks
        s.growth[slot.cached % limits.block_size] += sign * blocks_each


@inlined
def next_event(s: State, j: int) -> int:
    """Return the tick at which a decoding sequence ends or outgrows its attention window or its chunk."""
    limits, slot = s.limits, s.slots[j]
    event = slot.last_tick
    if limits.window_blocks > 0:
        if slot.open_reads:
            event = min(event, slot.chunk_start + limits.window - slot.cached)
        if slot.open_blocks:
            event = min(event, limits.window_blocks * limits.block_size - slot.cached)
    return int(event)


@inlined
def close_windows(s: State, j: int) -> None:
    """Note whether a decoding sequence is still shorter than its window, in tokens and in blocks. Rule K."""
    limits, slot = s.limits, s.slots[j]
    tokens = slot.cached + s.book[0].tick
    slot.open_reads = 1 if limits.chunked or tokens < limits.window else 0
    if limits.chunked:
        slot.chunk_start = tokens - tokens % limits.window
    slot.open_blocks = 1 if tokens < limits.window_blocks * limits.block_size else 0


@compiled
def promise(s: State, request: int) -> int:
    """Return the most KV-cache blocks that a request ever holds. Rules 2 and O."""
    row = s.requests[request]
    return most_blocks(s.limits, row.prompt_tokens + row.output_tokens)


@inlined
def free(s: State, j: int, computed: int, held: int) -> None:
    """Free the blocks of `held` tokens of the sequence at `j`; prefix blocks of its `computed` tokens stay cached.

    Rules 6 and P6.
    """
    book = s.book[0]
    book.free_blocks += blocks(s.limits, held)
    if s.limits.prefix_block_tokens > 0:
        release(s, j, computed)
    if s.limits.admit_full_output:
        book.promised -= promise(s, s.slots[j].request)


@compiled
def remove(s: State, j: int, scheduled: bool) -> None:
    """Remove the sequence at `j` from the running list, and from the present step if it is already `scheduled`."""
    book, slot = s.book[0], s.slots[j]
    if j < book.decoding:
        request, computed = s.requests[slot.request], slot.cached + book.tick
        new = 1 + s.limits.draft_tokens if scheduled else 0
        free(s, j, computed, slot.room if s.limits.draft_tokens > 0 else computed + new)
        request.emitted = request.output_tokens - (slot.last_tick - book.tick)
        track(s, j, -1)
        book.decoding -= 1
        book.unfinished -= 1
        book.budget += new
        book.scheduled -= 1 if scheduled else 0
    else:
        new = slot.chunk if scheduled else 0
        free(s, j, slot.cached, slot.cached + new)
        book.prompt_cached -= slot.cached
        _count_prompt(s, j, new, -1)
    book.running -= 1
    for place in range(j, book.running):
        move(s, place, place + 1)


@inlined
def move(s: State, target: int, source: int) -> None:
    """Copy the sequence at `source` to `target`, field by field, because numba copies whole records byte by byte."""
    limits, slot, to = s.limits, s.slots[source], s.slots[target]
    to.request = slot.request
    to.cached = slot.cached
    to.last_tick = slot.last_tick
    to.chunk = slot.chunk
    if limits.window_blocks > 0:
        to.open_reads = slot.open_reads
        to.chunk_start = slot.chunk_start
        to.open_blocks = slot.open_blocks
    if limits.prefix_block_tokens > 0:
        to.held_prefix_blocks = slot.held_prefix_blocks
    if limits.draft_tokens > 0:
        to.room = slot.room
        to.joined_tick = slot.joined_tick
        to.seed = slot.seed


@compiled
def preempt(s: State, j: int, scheduled: bool, now_s: float) -> None:
    """Preempt the sequence at `j`: free its blocks and put it back at the head of the queue, to be recomputed.

    Rules 8 and Q.
    """
    index, request = s.slots[j].request, s.requests[s.slots[j].request]
    if j < s.book[0].decoding:
        request.stalled_s -= now_s
    remove(s, j, scheduled)
    request.preemptions += 1
    s.book[0].preempted = 1
    enqueue_first(s, index)


@compiled
def withdraw(s: State, index: int) -> None:
    """Remove a request without a first token from the engine, between two steps, whether it waits or runs. Rule C."""
    book = s.book[0]
    for j in range(book.decoding, book.running):
        if s.slots[j].request == index:
            remove(s, j, False)
            return
    dequeue(s, index)


@inlined
def take(s: State, need: int) -> None:
    """Take `need` free blocks, evicting idle prefix blocks if no others are free. Rule P7."""
    book = s.book[0]
    book.free_blocks -= need
    if book.idle_prefix_blocks > 0:
        evict(s)


@compiled
def make_room(s: State, j: int, need: int, now_s: float) -> tuple[int, bool]:
    """Preempt until `need` blocks are free for the sequence at `j`, the sequences before which are scheduled.

    Return its new position and True, or the position of the next sequence and False if it was preempted itself. Rules 8
    and Q.
    """
    book = s.book[0]
    while need > book.free_blocks:
        victim = _victim(s)
        scheduled = victim < j and (victim >= book.decoding or book.decode_now == 1)
        preempt(s, victim, scheduled, now_s)
        if victim == j:
            return j, False
        j -= 1 if victim < j else 0
    return j, True


@compiled
def _victim(s: State) -> int:
    """Return the position of the sequence to preempt: the last, or with priorities the least urgent one."""
    last = s.book[0].running - 1
    if s.limits.by_priority:
        for j in range(s.book[0].running - 1):
            if goes_before(s, s.slots[last].request, s.slots[j].request):
                last = j
    return int(last)


@inlined
def begin_request(s: State, past: int, prefix_blocks: int, new: int, now_s: float) -> None:
    """Move the head of the queue to the end of the running list and compute `new` tokens of its prompt.

    `past` tokens of the prompt are cached already, in `prefix_blocks` prefix blocks. Rules 10, 11, G and P3.
    """
    book, index = s.book[0], s.book[0].head
    slot, request = s.slots[book.running], s.requests[index]
    slot.request, slot.cached, slot.held_prefix_blocks = index, past, prefix_blocks
    if np.isnan(request.scheduled_s):
        request.scheduled_s = now_s
        request.hit_tokens = 0 if request.prefilled else past
    dequeue(s, index)
    book.prompt_cached += past
    compute_prompt(s, book.running, new)
    request.prefilled = 0
    book.running += 1


@inlined
def compute_prompt(s: State, j: int, new: int) -> None:
    """Let the prompt at `j` compute its next `new` tokens in this step."""
    slot = s.slots[j]
    slot.chunk = new
    _count_prompt(s, j, new, 1)
    if s.limits.prefix_block_tokens > 0:
        register(s, j, slot.cached + new)


@inlined
def _count_prompt(s: State, j: int, new: int, sign: int) -> None:
    """Add (sign 1) the `new` tokens of a prompt to the sums of the step, or remove them (sign -1)."""
    book, past = s.book[0], s.slots[j].cached
    book.budget -= sign * new
    book.scheduled += sign if new > 0 else 0
    book.prompt_tokens += sign * new
    book.prompt_pairs += sign * pairs(new, past)
    if s.limits.window > 0:
        book.prompt_pairs_windowed += sign * local_pairs(s.limits, new, past)


@inlined
def finish(s: State, request: int, end_s: float) -> None:
    """Record the end of a request and append it to the list of those that this step finished."""
    book = s.book[0]
    s.requests[request].finished_s = end_s
    s.requests[request].next = NOBODY
    if book.first_done == NOBODY:
        book.first_done = request
    else:
        s.requests[book.last_done].next = request
    book.last_done = request
    book.finished += 1


@inlined
def begin_decoding(s: State, j: int, left: int) -> None:
    """Let a sequence whose prompt is complete decode `left` more tokens; 0, in a static batch, leaves it as padding."""
    book, slot = s.book[0], s.slots[j]
    if s.limits.draft_tokens > 0:
        begin_drafting(s, j)
    slot.cached -= book.tick
    slot.last_tick = book.tick + left if left > 0 else NEVER
    book.unfinished += 1 if left > 0 else 0
    close_windows(s, j)
    track(s, j, 1)
    book.next_event_tick = min(book.next_event_tick, next_event(s, j))
