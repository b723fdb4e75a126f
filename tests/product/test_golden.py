"""What users are shown changes only with a line in CHANGELOG.md: outputs of README and pages, options, schemas.

That the pages show what commands print is held, and refreshed, by test_readme.py.
"""

from pathlib import Path

import pytest

from tests.support.golden import git, unannounced
from tests.support.paths import ROOT

PAGE = "Some words.\n\n```console\n$ infercast estimate\nTPOT {tpot} ms\n```\n"
GOLDEN = ["README.md", "schema.json"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked archive has no history")
def test_a_change_of_what_is_shown_has_its_line_in_the_changelog() -> None:
    assert unannounced(ROOT) == [], "say in CHANGELOG.md what users see: in the same commit, or in one for itself"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    for name, text in {"README.md": PAGE.format(tpot=7), "schema.json": "{}", "CHANGELOG.md": "# Changes\n"}.items():
        (tmp_path / name).write_text(text)
    commit(tmp_path)
    return tmp_path


def commit(repository: Path) -> None:
    git(repository, "add", "--all")
    git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--no-verify", "-m", "a")


@pytest.mark.parametrize("committed", [False, True])
def test_a_figure_and_a_schema_that_change_without_a_line_are_found(repository: Path, committed: bool) -> None:
    (repository / "README.md").write_text(PAGE.format(tpot=8))
    (repository / "schema.json").write_text('{"a": 1}')
    if committed:
        commit(repository)
        (repository / "README.md").write_text("Other words." + PAGE.format(tpot=8))
        commit(repository)
    assert sorted(unannounced(repository, GOLDEN)) == ["README.md: infercast estimate", "schema.json: all of it"]
    (repository / "CHANGELOG.md").write_text("# Changes\n- TPOT is 8 ms.\n")
    assert unannounced(repository, GOLDEN) == []
    commit(repository)
    assert unannounced(repository, GOLDEN) == []


def test_a_line_for_another_change_announces_none_before_it(repository: Path) -> None:
    (repository / "README.md").write_text(PAGE.format(tpot=8))
    commit(repository)
    (repository / "CHANGELOG.md").write_text("# Changes\n- Something else is faster.\n")
    (repository / "fast.py").write_text("pass\n")
    git(repository, "add", "--all")
    for _ in ("not committed", "committed"):
        assert unannounced(repository, GOLDEN) == ["README.md: infercast estimate"]
        commit(repository)
        (repository / "fast.py").write_text("pass\npass\n")


def test_a_commit_that_a_shallow_clone_begins_with_is_not_judged(repository: Path, tmp_path: Path) -> None:
    for tpot in (8, 9):
        (repository / "README.md").write_text(PAGE.format(tpot=tpot))
        commit(repository)
    clones = [tmp_path / depth for depth in "12"]
    for clone in clones:
        git(repository, "clone", "--quiet", f"--depth={clone.name}", repository.as_uri(), str(clone))
    assert [unannounced(clone, GOLDEN) for clone in clones] == [[], ["README.md: infercast estimate"]]


def test_words_new_outputs_and_those_that_go_need_no_line(repository: Path) -> None:
    (repository / "README.md").write_text("Other words." + PAGE.format(tpot=7) + PAGE.replace("estimate", "cost"))
    commit(repository)
    (repository / "schema.json").unlink()
    assert unannounced(repository, GOLDEN) == []
