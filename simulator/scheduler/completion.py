"""Completion of a step, compiled: prompts that end, sequences that decode on, and requests that finish.

Conventions: state.py. Rules: docs/serving-rules.md.
"""

from simulator.scheduler.draft_acceptance import produced
from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.output_estimate import forget
from simulator.scheduler.state import NEVER, NOBODY, STATIC, UNCACHED, State, clear
from simulator.scheduler.transitions import begin_decoding, close_windows, finish, free, move, next_event, track


@inlined
def _keep_drafts(s: State, j: int) -> None:
    """Advance a decoding sequence by its accepted draft tokens: more tokens cached, an earlier last tick."""
    book, slot = s.book[0], s.slots[j]
    extra = min(produced(s, j), slot.last_tick - book.tick + 1) - 1
    slot.cached += extra
    slot.last_tick -= extra
    book.base_sum += extra
    if s.limits.window > 0:
        book.open_base_sum += slot.open_reads * extra


@compiled
def _retire_decodes(s: State, end_s: float) -> int:
    """Remove the decoding sequences that are done and keep the others in order; return how many are left."""
    book = s.book[0]
    kept, soonest = 0, NEVER
    for j in range(book.decoding):
        slot = s.slots[j]
        if s.limits.draft_tokens > 0:
            _keep_drafts(s, j)
        if slot.last_tick == book.tick:
            finish(s, slot.request, end_s)
            book.unfinished -= 1
            if s.limits.policy != STATIC:
                tokens = slot.cached + book.tick
                free(s, j, tokens, slot.room if s.limits.draft_tokens > 0 else tokens)
                track(s, j, -1)
                continue
            book.padding += book.tick
            slot.last_tick = NEVER
        if s.limits.window_blocks > 0:
            track(s, j, -1)
            close_windows(s, j)
            track(s, j, 1)
        soonest = min(soonest, next_event(s, j))
        if kept < j:
            move(s, kept, j)
        kept += 1
    book.next_event_tick = soonest
    return kept


@compiled
def _end_prompt(s: State, j: int, end_s: float) -> bool:
    """Emit the first token after a prompt; return whether the sequence stays, to decode or to pad a static batch."""
    book, slot = s.book[0], s.slots[j]
    request = s.requests[slot.request]
    if request.emitted == 0:
        request.first_token_s = end_s
    else:
        request.stalled_s += end_s
    book.prompt_cached -= slot.cached
    left = request.output_tokens - request.emitted - 1
    if left == 0:
        finish(s, slot.request, end_s)
        if s.limits.policy != STATIC:
            free(s, j, slot.cached, slot.cached)
            return False
        book.padding += book.tick
    begin_decoding(s, j, left)
    return True


@compiled
def _advance_prompts(s: State, first: int, end_s: float) -> int:
    """Advance the prompts from position `first` on; those that end begin to decode. Return how many sequences run."""
    book = s.book[0]
    kept, before = book.decoding, book.running
    for j in range(first, before):
        if kept < j:
            move(s, kept, j)
        slot, request = s.slots[kept], s.requests[s.slots[j].request]
        slot.cached += slot.chunk
        book.prompt_cached += slot.chunk
        if slot.cached == request.prompt_tokens + request.emitted:
            if not _end_prompt(s, kept, end_s):
                continue
            if kept > book.decoding:
                _move_up(s, kept)
            book.decoding += 1
        kept += 1
    return kept


@compiled
def _move_up(s: State, j: int) -> None:
    """Move the sequence at `j`, which begins to decode, in front of the prompts that are still under way."""
    spare = len(s.slots) - 1
    move(s, spare, j)
    for place in range(j, s.book[0].decoding, -1):
        move(s, place, place - 1)
    move(s, s.book[0].decoding, spare)


@compiled
def _complete_uncached(s: State, end_s: float) -> None:
    """Record the one token of a step without KV cache."""
    slot, request = s.slots[0], s.requests[s.slots[0].request]
    if request.emitted == 0:
        request.first_token_s = end_s
    request.emitted += 1
    if request.emitted == request.output_tokens:
        finish(s, slot.request, end_s)
        s.book[0].running = 0


@inlined
def show(s: State, end_s: float) -> float:
    """Return when clients see the tokens of the step that ends at `end_s`: `stream_s` per sequence later, at least.

    One front-end process serves the steps one after the other: docs/serving-rules.md, E.
    """
    book = s.book[0]
    book.shown_s = max(book.shown_s, end_s) + s.limits.stream_s * book.scheduled
    return book.shown_s


@compiled
def complete(s: State, end_s: float) -> int:
    """Advance every sequence of a step whose tokens are seen at `end_s`; return how many requests finished.

    The finished requests are a list linked by `next` from `book.first_done`, in the order of the running list. Rules 6,
    11 and 13.
    """
    book = s.book[0]
    finished, first = book.finished, book.decoding
    book.first_done = NOBODY
    if s.limits.policy == UNCACHED:
        _complete_uncached(s, end_s)
        return book.finished - finished
    book.tick += book.decode_now
    if book.tick >= book.next_event_tick or (s.limits.draft_tokens > 0 and book.decode_now):
        book.decoding = _retire_decodes(s, end_s)
    if book.decoding < first or book.running > first:
        book.running = _advance_prompts(s, first, end_s)
    if s.limits.policy == STATIC and book.unfinished == 0:
        clear(s)
    if s.limits.estimated_tokens > 0:
        forget(s, book.finished - finished)
    return book.finished - finished
