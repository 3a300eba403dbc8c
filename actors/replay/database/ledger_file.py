"""A run's ledger for programs that only look at it.

Invariant: looking changes nothing and waits for no writer. Whatever is wrong with the file is one StoreError.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from actors.replay.database.schema import FORM
from runtime.errors import StoreError

LEDGER = "ledger.sqlite"
BUSY_S = 10.0


@contextmanager
def reading(run: Path, *, of_this_form: bool = True) -> Iterator[sqlite3.Connection]:
    """The ledger of the run in folder `run`, read-only, rows by name. Raises StoreError, from the body, too.

    A run of an older build has another form: only what all forms hold alike may be read with `of_this_form` False.
    """
    path = run / LEDGER
    if not path.is_file():
        raise StoreError(f"{run} holds no ledger: the run ended before it played anything")
    try:
        with closing(_connected(path.resolve())) as database:
            database.row_factory = sqlite3.Row
            form = database.execute("PRAGMA user_version").fetchone()[0]
            if of_this_form and form != FORM:
                raise StoreError(f"the ledger of {run} has form {form}, this build reads form {FORM}")
            yield database
    except sqlite3.Error as error:
        raise StoreError(f"the ledger of {run} can't be read: {error}") from error


def taken(run: Path) -> sqlite3.Connection | None:
    """Keep the ledger of the run in folder `run` from its writer until the connection is closed; None if it is busy."""
    connection = sqlite3.connect(run / LEDGER, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        connection.close()
        return None
    return connection


def _connected(path: Path) -> sqlite3.Connection:
    """A connection that has read: where the folder can't be written and there is no writer, as to a file that stays."""
    try:
        return _tried(f"{path.as_uri()}?mode=ro")
    except sqlite3.OperationalError:
        # A ledger in WAL mode wants a file beside it for its readers, which its writer takes along when it ends.
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return _tried(f"{path.as_uri()}?immutable=1")


def _tried(uri: str) -> sqlite3.Connection:
    made = sqlite3.connect(uri, uri=True, timeout=BUSY_S)
    try:
        made.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error:
        made.close()
        raise
    return made
