"""A store keeps whole texts by key; a file that is something else is left alone."""

import sqlite3

import pytest

from simulator.errors import InfercastError
from simulator.executors.results_store import AT_ONCE, ResultsStore


def test_texts_are_kept_in_one_file_and_never_replaced(tmp_path):
    path = tmp_path / "sweep.db"
    with ResultsStore.opened(path) as store:
        store.put("a", "infercast ..", "first")
        store.put("a", "infercast ..", "second")
    assert [each.name for each in tmp_path.iterdir()] == ["sweep.db"]
    with ResultsStore.opened(path) as store:
        assert store.known(["a", "b"]) == {"a": "first"}


def test_a_text_is_there_for_others_at_once(tmp_path):
    path = tmp_path / "sweep.db"
    with ResultsStore.opened(path) as one, ResultsStore.opened(path) as other:
        one.put("a", "", "1")
        other.put("b", "", "2")
        assert one.known("ab") == other.known("ab") == {"a": "1", "b": "2"}


def test_many_keys_are_looked_up(tmp_path):
    keys = [str(number) for number in range(2 * AT_ONCE + 1)]
    with ResultsStore.opened(tmp_path / "sweep.db") as store:
        for key in keys[::2]:
            store.put(key, "", f"answer {key}")
        assert store.known(keys) == {key: f"answer {key}" for key in keys[::2]}


def test_a_file_of_another_program_is_left_as_it_is(tmp_path):
    path = tmp_path / "own.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE friends (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(InfercastError, match="it is another program's SQLite file"):
        ResultsStore.opened(path).__enter__()
    assert path.read_bytes() == before


def test_what_is_no_database_or_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no database at all, but text\n" * 99)
    with pytest.raises(InfercastError, match="it is no store"):
        ResultsStore.opened(tmp_path / "notes.txt").__enter__()
    with pytest.raises(InfercastError, match="it cannot be opened"):
        ResultsStore.opened(tmp_path / "none" / "sweep.db").__enter__()
