"""Prefix cache, compiled: cached prefix blocks, the requests that hold them, eviction, and a second tier on the host.

A prefix block is `prefix_block_tokens` tokens with an id; ids are rows of `s.prefix_blocks`. A request holds a leading
run of its blocks, so one count per sequence (`held_prefix_blocks`) says which. Blocks without a holder are idle: a
doubly linked list from least to most recently used, as are the blocks on the host; the last two rows of the table are
the ends of the two lists. `request` is a row of `s.requests`, `j` a position in the running list.

Rules: docs/serving-rules.md, P.
"""

from simulator.scheduler.jit import compiled
from simulator.scheduler.state import ABSENT, ON_DEVICE, ON_HOST, Ints, State


@compiled
def blocks_per_prefix_block(s: State) -> int:
    """Return the KV-cache blocks of one prefix block: those of every full group (windowed layers share nothing).

    Rule P1.
    """
    return int(s.limits.prefix_block_tokens // s.limits.block_size * s.limits.full_groups)


@compiled
def warm_cache(s: State, ids: Ints) -> None:
    """Fill an empty cache with idle prefix blocks, least recently used first; evict what does not fit.

    `ids`: shape (blocks,), int64; of an id that occurs twice the last position counts. Rule P11.
    """
    for block in ids:
        _leave_list(s, block)
        s.prefix_blocks[block].place = ON_DEVICE
        s.book[0].idle_prefix_blocks += 1
        _append(s, block, len(s.prefix_blocks) - 2)
    evict(s)


@compiled
def cached_prefix_blocks(s: State, request: int, known_tokens: int) -> int:
    """Return how many leading prefix blocks of a request are cached, on the device or the host.

    At most (known_tokens - 1) // prefix_block_tokens, so that at least one token is left to compute. Rules P3 and P9.
    """
    row, count = s.requests[request], 0
    most = min(row.prefix_block_count, (known_tokens - 1) // s.limits.prefix_block_tokens)
    while count < most and s.prefix_blocks[s.prefix_block_ids[row.first_prefix_block + count]].place != ABSENT:
        count += 1
    return count


@compiled
def shared_prefix_blocks(s: State, request: int, count: int) -> int:
    """Return how many of a request's first `count` prefix blocks others hold, so that they take no free blocks.

    Rule P4.
    """
    first, shared = s.requests[request].first_prefix_block, 0
    for place in range(first, first + count):
        shared += 1 if s.prefix_blocks[s.prefix_block_ids[place]].holders > 0 else 0
    return shared


@compiled
def hold(s: State, request: int, count: int) -> None:
    """Make a request a holder of its first `count` prefix blocks; those on the host are loaded into the device.

    Rules P3 and P9.
    """
    book, first = s.book[0], s.requests[request].first_prefix_block
    for place in range(first, first + count):
        block = s.prefix_block_ids[place]
        if s.prefix_blocks[block].place == ON_HOST:
            book.loaded_tokens += s.limits.prefix_block_tokens
        _hold_prefix_block(s, block)


@compiled
def register(s: State, j: int, tokens: int) -> None:
    """Let the prompt at position `j` hold the prefix blocks that its first `tokens` tokens complete. Rule P5."""
    slot, row = s.slots[j], s.requests[s.slots[j].request]
    complete = min(row.prefix_block_count, tokens // s.limits.prefix_block_tokens)
    while slot.held_prefix_blocks < complete:
        block = s.prefix_block_ids[row.first_prefix_block + slot.held_prefix_blocks]
        if s.prefix_blocks[block].place == ON_DEVICE:  # its own KV-cache blocks are freed; idle: no change
            s.book[0].free_blocks += blocks_per_prefix_block(s) if s.prefix_blocks[block].holders > 0 else 0
        _hold_prefix_block(s, block)
        slot.held_prefix_blocks += 1


@compiled
def release(s: State, j: int, tokens: int) -> None:
    """Let go of the prefix blocks of the sequence at position `j`; those within its first `tokens` tokens stay as idle.

    The caller has counted all its KV-cache blocks as free already. A block that the sequence should have completed in
    the present step, which it leaves, is not cached. Rule P6.
    """
    book, slot, row = s.book[0], s.slots[j], s.requests[s.slots[j].request]
    covered = max(slot.held_prefix_blocks, min(row.prefix_block_count, tokens // s.limits.prefix_block_tokens))
    for index in range(covered - 1, -1, -1):
        block = s.prefix_block_ids[row.first_prefix_block + index]
        state = s.prefix_blocks[block]
        if index < slot.held_prefix_blocks:
            state.holders -= 1
            if state.holders > 0:
                book.extra_holders -= 1
                book.free_blocks -= blocks_per_prefix_block(s)
            else:
                state.place = ABSENT  # in no list yet
        if state.holders == 0 and (index + 1) * s.limits.prefix_block_tokens <= tokens:
            _leave_list(s, block)
            state.place = ON_DEVICE
            book.idle_prefix_blocks += 1
            _append(s, block, len(s.prefix_blocks) - 2)


@compiled
def evict(s: State) -> None:
    """Evict idle blocks, least recently used first (to the host if there is one), until the rest fit in free blocks.

    Rules P7 and P9.
    """
    book, idle, host = s.book[0], len(s.prefix_blocks) - 2, len(s.prefix_blocks) - 1
    while book.idle_prefix_blocks * blocks_per_prefix_block(s) > book.free_blocks:
        block = s.prefix_blocks[idle].next
        _leave_list(s, block)
        if s.limits.host_prefix_blocks > 0:
            s.prefix_blocks[block].place = ON_HOST
            book.host_prefix_blocks += 1
            _append(s, block, host)
        if book.host_prefix_blocks > s.limits.host_prefix_blocks:
            _leave_list(s, s.prefix_blocks[host].next)


@compiled
def _hold_prefix_block(s: State, block: int) -> None:
    """Add a holder to a prefix block, which is on the device from now on."""
    state = s.prefix_blocks[block]
    if state.holders == 0:
        _leave_list(s, block)
        state.place = ON_DEVICE
    else:
        s.book[0].extra_holders += 1
    state.holders += 1


@compiled
def _leave_list(s: State, block: int) -> None:
    """Take a prefix block out of the idle list or out of the host's list, if it is in one."""
    book, state = s.book[0], s.prefix_blocks[block]
    if state.place == ABSENT:
        return
    if state.place == ON_DEVICE:
        book.idle_prefix_blocks -= 1
    else:
        book.host_prefix_blocks -= 1
    s.prefix_blocks[state.previous].next = state.next
    s.prefix_blocks[state.next].previous = state.previous
    state.place = ABSENT


@compiled
def _append(s: State, block: int, end: int) -> None:
    """Make a prefix block the most recently used one of the list with this end."""
    state, last = s.prefix_blocks[block], s.prefix_blocks[end].previous
    state.previous, state.next = last, end
    s.prefix_blocks[last].next = s.prefix_blocks[end].previous = block
