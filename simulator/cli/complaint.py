"""What went wrong, on stderr: in lines of a terminal, else on one line, for what is piped is searched."""

import re
import sys

from simulator.cli.text_layout import columns, wrapped

# What is copied from a terminal is not broken: text in quotes and backticks, an option with its value
HELD = re.compile(r"""`[^`]*`|(?<!\w)'[^']*'(?!\w)|"[^"]*"|(?<!\S)-{1,2}[a-z][\w-]* [^\s`'"(-]\S*""")
SPACE = "␠"  # stands for a space in what is held together


def complain(text: str) -> None:
    """Write a sentence to stderr, with our name before it; where that is closed, the exit code has to do."""
    if sys.stderr is None:
        return
    whole = f"infercast: {text}"
    lines = unbroken(whole, columns()) if sys.stderr.isatty() else [whole]
    sys.stderr.write("\n".join(lines) + "\n")


def unbroken(text: str, width: int) -> list[str]:
    """Return a text in lines of a width, but for what is typed or copied, which stays whole.

    >>> unbroken("tp 3: it does not fit. Give --tp 4.", 30)
    ['tp 3: it does not fit. Give', '--tp 4.']
    """
    held = HELD.sub(lambda found: found[0].replace(" ", SPACE), text)
    return [line.replace(SPACE, " ") for line in wrapped(held, width)]
