"""Admission by an estimate of how long outputs will become, compiled: SGLang's.

Rules: docs/serving-rules.md, J. Conventions: state.py.
"""

from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.state import State


@compiled
def expect(s: State) -> None:
    """Count what the running sequences may still produce, before the admissions of a step."""
    book, most = s.book[0], s.limits.estimated_tokens
    book.expected_tokens = book.charged_tokens = 0
    for j in range(book.decoding):
        book.expected_tokens += min(s.slots[j].last_tick - book.tick, most)
    for j in range(book.decoding, book.running):
        charge(s, j)


@compiled
def charge(s: State, j: int) -> None:
    """Keep tokens free for the prompt at `j`: a block and its output."""
    output_tokens = s.requests[s.slots[j].request].output_tokens
    s.book[0].charged_tokens += s.limits.block_size + min(output_tokens, s.limits.estimated_tokens)


@compiled
def has_room(s: State, need: int) -> bool:
    """Return whether the head of the queue, whose prompt takes `need` blocks, leaves room for the outputs expected.

    Where it does not beside sequences that decode, the engine is full.
    """
    book, limits, request = s.book[0], s.limits, s.requests[s.book[0].head]
    if book.running == 0:
        return True
    left = (book.free_blocks - need) * limits.block_size
    others = book.ratio * book.expected_tokens
    if limits.ignores_eos:
        fits = left >= limits.full_groups * (others + book.charged_tokens) and _fits_until_each_ends(s, left)
    else:
        own = min(request.output_tokens - request.emitted, limits.estimated_tokens) + limits.block_size
        fits = left > limits.full_groups * (others + (book.charged_tokens + own))
    if not fits and book.decoding > 0:
        book.is_full = 1
    return bool(fits)


@compiled
def _fits_until_each_ends(s: State, left: int) -> bool:
    """Return whether `left` free tokens hold what the head and all that run will produce, as one by one they end.

    When those with fewer than t tokens to come have ended, the others have produced t each, and one more is spare.
    """
    limits, count, total, freed = s.limits, s.book[0].running + 1, 0, 0
    if limits.window > 0:
        return True
    for j in range(count):
        total += _note(s, j) + 1
    if left > limits.full_groups * total:
        return True
    _sort(s, count)
    for j in range(count):
        slot = s.slots[j]
        if left + limits.full_groups * freed <= limits.full_groups * (slot.to_come + 1) * (count - j):
            return False
        freed += slot.tokens - slot.to_come
    return True


@compiled
def _note(s: State, j: int) -> int:
    """Note at `j` what is to come of the running sequence there, or of the head after the last; return it."""
    book, slot = s.book[0], s.slots[j]
    request = s.requests[book.head if j == book.running else slot.request]
    slot.to_come = slot.last_tick - book.tick if j < book.decoding else request.output_tokens - request.emitted
    slot.tokens = request.prompt_tokens + request.output_tokens
    return int(slot.to_come)


@compiled
def _sort(s: State, count: int) -> None:
    """Sort the first `count` notes by what is to come: Shell's sort, as compiled code makes no arrays (jit.py)."""
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            to_come, tokens, j = s.slots[i].to_come, s.slots[i].tokens, i
            while j >= gap and s.slots[j - gap].to_come > to_come:
                s.slots[j].to_come, s.slots[j].tokens = s.slots[j - gap].to_come, s.slots[j - gap].tokens
                j -= gap
            s.slots[j].to_come, s.slots[j].tokens = to_come, tokens
        gap //= 2


@inlined
def learn(s: State) -> None:
    """Lower the ratio after a step of decodes alone was scheduled; after a preemption set it from what decodes."""
    book = s.book[0]
    if book.preempted:
        _estimate_again(s)
    elif book.decode_now == 1 and book.prompt_tokens == 0:
        book.ratio = max(book.ratio - s.limits.ratio_decay, s.limits.least_ratio)


@compiled
def _estimate_again(s: State) -> None:
    book, produced, most = s.book[0], s.limits.spare_tokens * s.book[0].decoding, 1
    for j in range(book.decoding):
        outputs = s.requests[s.slots[j].request].output_tokens
        produced += outputs - (s.slots[j].last_tick - book.tick)
        most += outputs
    book.ratio, book.is_full = min(1.0, produced / most), 0


@inlined
def forget(s: State, finished: int) -> None:
    """At the end of a step: an engine of which requests finished is not full; an idle one begins anew."""
    book = s.book[0]
    if finished > 0:
        book.is_full = 0
    if book.running == 0 and book.waiting == 0:
        book.ratio, book.is_full = s.limits.first_ratio, 0
