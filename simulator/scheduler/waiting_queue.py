"""Waiting queue of one engine, as links in the shared table of requests, so that engines can exchange requests.

In FCFS order it is a doubly linked list. With priorities it is a pairing heap, whose root `head` is the most urgent
request, so that operations on a long queue take logarithmic time. Source: Fredman, Sedgewick, Sleator and Tarjan, "The
pairing heap", Algorithmica 1 (1986).
"""

from simulator.scheduler.jit import compiled, inlined
from simulator.scheduler.state import NOBODY, State, blocks


@compiled
def enqueue(s: State, request: int) -> None:
    """Put a request at the end of the queue, or with priorities into the heap. Rules 4 and Q."""
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
    """Put a request at the head of the queue, or with priorities into the heap. Rules 8 and Q."""
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
    """Remove a request from the queue, wherever it is."""
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
    """Add (sign 1) a request to the counts of waiting requests and their blocks, or remove it (sign -1)."""
    book = s.book[0]
    book.waiting += sign
    book.waiting_blocks += sign * blocks(s.limits, s.requests[request].prompt_tokens)


@compiled
def goes_before(s: State, first: int, second: int) -> bool:
    """Return whether the request `first` is more urgent than `second`: by priority, then arrival time, then row.

    Rule Q.
    """
    one, other = s.requests[first], s.requests[second]
    if one.priority != other.priority:
        return bool(one.priority < other.priority)
    if one.arrival_s != other.arrival_s:
        return bool(one.arrival_s < other.arrival_s)
    return first < second


@compiled
def _meld(s: State, first: int, second: int) -> int:
    """Join two heaps: the less urgent root becomes a child of the other, which is returned."""
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
    """Remove a request from the heap and put its children back."""
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
    """Join sibling heaps into one, first pairwise from left to right, then from right to left; return the root."""
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
