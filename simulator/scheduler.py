"""Every scheduling policy, compiled: who computes how many tokens in the next step, and what a finished step changes.

One `State` drives the simulator and the reference engine alike. `schedule` decides a step, something takes the time for
it (a prediction or a forward pass), `complete` advances. The running list is in order of admission: first the sequences
that decode, then those whose prompt is still being computed.

All decoding sequences advance in lockstep, so nothing is updated per token: a sequence holds `cached[j] + tick`
tokens, its end is the tick `last_tick[j]`, and sums over the batch move by additions. Rules: docs/vllm-rules.md.
"""

from simulator.compiled import compiled
from simulator.state import NEVER, PROMPTS_FIRST, STATIC, State, blocks, pairs, waiting


@compiled
def _track(s: State, j: int, sign: int) -> None:
    """Add a decoding sequence to the running sums, or take it out."""
    limits, book, slot = s.limits, s.book[0], s.slots[j]
    book.base_sum += sign * slot.cached
    if limits.window > 0:
        book.open_reads += sign * slot.open_reads
        book.open_base_sum += sign * slot.open_reads * slot.cached
    s.growth[slot.cached % limits.block_size] += sign * (limits.full_groups + limits.window_groups * slot.open_blocks)


@compiled
def _next_event(s: State, j: int) -> int:
    """Return the tick at which a decoding sequence ends or stops growing in its windowed layers."""
    limits, slot = s.limits, s.slots[j]
    event = slot.last_tick
    if limits.window > 0:
        if slot.open_reads:
            event = min(event, limits.window - 1 - slot.cached)
        if slot.open_blocks:
            event = min(event, limits.window_blocks * limits.block_size - slot.cached)
    return event


@compiled
def _close_windows(s: State, j: int) -> None:
    """Note what a decoding sequence of cached + tick tokens has outgrown."""
    limits, slot = s.limits, s.slots[j]
    tokens = slot.cached + s.book[0].tick
    slot.open_reads = 1 if tokens + 1 < limits.window else 0
    slot.open_blocks = 1 if tokens < limits.window_blocks * limits.block_size else 0


@compiled
def _preempt_last(s: State, now_s: float) -> None:
    """Free the newest running sequence and put it at the head of the queue; all its tokens will be recomputed."""
    book = s.book[0]
    j = book.running - 1
    slot = s.slots[j]
    request, tokens = s.requests[slot.request], slot.cached
    if j < book.decoding:
        tokens += book.tick
        request.emitted = request.output_tokens - (slot.last_tick - book.tick)
        request.stalled_s -= now_s
        _track(s, j, -1)
        book.decoding -= 1
        book.unfinished -= 1
    book.free_blocks += blocks(s.limits, tokens)
    book.running -= 1
    request.preemptions += 1
    s.preempted[book.preempted] = slot.request
    book.preempted += 1


@compiled
def _make_room(s: State, j: int, need: int, now_s: float) -> bool:
    """Take blocks for the sequence at a position, preempting from the end; False if it had to go itself."""
    book = s.book[0]
    while need > book.free_blocks and book.running > j:
        _preempt_last(s, now_s)
    if book.running > j:
        book.free_blocks -= need
    return book.running > j


@compiled
def _decode_under_pressure(s: State, now_s: float) -> None:
    """Give each decoding sequence its block in order of admission."""
    book, j = s.book[0], 0
    while j < book.decoding:
        tokens = s.slots[j].cached + book.tick
        _make_room(s, j, blocks(s.limits, tokens + 1) - blocks(s.limits, tokens), now_s)
        j += 1


@compiled
def _compute_prompt(s: State, j: int, take: int) -> None:
    """Let the prompt at a position compute its next tokens in this step."""
    book, limits, slot = s.book[0], s.limits, s.slots[j]
    slot.chunk = take
    book.prompt_tokens += take
    book.prompt_pairs += pairs(take, slot.cached, 0)
    if limits.window > 0:
        book.prompt_pairs_windowed += pairs(take, slot.cached, limits.window)
    book.scheduled += 1 if take > 0 else 0


@compiled
def _head(s: State) -> int:
    """Return the request at the head of the queue."""
    book = s.book[0]
    return s.preempted[book.preempted - 1] if book.preempted > 0 else book.fresh


@compiled
def _admit(s: State, take: int, now_s: float) -> None:
    """Move the head of the queue to the end of the running list, with the first tokens of its prompt."""
    book, slot = s.book[0], s.slots[s.book[0].running]
    slot.request, slot.cached = _head(s), 0
    if book.preempted > 0:
        book.preempted -= 1
    else:
        s.requests[book.fresh].scheduled_s = now_s
        book.fresh += 1
    _compute_prompt(s, book.running, take)
    book.running += 1


@compiled
def _continuous(s: State, now_s: float) -> None:
    """VLLM V1: decodes first, then prompts under way, then the queue, within one budget of tokens."""
    book, limits, running = s.book[0], s.limits, s.book[0].running
    need = s.growth[-book.tick % limits.block_size]
    if need <= book.free_blocks:
        book.free_blocks -= need
    else:
        _decode_under_pressure(s, now_s)
    budget = limits.max_num_batched_tokens - book.decoding
    book.scheduled = book.decoding
    budget = _prompts_under_way(s, budget, now_s)
    if book.running == running:  # no admission in a step that preempted
        _admissions(s, budget, now_s)


@compiled
def _prompts_under_way(s: State, budget: int, now_s: float) -> int:
    """Give prompts that have begun their next tokens, in order of admission; return what is left of the budget."""
    book, limits, j = s.book[0], s.limits, s.book[0].decoding
    while j < book.running:
        slot, request = s.slots[j], s.requests[s.slots[j].request]
        take = min(request.prompt_tokens + request.emitted - slot.cached, budget)
        if _make_room(s, j, blocks(limits, slot.cached + take) - blocks(limits, slot.cached), now_s):
            _compute_prompt(s, j, take)
            budget -= take
        j += 1
    return budget


