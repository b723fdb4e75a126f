"""The queue of one engine: links that run through the table of requests, so that engines can share the table.

In order of arrival it is a list. By priority it is a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986), so that a
long queue of many priorities costs a logarithm: `head` is its root, the most urgent.
"""

from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.state import NOBODY, State, blocks


@compiled
def enqueue(s: State, request: int) -> None:
    """Put a request at the tail, or by priority in its place."""
    book, row = s.book[0], s.requests[request]
    if s.limits.by_priority:
        row.next = row.previous = row.child = NOBODY
        book.head = request if book.waiting == 0 else _meld(s, book.head, request)
    else:
        row.previous = book.tail
        if book.waiting == 0:
            book.head = request
        else:
            s.requests[book.tail].next = request
        book.tail = request
    _count(s, request, 1)


@compiled
def enqueue_first(s: State, request: int) -> None:
    """Put a request at the head, or by priority in its place."""
    if s.limits.by_priority:
        enqueue(s, request)
        return
    book = s.book[0]
    s.requests[request].next = book.head
    if book.waiting == 0:
        book.tail = request
    else:
        s.requests[book.head].previous = request
    book.head = request
    _count(s, request, 1)


@compiled
def dequeue(s: State, request: int) -> None:
    """Take a request out, wherever it stands."""
    book, row = s.book[0], s.requests[request]
    if s.limits.by_priority:
        _take_from_heap(s, request)
    else:
        if request == book.head:
            book.head = row.next
        else:
            s.requests[row.previous].next = row.next
        if request == book.tail:
            book.tail = row.previous
        else:
            s.requests[row.next].previous = row.previous
    _count(s, request, -1)


@inlined
def _count(s: State, request: int, sign: int) -> None:
    book = s.book[0]
    book.waiting += sign
    book.waiting_blocks += sign * blocks(s.limits, s.requests[request].prompt_tokens)


@compiled
def goes_before(s: State, first: int, second: int) -> bool:
    """Whether a request is more urgent than another: by priority, then by arrival, then by index."""
    one, other = s.requests[first], s.requests[second]
    if one.priority != other.priority:
        return bool(one.priority < other.priority)
    if one.arrival_s != other.arrival_s:
        return bool(one.arrival_s < other.arrival_s)
    return first < second


@compiled
def _meld(s: State, first: int, second: int) -> int:
    """Hang the less urgent of two roots under the other, which is returned."""
    if goes_before(s, second, first):
        first, second = second, first
    parent, child = s.requests[first], s.requests[second]
    child.previous, child.next = first, parent.child
    if parent.child != NOBODY:
        s.requests[parent.child].previous = second
    parent.child = second
    return first


@compiled
def _take_from_heap(s: State, request: int) -> None:
    """Cut a request out and put its children back."""
    book, row = s.book[0], s.requests[request]
    orphans = _meld_children(s, row.child)
    if request == book.head:
        book.head = orphans
        return
    before = s.requests[row.previous]
    if before.child == request:
        before.child = row.next
    else:
        before.next = row.next
    if row.next != NOBODY:
        s.requests[row.next].previous = row.previous
    if orphans != NOBODY:
        book.head = _meld(s, book.head, orphans)


@compiled
def _meld_children(s: State, child: int) -> int:
    """Make one heap of siblings: pair by pair from the left, then the pairs from the right; return its root."""
    paired = NOBODY
    while child != NOBODY:
        right = s.requests[child].next
        rest = NOBODY
        if right != NOBODY:
            rest = s.requests[right].next
            child = _meld(s, child, right)
        s.requests[child].next = paired
        paired, child = child, rest
    root = NOBODY
    while paired != NOBODY:
        left = s.requests[paired].next
        root = paired if root == NOBODY else _meld(s, root, paired)
        paired = left
    if root != NOBODY:
        s.requests[root].next = s.requests[root].previous = NOBODY
    return root
