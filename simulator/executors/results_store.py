"""A file of finished results, from which an interrupted sweep goes on: SQLite, one row for each key."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from simulator.errors import InfercastError, reason

APPLICATION_ID = 0x1F0CA57  # in the header of the file: whose it is
BUSY_S = 60.0  # for which one process waits while another writes
AT_ONCE = 500  # keys in one look-up
TABLE = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, question TEXT, answer TEXT) WITHOUT ROWID"


class ResultsStore:
    """Texts by key, each written at once and whole: what a killed process has stored is there, and nothing half.

    Several processes of one machine may use a file at the same time (SQLite's write-ahead log, which takes a local
    disk). A key that is there already keeps its text.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, ResultsStore.opened(Path(folder) / "sweep.db") as store:
    ...     store.put("key", "infercast estimate ..", "{}")
    ...     store.known(["key", "other"])
    {'key': '{}'}
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[Self]:
        """Open a file, or make it. Raises InfercastError for one that is no such store or cannot be written."""
        try:
            connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)  # each statement is a transaction
        except sqlite3.Error as error:
            raise InfercastError(f"store {path}", f"it cannot be opened ({reason(error)})", "Check the path") from error
        try:
            _prepare(connection, path)
            yield cls(connection, path)
        finally:
            connection.close()

    def known(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the texts of those keys that are there. Raises InfercastError where they cannot be read."""
        wanted, found = list(dict.fromkeys(keys)), dict[str, str]()
        for at in range(0, len(wanted), AT_ONCE):
            some = wanted[at : at + AT_ONCE]
            marks = ",".join("?" * len(some))
            found |= self._rows(f"SELECT key, answer FROM results WHERE key IN ({marks})", some)  # noqa: S608
        return found

    def put(self, key: str, question: str, answer: str) -> None:
        """Store a text; `question` is what people read who open the file.

        Raises InfercastError where it cannot be written, as on a full disk.
        """
        self._rows("INSERT OR IGNORE INTO results VALUES (?, ?, ?)", (key, question, answer))

    def _rows(self, statement: str, values: Sequence[str]) -> list[Any]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            remedy = "Free its disk, or give a new file"
            raise InfercastError(f"store {self._path}", f"it cannot be used ({reason(error)})", remedy) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the table. Raises InfercastError where the file is something else, or cannot be written."""
    try:
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and owner != APPLICATION_ID:
            raise InfercastError(f"store {path}", "it is another program's SQLite file", "Give a new file")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(TABLE)
    except sqlite3.Error as error:
        raise InfercastError(f"store {path}", f"it is no store ({reason(error)})", "Give a new file") from error