@compiled
def _admissions(s: State, budget: int, now_s: float) -> None:
    """Admit from the head of the queue while tokens, places and blocks last."""
    book, limits = s.book[0], s.limits
    while budget > 0 and book.running < limits.max_num_seqs and waiting(s) > 0:
        request = s.requests[_head(s)]
        tokens = request.prompt_tokens + request.emitted
        take = min(tokens, budget)
        if blocks(limits, tokens if limits.admit_full_prompt else take) > book.free_blocks:
            break
        if limits.admit_full_output:
            promise = blocks(limits, request.prompt_tokens + request.output_tokens - 1)
            if book.promised + promise > limits.num_blocks:
                break
            book.promised += promise
        book.free_blocks -= blocks(limits, take)
        budget -= take
        _admit(s, take, now_s)


@compiled
def _prompts_first(s: State, now_s: float) -> None:
    """SGLang and vLLM V0: steps of prompts alone while there are any that fit, then steps of decodes alone."""
    book, limits, running = s.book[0], s.limits, s.book[0].running
    book.scheduled = 0
    budget = _prompts_under_way(s, limits.max_num_batched_tokens, now_s)
    if book.running == running:
        _admissions(s, budget, now_s)
    if book.scheduled > 0:
        book.decode_now = 0
        return
    need = s.growth[-book.tick % limits.block_size]
    if need <= book.free_blocks:
        book.free_blocks -= need
    else:
        _decode_under_pressure(s, now_s)
    book.scheduled = book.decoding


@compiled
def _static(s: State, now_s: float) -> None:
    """Fill an empty engine with a batch that keeps its slots and its reserved cache until its last token."""
    book, limits = s.book[0], s.limits
    book.scheduled = book.decoding
    while book.decoding == 0 and book.running < limits.max_num_seqs and waiting(s) > 0:
        request = s.requests[book.fresh]
        reserved = blocks(limits, request.prompt_tokens + request.output_tokens - 1)
        if reserved > book.free_blocks:
            break
        book.free_blocks -= reserved
        _admit(s, request.prompt_tokens, now_s)


@compiled
def schedule(s: State, now_s: float) -> int:
    """Decide the next step and return how many sequences take part; 0 means that there is nothing to do.

    Slots below `book.decoding` compute one token each if `book.decode_now`, the others `chunk` tokens of their prompt.
    """
    book = s.book[0]
    book.prompt_tokens = book.prompt_pairs = book.prompt_pairs_windowed = 0
    book.decode_now = 1
    if s.limits.policy == STATIC:
        _static(s, now_s)
    elif s.limits.policy == PROMPTS_FIRST:
        _prompts_first(s, now_s)
    else:
        _continuous(s, now_s)
    if book.decoding == 0:
        book.decode_now = 0
    return book.scheduled


@compiled
def _finish(s: State, request: int, tokens: int, end_s: float) -> None:
    """Record the last token of a request; a static batch keeps its blocks until its end."""
    book = s.book[0]
    s.requests[request].finished_s = end_s
    book.finished += 1
    if s.limits.policy != STATIC:
        book.free_blocks += blocks(s.limits, tokens)
    if s.limits.admit_full_output:
        book.promised -= blocks(s.limits, s.requests[request].prompt_tokens + s.requests[request].output_tokens - 1)


@compiled
def _retire_decodes(s: State, end_s: float) -> int:
    """Take out the decoding sequences that are done, keep the others in order; return how many are left."""
    book = s.book[0]
    kept, book.next_event_tick = 0, NEVER
    for j in range(book.decoding):
        slot = s.slots[j]
        if slot.last_tick == book.tick:
            _finish(s, slot.request, slot.cached + book.tick, end_s)
            book.unfinished -= 1
            if s.limits.policy != STATIC:
                _track(s, j, -1)
                continue
            slot.last_tick = NEVER
        if kept < j:
            s.slots[kept] = slot
        if s.limits.window > 0:
            _track(s, kept, -1)
            _close_windows(s, kept)
            _track(s, kept, 1)
        book.next_event_tick = min(book.next_event_tick, _next_event(s, kept))
        kept += 1
    return kept


@compiled
def _end_prompt(s: State, j: int, end_s: float) -> bool:
    """Emit the token that ends a prompt; return whether the sequence stays, to decode or to pad a static batch."""
    book, slot = s.book[0], s.slots[j]
    request = s.requests[slot.request]
    if request.emitted == 0:
        request.first_token_s = end_s
    else:
        request.stalled_s += end_s
    left = request.output_tokens - request.emitted - 1
    if left == 0:
        _finish(s, slot.request, slot.cached, end_s)
        if s.limits.policy != STATIC:
            return False
    slot.cached -= book.tick
    slot.last_tick = book.tick + left if left > 0 else NEVER
    book.unfinished += 1 if left > 0 else 0
    _close_windows(s, j)
    _track(s, j, 1)
    book.next_event_tick = min(book.next_event_tick, _next_event(s, j))
    return True


@compiled
def _advance_prompts(s: State, first: int, end_s: float) -> int:
    """Advance the prompts from a position on; those that end join the decoding sequences. Return the new end."""
    book = s.book[0]
    kept, before = book.decoding, book.running
    for j in range(first, before):
        if kept < j:
            s.slots[kept] = s.slots[j]
        slot, request = s.slots[kept], s.requests[s.slots[j].request]
        slot.cached += slot.chunk
        if slot.cached == request.prompt_tokens + request.emitted:
            if not _end_prompt(s, kept, end_s):
                continue
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
