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
    own = min(request.output_tokens - request.emitted, limits.estimated_tokens) + limits.block_size
    kept = limits.full_groups * (book.ratio * book.expected_tokens + (book.charged_tokens + own))
    fits = (book.free_blocks - need) * limits.block_size > kept
    if not fits and book.decoding > 0:
        book.is_full = 1
    return bool(fits)


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
