"""What users were shown and are shown otherwise now: outputs on pages, options, schemas, by git's history.

A change is announced by a line that is added to CHANGELOG.md in the same commit, or in a later one that changes nothing
else: a line that a later commit adds for something of its own announces nothing before it.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.pages import BLOCK, TABLE

GOLDEN = [
    "README.md",
    "docs/tour.md",
    "docs/tutorial.md",
    "docs/howto/*.md",
    "simulator/cli/options.json",
    "*schema.json",
]
COMMITS = 30  # that are looked at, the newest that touch a golden file
NOW = ""  # the files as they are, in place of a revision


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def unannounced(root: Path, golden: Sequence[str] = GOLDEN) -> list[str]:
    """What changed last and CHANGELOG.md says nothing of; what is new, or gone, is no change."""
    for before, after in _steps(root, golden):
        names = git(root, "diff", "--name-only", before, *([after] if after else []), "--", *golden).split()
        if found := [each for name in names for each in _changed(root, name, before, after)]:
            said = _says(root, after) or any(_says(root, each, alone=True) for each in _later(root, after))
            return [] if said else found
    return []


def _later(root: Path, revision: str) -> list[str]:
    """The commits on top of one, and what is not committed."""
    commits = ["rev-list", "--no-merges", "--ancestry-path", f"{revision}..HEAD"]
    return [NOW, *git(root, *commits).split()] if revision else []


def _says(root: Path, revision: str, *, alone: bool = False) -> bool:
    """Whether a commit adds a line to CHANGELOG.md, `alone`: and changes no other file."""
    changes = git(root, "diff", "--numstat", *([f"{revision}^", revision] if revision else ["HEAD"])).splitlines()
    added = {name: count for count, _, name in (line.split("\t") for line in changes)}
    return added.get("CHANGELOG.md", "0") != "0" and (len(added) == 1 or not alone)


def _steps(root: Path, golden: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of revisions, the newest first: what is not committed, then each commit and the one before it."""
    yield "HEAD", NOW
    commits = git(root, "log", f"-{COMMITS}", "--no-merges", "--format=%P %H", "--", *golden).splitlines()
    for before, _, after in (line.partition(" ") for line in commits):
        if before:  # the first commit of a history has none before it
            yield before, after


def _changed(root: Path, name: str, before: str, after: str) -> list[str]:
    old, new = (_shown(name, _text(root, name, revision)) for revision in (before, after))
    return [f"{name}: {each}" for each in old.keys() & new.keys() if old[each] != new[each]]


def _shown(name: str, text: str) -> dict[str, str]:
    """What a golden file promises: outputs by their command, a table by its heading, another file as a whole."""
    if name.endswith(".md"):
        return {match[1]: match[2] for pattern in (BLOCK, TABLE) for match in pattern.finditer(text)}
    return {"all of it": text} if text else {}


def _text(root: Path, name: str, revision: str) -> str:
    if revision == NOW:
        return (root / name).read_text(encoding="utf-8") if (root / name).is_file() else ""
    there = git(root, "ls-tree", "--name-only", revision, "--", name)
    return git(root, "show", f"{revision}:{name}") if there else ""
