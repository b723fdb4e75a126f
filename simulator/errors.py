"""Errors that a user can meet; each says what was given, why that cannot be, and what to do.

InfercastError
├── ProfileError      a profile that is missing, malformed or contradicts itself
├── UnitError         a quantity without its unit, or with the wrong one
├── WorkloadError     a trace or an arrival process that cannot be simulated
├── DoesNotFitError   a deployment whose weights or KV cache exceed the memory
├── NotModelledError  something real that infercast refuses by name rather than guess
└── InterruptedSweepError  cases of a sweep that Ctrl-C has left unanswered
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Self

MOST_CHARACTERS = 2_000  # of a part of an error
_WORD = re.compile(r"[a-z0-9]+")
MOST_NAME = 200  # characters of a name that is compared with others


@dataclass(frozen=True)
class Setting:
    """A setting that an error is about: the name of its field, and the value that it was given.

    `typed`: both as a user spelled them, where that is known.

    >>> print(Setting("tp", 3), Setting("router", "foo"), Setting("timeout_s", 0.0, "--timeout 0min"))
    tp 3 router 'foo' --timeout 0min
    """

    name: str
    value: object
    typed: str = ""

    @property
    def shown(self) -> str:
        """The value as an error prints it."""
        if isinstance(self.value, float):
            return float.__repr__(self.value).removesuffix(".0")
        return repr(self.value) if isinstance(self.value, str | tuple) else str(self.value)

    def __str__(self) -> str:
        return self.typed or f"{self.name} {self.shown}"


Part = str | Setting
Given = Part | Sequence[Part]


class InfercastError(ValueError):
    """An error in three parts, printed as one line: what was given, why it cannot be, what to do.

    What was given is prose, a `Setting`, or several of both, in their order. A remedy that takes long to find is a
    function, which is called when the error is printed.

    >>> print(InfercastError("rate 0", "no request ever arrives", "Give a rate above 0"))
    rate 0: no request ever arrives. Give a rate above 0.
    >>> error = InfercastError((Setting("ep", 2), "with", Setting("tp", 4)), "they differ", "Give ep 4")
    >>> error.given, error.fields
    ('ep 2 with tp 4', {'ep': 2, 'tp': 4})
    """

    def __init__(self, given: Given, because: str, remedy: str | Callable[[], str]) -> None:
        self._parts: tuple[Part, ...] = (given,) if isinstance(given, str | Setting) else tuple(given)
        self.given, self.because = _shown(" ".join(map(str, self._parts))), _shown(because)
        self._remedy = remedy
        super().__init__(self.given, self.because)

    @property
    def fields(self) -> dict[str, object]:
        """The values of the settings that it is about, by the names of their fields; empty where it is about none."""
        return {each.name: each.value for each in self._parts if isinstance(each, Setting)}

    @cached_property
    def remedy(self) -> str:
        """What to do."""
        return _shown(self._remedy if isinstance(self._remedy, str) else self._remedy())

    def about(self, given: Given) -> Self:
        """Return it with other words for what was given.

        >>> print(InfercastError("0min", "it is not above 0", "Give, say, 30s").about("--timeout 0min"))
        --timeout 0min: it is not above 0. Give, say, 30s.
        """
        return type(self)(given, self.because, self._remedy)

    def spelled(self, spelling: Callable[[Setting], str]) -> Self:
        """Return it with its settings as a user spelled them, "" for one that was not: its own words stay.

        >>> error = InfercastError(Setting("tp", 3), "32 heads do not divide by it", "Give a divisor of 32")
        >>> print(error.spelled(lambda setting: f"--{setting.name} {setting.value}"))
        --tp 3: 32 heads do not divide by it. Give a divisor of 32.
        """
        return self.about([_spelled(each, spelling) for each in self._parts])

    def __str__(self) -> str:
        return f"{self.given}: {self.because.rstrip('.')}. {self.remedy.rstrip('.')}."

    def __reduce__(self) -> tuple[type[Self], tuple[Given, str, str]]:
        """Return what it is made of, for pickle: an error may come from another process."""
        return type(self), (self._parts, self.because, self.remedy)


def _spelled(part: Part, spelling: Callable[[Setting], str]) -> Part:
    if isinstance(part, str) or part.typed:
        return part
    return replace(part, typed=spelling(part))


def printable(text: str) -> str:
    """Return a text with spaces for what no terminal shows: line ends, and characters that steer it.

    >>> printable("a name" + chr(27) + "[2J")
    'a name [2J'
    """
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def _shown(text: str) -> str:
    """Return a text on one line, cut: a file may hold a name of a million characters."""
    return printable(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}...")


class ProfileError(InfercastError):
    """A profile that is missing, malformed or contradicts itself."""


class UnitError(InfercastError):
    """A quantity without its unit, or with the wrong one."""


class WorkloadError(InfercastError):
    """A trace or an arrival process that cannot be simulated."""


class DoesNotFitError(InfercastError):
    """A deployment whose weights or KV cache exceed the memory."""


class NotModelledError(InfercastError):
    """Something real that infercast refuses by name rather than guess."""


class InterruptedSweepError(InfercastError):
    """Ctrl-C came before all cases of a sweep were answered."""

    @classmethod
    def of(cls, left: int, every: int, remedy: str) -> Self:
        """Return the error for so many of all cases that are left.

        >>> print(InterruptedSweepError.of(2, 1_000, "Let it run on"))
        2 of 1,000 cases: an interrupt came before they were answered. Let it run on.
        """
        return cls(f"{left:,} of {every:,} cases", "an interrupt came before they were answered", remedy)


def nearest(name: object, known: Iterable[object], most: int = 40) -> str:
    """Return "Nearest: a, b", the known names most like `name`, or "Known: ..." with up to `most` if none is like it.

    Like it is what has almost its letters, else what has a word of it. A file may hold anything in place of a name: all
    are taken as text.

    >>> nearest("l40", ["l40s", "l4", "h100-sxm"]), nearest("MacBook Pro M3", ["m2-pro", "m3", "m3-pro", "l4"])
    ('Nearest: l40s, l4', 'Nearest: m3-pro, m2-pro, m3')
    """
    names, text = sorted(map(str, known)), str(name).lower()[:MOST_NAME]
    close = get_close_matches(text, names, n=3, cutoff=0.5) or _with_a_word_of(text, names)[:3]
    if close:
        return f"Nearest: {', '.join(close)}"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"Known: {', '.join(names[:most])}{more}"


def _with_a_word_of(text: str, names: Sequence[str]) -> list[str]:
    """Return the names that have a word of a text, first those with most words, of which rare ones count more."""
    asked = {word for word in _WORD.findall(text) if len(word) > 1}
    shared = {name: asked.intersection(_WORD.findall(name.lower())) for name in names}
    often = Counter(word for words in shared.values() for word in words)
    worth = {name: sum(1 / often[word] for word in words) for name, words in shared.items() if words}
    return sorted(worth, key=lambda name: -worth[name])


def refuse_matching(given: Given, name: str, known: Mapping[re.Pattern[str], tuple[str, str]]) -> None:
    """Raise NotModelledError, with why and what to do, for a name that fits a pattern as a whole; else return.

    Names are in small letters, with "-" for spaces and underscores. `given`: what the error calls it.

    >>> try:
    ...     refuse_matching("model 'GPT 9'", "GPT 9", {re.compile("gpt-9"): ("it is not out", "Wait")})
    ... except NotModelledError as error:
    ...     print(error)
    model 'GPT 9': it is not out. Wait.
    """
    plain = re.sub(r"[\s_]+", "-", name.lower())
    for pattern, (because, remedy) in known.items():
        if pattern.fullmatch(plain):
            raise NotModelledError(given, because, remedy)


def reason(error: Exception) -> str:
    """Return why a file cannot be read or written, without the error number and the path that the system adds.

    >>> reason(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'No such file or directory'
    >>> reason(UnicodeDecodeError("utf-8", b"a.csv", 0, 1, "invalid start byte"))
    'it is no text in utf-8'
    """
    if isinstance(error, UnicodeDecodeError):
        return f"it is no text in {error.encoding}"
    told = error.strerror if isinstance(error, OSError) else None
    return told or str(error)
