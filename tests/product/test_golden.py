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
    assert unannounced(ROOT) == [], "say in CHANGELOG.md, under Unreleased, what users see and why"


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


def test_words_new_outputs_and_those_that_go_need_no_line(repository: Path) -> None:
    (repository / "README.md").write_text("Other words." + PAGE.format(tpot=7) + PAGE.replace("estimate", "cost"))
    commit(repository)
    (repository / "schema.json").unlink()
    assert unannounced(repository, GOLDEN) == []
