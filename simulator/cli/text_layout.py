"""How a result is laid out: its format; in text sentences in lines of a terminal, commands in lines that are typed."""

import re
import shutil
import textwrap
from enum import StrEnum

from simulator.errors import printable

USUAL_COLUMNS = 80  # of no terminal, too: what is piped fits a mail and a diff
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"(?:\\.|[^"\\])*")+""")  # of a shell: quotes hold their spaces


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


class Command(str):
    """A note that is typed: a backslash ends each of its lines that goes on."""

    __slots__ = ()


def columns() -> int:
    """Return the columns of the output: those of COLUMNS, else of the terminal, else 80."""
    return shutil.get_terminal_size((USUAL_COLUMNS, 24)).columns


def wrapped(text: str, width: int) -> list[str]:
    r"""Return the printable lines of a text, none longer than `width` columns but for a single long word.

    >>> wrapped("one two three", 9), wrapped(Command("vllm serve --tp 2"), 14)
    (['one two', 'three'], ['vllm serve \\', '  --tp 2'])
    """
    if isinstance(text, Command):
        return _typed(printable(text), width)
    lines = [_sentence(printable(each), width) for each in text.split("\n")]
    return [line for each in lines for line in each or [""]]


def _sentence(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _typed(command: str, width: int) -> list[str]:
    """Break a command before its options, each with its value."""
    parts: list[str] = []
    for word in _WORD.findall(command):
        if parts and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = parts[:1]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + len("  \\") <= width:
            lines[-1] += f" {part}"
        else:
            lines[-1] += " \\"
            lines.append(f"  {part}")
    return lines
