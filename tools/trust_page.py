"""Puts the tables that scripts make into docs/trust.md, between `<!-- name -->` and `<!-- end of name -->`."""

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "trust.md"


def put(name: str, text: str) -> None:
    """Replace what stands between the two marks of a name. Raises ValueError where the page has no such marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, mark, rest = PAGE.read_text().partition(begin)
    _, other, after = rest.partition(end)
    if not mark or not other:
        raise ValueError(f"{PAGE.name} has no {begin.strip()} and {end}: add both where the text belongs")
    PAGE.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in markdown.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [heads, *rows]
    cells = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([cells[0], "|" + "---|" * len(heads), *cells[1:]])
