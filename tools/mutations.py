"""Changes of a text that a reader may not expect: hostile words in place of others, lost and doubled lines, bytes."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (
    *("0", "-1", "-0", "1", "2", "1e308", "-1e308", "1e999", "nan", "inf", "-inf", "1e-308", "1e-9", "0.5"),
    *("65", "4097", "1000000", "1000000000", "1e18", "9223372036854775808", "9" * 30, "9" * 400, "9" * 5000),
)
WORDS = (
    *("", "null", "~", "true", "yes", "no", "0b", "0x", "0o8", "1_000", "1,000", "2024-13-45", "[]", "{}", "[[]]"),
    *('"', "'", ",", ":", "\n", "\r", "\0", "\t", "\ufeff", "é", "٣", "\u202e", "&a", "*a", "!!python/name:os.system"),
    *("a" * 300, "a" * 200_000, "../up", "/dev/zero", "=1+1", "<b>", "%s", "{0}", "$(id)", "-", "--", "../"),
)
VALUES: tuple[Any, ...] = (None, True, "", "x", [], {}, [[]], {"a": 1}, 0, -1, 1e308, -1e308, 1e-300, 10**9, 10**18)
_TOKEN = re.compile(r"[-+]?\d[\d_.]*(?:[eE][-+]?\d+)?|[A-Za-z_][\w.-]*|[^\s\w]")


def mutated(text: str, random: Random) -> str:
    """Return a text with one to four changes; the same random numbers make the same one."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        text = random.choice(CHANGES)(text, random)
    return text


def mutated_words(words: list[str], random: Random) -> list[str]:
    """Return the words of a command line with one to three changes: of a value, part of a value, or a whole option."""
    words = list(words)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(words))
        change = random.random()
        if change < 0.5:
            words[at] = _another_token(words[at], random)
        elif change < 0.8:
            words[at] = random.choice(NUMBERS + WORDS).replace("\0", "")
        elif change < 0.9 and len(words) > 1:
            del words[at]
        else:
            words.insert(at, random.choice(words))
    return [each.replace("\0", "") for each in words]


def _another_token(text: str, random: Random) -> str:
    found = list(_TOKEN.finditer(text))
    if not found:
        return text + random.choice(NUMBERS + WORDS)
    token = random.choice(found)
    is_number = token[0][-1].isdigit()
    new = random.choice(NUMBERS if is_number and random.random() < 0.8 else NUMBERS + WORDS)
    return text[: token.start()] + new + text[token.end() :]


def _other_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    change = random.randrange(4)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(at, lines[other])
    elif change == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines = lines[:at] or lines[:1]
    return "".join(lines)


def _other_characters(text: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    some = random.randrange(1, 9)
    change = random.randrange(3)
    if change == 0:
        return text[:at] + text[at + some :]
    return text[:at] + (random.choice(WORDS) if change == 1 else text[at : at + some] * 2) + text[at:]


def _other_value(text: str, random: Random) -> str:
    """Return a JSON text, or one of a JSON object per line, with another value at one place."""
    try:
        whole = [json.loads(text)]
    except ValueError:
        try:
            whole = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return _another_token(text, random)
    node: Any = random.choice(whole or [{}])
    while isinstance(node, dict | list) and node:
        key = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or random.random() < 0.25:
            if isinstance(node, dict) and random.random() < 0.2:
                del node[key]
            else:
                node[key] = random.choice(VALUES)
            break
        node = node[key]
    return "\n".join(json.dumps(each) for each in whole)


Change = Callable[[str, Random], str]
CHANGES: tuple[Change, ...] = (_another_token, _another_token, _other_value, _other_lines, _other_characters)
