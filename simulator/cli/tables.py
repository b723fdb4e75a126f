"""Tables that fit the columns of a terminal: narrow gaps first, then headings in lines, then parts below each other."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table

WIDE_GAP, NARROW_GAP = 3, 2  # columns between two columns of a table
SENTENCE = 20  # a cell longer than this may go on in its next line


class Cells(NamedTuple):
    """What a column of a table prints: its heading, the texts below it, and whether they are left-aligned."""

    heading: str
    texts: Sequence[str]
    left: bool

    @property
    def full(self) -> int:
        """Columns of the terminal that the longest line takes."""
        return _longest(line for text in (self.heading, *self.texts) for line in text.split("\n"))

    @property
    def least(self) -> int:
        """Columns that it needs: headings break between words, texts only where they are sentences."""
        line = _longest(line for text in self.texts for line in text.split("\n"))
        return max(self.word, min(line, SENTENCE))

    @property
    def word(self) -> int:
        """Columns that the longest word takes: it is never broken."""
        return _longest(" ".join([self.heading, *self.texts]).split())


def tables(cells: Sequence[Cells], width: int) -> Iterator[Table]:
    """Yield a table whose lines have at most `width` columns, in several parts where it is too wide.

    Each part begins with the columns that tell the rows apart. One column alone that is wider stays so.
    """
    gap = WIDE_GAP if _fits([each.full for each in cells], WIDE_GAP, width) else NARROW_GAP
    least = [each.least for each in cells]
    whole = [list(range(len(cells)))]
    for part in whole if _fits(least, gap, width) else in_parts(least, _keys(cells, width), width):
        yield _table([cells[each] for each in part], gap, width)


def in_parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Return the columns of each part of a table, as few parts as fit into `room` and about as wide as each other.

    Each begins with the first `keys` columns.

    >>> in_parts([4, 10, 10, 10, 10], keys=1, room=40)
    [[0, 1, 2], [0, 3, 4]]
    """
    parts = _filled(widths, keys, room)
    for narrower in range(room - 1, 0, -1):
        if len(found := _filled(widths, keys, narrower)) > len(parts):
            break
        parts = found
    return parts


def _filled(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Return the columns of each part, each as full as can be."""
    parts = [list(range(keys))]
    for index in range(keys, len(widths)):
        if len(parts[-1]) > keys and not _fits([widths[each] for each in (*parts[-1], index)], NARROW_GAP, room):
            parts.append(list(range(keys)))
        parts[-1].append(index)
    return parts


def _keys(cells: Sequence[Cells], width: int) -> int:
    """Return how many first columns tell the rows apart, if they take less than half of the width; else one."""
    for number in range(1, len(cells)):
        rows = list(zip(*(each.texts for each in cells[:number]), strict=True))
        if len(set(rows)) == len(rows):
            return number if _fits([each.least for each in cells[:number]], NARROW_GAP, width // 2) else 1
    return 1


def _fits(widths: Sequence[int], gap: int, room: int) -> bool:
    return sum(widths) + gap * (len(widths) - 1) <= room


def _longest(texts: Iterator[str] | Sequence[str]) -> int:
    return max(map(len, texts), default=0)


def _table(cells: Sequence[Cells], gap: int, room: int) -> Table:
    padding = (0, 1) if gap == WIDE_GAP else (0, 1, 0, 0)
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, padding=padding)
    for each, width in zip(cells, _widths(cells, gap, room), strict=True):
        table.add_column(each.heading, justify="left" if each.left else "right", width=width)
    for row in zip(*(each.texts for each in cells), strict=True):
        table.add_row(*row)
    return table


def _widths(cells: Sequence[Cells], gap: int, room: int) -> list[int]:
    """Return the width of each column: the widest gives way until all fit, to its least, and if need be to a word."""
    found = [each.full for each in cells]
    for floors in ([each.least for each in cells], [each.word for each in cells]):
        while not _fits(found, gap, room):
            wider = [index for index, width in enumerate(found) if width > floors[index]]
            if not wider:
                break
            found[max(wider, key=lambda index: found[index])] -= 1
    return found
