"""A look at the header of a GGUF file before it is read: no length in it may go beyond the file.

Source: github.com/ggml-org/ggml docs/gguf.md, version 3.
"""

import errno
import stat
import struct
from pathlib import Path
from typing import BinaryIO

MAGIC, VERSIONS = b"GGUF", (2, 3)
STRING, ARRAY = 8, 9  # types of a value; others are numbers of so many bytes
NUMBER_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
MOST_DIMENSIONS, MOST_DEPTH = 8, 4


def refuse_unsound(path: Path) -> None:
    """Raise OSError or ValueError for a file that is no GGUF file, or whose header has a length beyond its end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    with path.open("rb") as file:
        _Header(file, path.stat().st_size).check()


class _Header:
    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self.file, self.size_bytes = file, size_bytes

    def check(self) -> None:
        if self._read(4) != MAGIC or self._number("<I") not in VERSIONS:
            raise ValueError("it does not begin as a GGUF file of version 2 or 3")
        tensors, values = self._number("<Q"), self._number("<Q")
        for _ in range(self._count(values, 13)):
            self._skip(self._number("<Q"))
            self._value(self._number("<I"), 0)
        for _ in range(self._count(tensors, 28)):
            self._skip(self._number("<Q"))
            dimensions = self._number("<I")
            if dimensions > MOST_DIMENSIONS:
                raise ValueError(f"a tensor of {dimensions} dimensions")
            self._skip(8 * dimensions + 12)

    def _value(self, kind: int, depth: int) -> None:
        if kind in NUMBER_BYTES:
            self._skip(NUMBER_BYTES[kind])
        elif kind == STRING:
            self._skip(self._number("<Q"))
        elif kind == ARRAY and depth < MOST_DEPTH:
            inner, count = self._number("<I"), self._number("<Q")
            if inner in NUMBER_BYTES:
                self._skip(count * NUMBER_BYTES[inner])
            else:
                for _ in range(self._count(count, 8)):
                    self._value(inner, depth + 1)
        else:
            raise ValueError(f"a value of type {kind}")

    def _count(self, count: int, least_bytes: int) -> int:
        """Return how many entries follow, of so many bytes at least. Raises ValueError for more than the file holds."""
        if count * least_bytes > self.size_bytes - self.file.tell():
            raise ValueError(f"{count:,} entries are more than its {self.size_bytes:,} bytes hold")
        return count

    def _skip(self, count: int) -> None:
        self.file.seek(self._count(count, 1), 1)

    def _read(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise ValueError("it ends in its header")
        return data

    def _number(self, form: str) -> int:
        found: int = struct.unpack(form, self._read(struct.calcsize(form)))[0]
        return found
