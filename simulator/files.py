"""The gate for files: how much of a file any reader takes, plain or .gz, JSON within bounds; and writing, whole or not.

What exceeds a limit raises OSError (JSON: ValueError), whose text says why; readers make a three-part error of it.
"""

import errno
import gzip
import io
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from simulator.errors import InfercastError, reason

MAX_MB_VARIABLE = "INFERCAST_MAX_FILE_MB"
MAX_MB = 64.0  # of text, decompressed: 300,000 rows of measurements
MAX_TRACE_MB = 512.0  # 10 million requests or more
MAX_DIGITS = 20  # of a whole number: 2^64 has 20
LEFT_OVER_S = 3600.0  # after which an unfinished file is nobody's
_LONG = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")
_READ = json.JSONDecoder().raw_decode
_ZIPPED = b"\x1f\x8b"


class _Bounded(io.RawIOBase):
    """Bytes of a stream, up to a limit: OSError beyond it, and where the stream is no sound .gz."""

    def __init__(self, stream: BinaryIO, file: BinaryIO, most_mb: float) -> None:
        self.file = file  # under the stream: GzipFile leaves it open
        self.stream, self.most_mb, self.left = stream, most_mb, int(most_mb * 1e6)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.stream.read(len(buffer))
        except (EOFError, zlib.error) as error:
            raise OSError(errno.EINVAL, f"it is no sound .gz: {error}") from error
        self.left -= len(data)
        if self.left < 0:
            because = f"it holds more than {self.most_mb:g} MB; {MAX_MB_VARIABLE} sets the limit"
            raise OSError(errno.EFBIG, because)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self.stream.close()
        self.file.close()
        super().close()


def open_text(path: Path, usual_mb: float = MAX_MB) -> TextIO:
    """Open a text file in UTF-8, plain or .gz (by name or first bytes), of at most `usual_mb` MB (10^6 bytes) of text.

    The environment variable INFERCAST_MAX_FILE_MB sets another limit. Raises OSError for what is no regular file: a
    pipe may never end. While it is read, text beyond the limit and a broken .gz raise OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = cast(BinaryIO, os.fdopen(descriptor, "rb"))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file, and may never end: save it to one first")
        zipped = file.read(2) == _ZIPPED or path.suffix == ".gz"
        file.seek(0)
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file
        bounded = _Bounded(stream, file, _asked_mb() or usual_mb)
    except BaseException:
        file.close()
        raise
    return io.TextIOWrapper(io.BufferedReader(bounded, 1 << 16), encoding="utf-8-sig", newline="")


def read_text(path: Path, usual_mb: float = MAX_MB) -> str:
    """Return the text of a file (`open_text`). Raises OSError, UnicodeDecodeError for what is no UTF-8."""
    with open_text(path, usual_mb) as file:
        return file.read()


def write_whole(path: Path, content: str | bytes, option: str = "") -> None:
    """Write a file atomically, with its folder: who reads it, or ends this process, finds the old file or the new one.

    It is written beside its place and then moved there; what is no regular file (/dev/stdout) is written as it stands.
    Who is killed on the way may leave a file `.infercast-NUMBER.tmp`, which a later write into the folder removes.
    Raises InfercastError, which names the `option` that gave the path, where it cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        target = path.resolve()  # a link stays a link
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        unfinished = target.with_name(f".infercast-{os.getpid()}.tmp")
        try:
            _remove_left_over(target.parent)
            _write_beside(unfinished, data)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # a name that no file can have
        given = f"{option} {path}".strip()
        raise InfercastError(given, f"it cannot be written ({reason(error)})", "Check the path") from error


def _remove_left_over(folder: Path) -> None:
    for path in folder.glob(".infercast-*.tmp"):
        with suppress(FileNotFoundError):  # another process removes it, too
            if time.time() - path.stat().st_mtime > LEFT_OVER_S:
                path.unlink()


def _write_beside(path: Path, data: bytes) -> None:
    """Write a new file, which has its name only once it is whole where the system and the disk can do so (Linux)."""
    try:
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            path.unlink(missing_ok=True)  # of a killed process that had this number
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)  # with it, linkat: it follows the link
    except (AttributeError, OSError):
        path.write_bytes(data)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for nesting and for whole numbers beyond the limits.

    >>> parse_json("[1, 2.5]")
    [1, 2.5]
    """
    try:
        return json.loads(text, parse_int=_whole if _LONG.search(text) else None)  # a look is faster than a call each
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_json_lines(lines: Iterable[str]) -> Iterator[Any]:
    """Yield the value of each line, in a third of the time of `parse_json`: whole numbers may have 4,300 digits.

    >>> list(parse_json_lines(["1", " [2.5] "]))
    [1, [2.5]]

    Raises ValueError for a line that is not one value, also for nesting and for digits beyond Python's own limits.
    """
    for line in lines:
        try:
            value, end = _READ(text := line.strip())
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if end != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
        yield value


def named_file(folder: Path, name: str) -> Path | None:
    """Return the YAML file of a name in a folder, None where there is none: a name leads to no other folder.

    >>> named_file(Path(__file__).parent / "engines", "../up")
    """
    path, parts = folder / f"{name}.yaml", Path(name).parts
    return path if not Path(name).is_absolute() and ".." not in parts and is_file(path) else None


def is_file(path: Path) -> bool:
    """Tell whether a file is there; False for a name that no file can have.

    >>> is_file(Path("a" * 256))
    False
    """
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long; a null byte
        return False


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS + 1:
        raise ValueError(f"a whole number of {len(text)} digits, more than {MAX_DIGITS}")
    return int(text)


def _asked_mb() -> int:
    asked = os.environ.get(MAX_MB_VARIABLE, "0")
    if not (asked.isascii() and asked.isdigit() and len(asked) <= MAX_DIGITS):
        raise OSError(errno.EINVAL, f"{MAX_MB_VARIABLE}={asked} is no whole number of MB")
    return int(asked)
