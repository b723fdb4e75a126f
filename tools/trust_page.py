"""Puts the tables that scripts make into docs/trust.md, between `<!-- name -->` and `<!-- end of name -->`."""

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "trust.md"


def put(name: str, text: str) -> None:
    """Replace what stands between the two marks of a name. Raises ValueError where the page has no such marks."""
    before, _, after = _parts(name)
    PAGE.write_text(f"{before}\n{text.strip()}\n\n{after}")


def rows(name: str) -> list[list[str]]:
    """Return the cells of the table between the two marks of a name, without its heads. Raises ValueError as `put`."""
    lines = [line for line in _parts(name)[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _parts(name: str) -> tuple[str, str, str]:
    """Return what stands up to the first mark of a name, between its marks, and from the second one on."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, mark, rest = PAGE.read_text().partition(begin)
    between, other, after = rest.partition(end)
    if not mark or not other:
        raise ValueError(f"{PAGE.name} has no {begin.strip()} and {end}: add both where the text belongs")
    return before + mark, between, other + after


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
