"""The prefix cache, compiled: units of tokens by id, their holders, what is evicted, and a second tier on the host.

Rules: docs/serving-rules.md, P. A request holds a leading run of its units, so one count per sequence says which. Units
that nobody holds are a list from the least to the most recent, and so are those on the host; both run through `units`,
with the last two rows as their ends.
"""

from simulator.scheduler.jit import compiled
from simulator.scheduler.state import ABSENT, ON_DEVICE, ON_HOST, Ints, State


@compiled
def blocks_per_prefix_block(s: State) -> int:
    """Return the blocks that a unit takes: of every full group, none of windowed ones."""
    return int(s.limits.prefix_block_tokens // s.limits.block_size * s.limits.full_groups)


@compiled
def warm_cache(s: State, units: Ints) -> None:
    """Fill an empty cache with units that nobody holds, the least recent first, and drop what does not fit."""
    for unit in units:
        _leave_list(s, unit)  # of one that is named twice, the last place counts
        s.units[unit].place = ON_DEVICE
        s.book[0].idle_prefix_blocks += 1
        _append(s, unit, len(s.units) - 2)
    evict(s)


@compiled
def cached_prefix_blocks(s: State, request: int, known_tokens: int) -> int:
    """Return how many leading units of a request the cache or the host has, so that one known token is left over."""
    row, run = s.requests[request], 0
    most = min(row.units, (known_tokens - 1) // s.limits.prefix_block_tokens)
    while run < most and s.units[s.prefix_block_ids[row.first_prefix_block + run]].place != ABSENT:
        run += 1
    return run


@compiled
def shared_prefix_blocks(s: State, request: int, run: int) -> int:
    """Return how many of its leading units others hold: these cost it no blocks."""
    first, shared = s.requests[request].first_prefix_block, 0
    for place in range(first, first + run):
        shared += 1 if s.units[s.prefix_block_ids[place]].holders > 0 else 0
    return shared


@compiled
def hold(s: State, request: int, run: int) -> None:
    """Make a request a holder of its leading units; those on the host are loaded."""
    book, first = s.book[0], s.requests[request].first_prefix_block
    for place in range(first, first + run):
        unit = s.prefix_block_ids[place]
        if s.units[unit].place == ON_HOST:
            book.loaded_tokens += s.limits.prefix_block_tokens
        _hold_prefix_block(s, unit)


@compiled
def register(s: State, j: int, tokens: int) -> None:
    """Let the prompt at a position hold the units that it has completed with so many tokens."""
    slot, row = s.slots[j], s.requests[s.slots[j].request]
    complete = min(row.units, tokens // s.limits.prefix_block_tokens)
    while slot.held_prefix_blocks < complete:
        unit = s.prefix_block_ids[row.first_prefix_block + slot.held_prefix_blocks]
        if s.units[unit].place == ON_DEVICE:  # its own copy is given back; an idle one costs as much as it gives
            s.book[0].free_blocks += blocks_per_prefix_block(s) if s.units[unit].holders > 0 else 0
        _hold_prefix_block(s, unit)
        slot.held_prefix_blocks += 1


@compiled
def release(s: State, j: int, tokens: int) -> None:
    """Let go of the units of the sequence at a position, all of whose blocks for `tokens` count as free already.

    One that leaves the step in which it was to complete a unit leaves nothing in it.
    """
    book, slot, row = s.book[0], s.slots[j], s.requests[s.slots[j].request]
    covered = max(slot.held_prefix_blocks, min(row.units, tokens // s.limits.prefix_block_tokens))
    for index in range(covered - 1, -1, -1):
        unit = s.prefix_block_ids[row.first_prefix_block + index]
        state = s.units[unit]
        if index < slot.held_prefix_blocks:
            state.holders -= 1
            if state.holders > 0:
                book.duplicates -= 1
                book.free_blocks -= blocks_per_prefix_block(s)
            else:
                state.place = ABSENT  # for now: it stands in no list
        if state.holders == 0 and (index + 1) * s.limits.prefix_block_tokens <= tokens:
            _leave_list(s, unit)
            state.place = ON_DEVICE
            book.idle_prefix_blocks += 1
            _append(s, unit, len(s.units) - 2)


@compiled
def evict(s: State) -> None:
    """Drop the least recent units that nobody holds, or move them to the host, until the rest fits into free blocks."""
    book, idle, host = s.book[0], len(s.units) - 2, len(s.units) - 1
    while book.idle_prefix_blocks * blocks_per_prefix_block(s) > book.free_blocks:
        unit = s.units[idle].next
        _leave_list(s, unit)
        if s.limits.host_prefix_blocks > 0:
            s.units[unit].place = ON_HOST
            book.host_prefix_blocks += 1
            _append(s, unit, host)
        if book.host_prefix_blocks > s.limits.host_prefix_blocks:
            _leave_list(s, s.units[host].next)


@compiled
def _hold_prefix_block(s: State, unit: int) -> None:
    state = s.units[unit]
    if state.holders == 0:
        _leave_list(s, unit)
        state.place = ON_DEVICE
    else:
        s.book[0].duplicates += 1
    state.holders += 1


@compiled
def _leave_list(s: State, unit: int) -> None:
    """Take a unit that nobody holds from the idle ones or from the host; then it is nowhere."""
    book, state = s.book[0], s.units[unit]
    if state.place == ABSENT:
        return
    if state.place == ON_DEVICE:
        book.idle_prefix_blocks -= 1
    else:
        book.host_prefix_blocks -= 1
    s.units[state.previous].next = state.next
    s.units[state.next].previous = state.previous
    state.place = ABSENT


@compiled
def _append(s: State, unit: int, end: int) -> None:
    """Make a unit the most recent of the list with this end."""
    state, last = s.units[unit], s.units[end].previous
    state.previous, state.next = last, end
    s.units[last].next = s.units[end].previous = unit
