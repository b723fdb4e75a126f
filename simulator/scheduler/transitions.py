"""What every policy shares, compiled: blocks, preemption, prompts that begin, sequences that begin and end to decode.

All decoding sequences advance in lockstep, so nothing is updated per token: a sequence holds `cached[j] + tick`
tokens, its end is the tick `last_tick[j]`, and sums over the batch move by additions.
"""

import numpy as np

from simulator.scheduler.draft_acceptance import begin_drafting
from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.prefix_cache import evict, register, release
from simulator.scheduler.state import NEVER, NOBODY, State, blocks, most_blocks, pairs
from simulator.scheduler.waiting_queue import dequeue, enqueue_first, goes_before


@compiled
def track(s: State, j: int, sign: int) -> None:
    """Add a decoding sequence to the running sums, or take it out."""
    limits, book, slot = s.limits, s.book[0], s.slots[j]
    book.base_sum += sign * slot.cached
    if limits.window > 0:
        book.open_reads += sign * slot.open_reads
        book.open_base_sum += sign * slot.open_reads * slot.cached
    if limits.draft_tokens == 0:  # else each looks after its blocks itself
        blocks_each = limits.full_groups + limits.window_groups * slot.open_blocks
        s.growth[slot.cached % limits.block_size] += sign * blocks_each


@inlined
def next_event(s: State, j: int) -> int:
    """Return the tick at which a decoding sequence ends or stops growing in its windowed layers."""
    limits, slot = s.limits, s.slots[j]
    event = slot.last_tick
    if limits.window > 0:
        if slot.open_reads:
            event = min(event, limits.window - 1 - slot.cached)
        if slot.open_blocks:
            event = min(event, limits.window_blocks * limits.block_size - slot.cached)
    return int(event)


@inlined
def close_windows(s: State, j: int) -> None:
    """Note what a decoding sequence of cached + tick tokens has outgrown."""
    limits, slot = s.limits, s.slots[j]
    tokens = slot.cached + s.book[0].tick
    slot.open_reads = 1 if tokens + 1 < limits.window else 0
    slot.open_blocks = 1 if tokens < limits.window_blocks * limits.block_size else 0


@compiled
def promise(s: State, request: int) -> int:
    """Return the most blocks that a request ever holds."""
    row = s.requests[request]
    return most_blocks(s.limits, row.prompt_tokens + row.output_tokens)


@inlined
def free(s: State, j: int, computed: int, held: int) -> None:
    """Give back the blocks of `held` tokens of a sequence of which so many are computed."""
    book = s.book[0]
    book.free_blocks += blocks(s.limits, held)
    if s.limits.prefix_block_tokens > 0:
        release(s, j, computed)
    if s.limits.admit_full_output:
        book.promised -= promise(s, s.slots[j].request)


@compiled
def remove(s: State, j: int, scheduled: bool) -> None:
    """Take the sequence at a position out of the running list; one already scheduled leaves the step."""
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
    """Write the sequence at a position to another one, field by field: a row as a whole is copied in single bytes."""
    limits, slot, to = s.limits, s.slots[source], s.slots[target]
    to.request = slot.request
    to.cached = slot.cached
    to.last_tick = slot.last_tick
    to.chunk = slot.chunk
    if limits.window > 0:
        to.open_reads = slot.open_reads
        to.open_blocks = slot.open_blocks
    if limits.prefix_block_tokens > 0:
        to.held_prefix_blocks = slot.held_prefix_blocks
    if limits.draft_tokens > 0:
        to.room = slot.room
        to.joined_tick = slot.joined_tick
        to.seed = slot.seed


@compiled
def preempt(s: State, j: int, scheduled: bool, now_s: float) -> None:
    """Take a running sequence out and put it back into the queue; all its tokens will be recomputed."""
    index, request = s.slots[j].request, s.requests[s.slots[j].request]
    if j < s.book[0].decoding:
        request.stalled_s -= now_s
    remove(s, j, scheduled)
    request.preemptions += 1
    enqueue_first(s, index)


@compiled
def withdraw(s: State, index: int) -> None:
    """Take a request that has no token yet out of the engine between two steps, wherever it is, and forget it."""
    book = s.book[0]
    for j in range(book.decoding, book.running):
        if s.slots[j].request == index:
            remove(s, j, False)
            return
    dequeue(s, index)


@inlined
def take(s: State, need: int) -> None:
    """Take free blocks, from idle prefix blocks where there are no others."""
    book = s.book[0]
    book.free_blocks -= need
    if book.idle_prefix_blocks > 0:
        evict(s)


@compiled
def make_room(s: State, j: int, need: int, now_s: float) -> tuple[int, bool]:
    """Free blocks for the sequence at a position, before which all are scheduled; others, or itself, have to go.

    Return where it stands then and True, or where the next one stands and False.
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
    """Return the position of the sequence that gives way: the last, or by priority the least urgent."""
    last = s.book[0].running - 1
    if s.limits.by_priority:
        for j in range(s.book[0].running - 1):
            if goes_before(s, s.slots[last].request, s.slots[j].request):
                last = j
    return int(last)


@inlined
def begin_request(s: State, past: int, prefix_blocks: int, new: int, now_s: float) -> None:
    """Move the head of the queue to the end of the running list; of its prompt, `past` tokens are there already."""
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
    """Let the prompt at a position compute its next tokens in this step."""
    slot = s.slots[j]
    slot.chunk = new
    _count_prompt(s, j, new, 1)
    if s.limits.prefix_block_tokens > 0:
        register(s, j, slot.cached + new)


@inlined
def _count_prompt(s: State, j: int, new: int, sign: int) -> None:
    """Add what a prompt computes to the sums of the step, or take it out."""
    book, past = s.book[0], s.slots[j].cached
    book.budget -= sign * new
    book.scheduled += sign if new > 0 else 0
    book.prompt_tokens += sign * new
    book.prompt_pairs += sign * pairs(new, past, 0)
    if s.limits.window > 0:
        book.prompt_pairs_windowed += sign * pairs(new, past, s.limits.window)


@inlined
def finish(s: State, request: int, end_s: float) -> None:
    """Record the last token of a request and chain it to the others of this step."""
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
    """Let a sequence whose prompt is done decode so many more tokens; none, in a static batch, is padding."""
    book, slot = s.book[0], s.slots[j]
    if s.limits.draft_tokens > 0:
        begin_drafting(s, j)
    slot.cached -= book.tick
    slot.last_tick = book.tick + left if left > 0 else NEVER
    book.unfinished += 1 if left > 0 else 0
    close_windows(s, j)
    track(s, j, 1)
    book.next_event_tick = min(book.next_event_tick, next_event(s, j))
