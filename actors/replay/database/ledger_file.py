"""The ledger's tables, and how its file is opened: by the one that writes it, and by programs that only look at it.

Every write is one transaction that is on the disk before its caller is answered (WAL with full synchronisation).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from runtime.errors import StoreError

FORM = 10  # raise when a table changes
BUSY_TIMEOUT_S = 60.0  # for another process that holds the file; nothing is lost meanwhile

# `stays` and `stay` are phase segments, as `segment` names a file of stored steps here. Versions are stored as
# `LINEAGE.STEP`. `live` says of an episode that its payloads must stay, `place` that a
# reservoir (or the set of demonstrations) holds it, `tokens` and `surprisal` what its answers add up to. Times are
# monotonic seconds, but for `wall`: seconds since the epoch, for people. `said` is what a closed round's event says.
# A dead segment goes once no reservation up to
# `token` is out. `stay_steps` counts leases that became steps, which are many.
_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE stays(
  idx INTEGER PRIMARY KEY, root INTEGER NOT NULL, phase TEXT NOT NULL, step_limit INTEGER, start TEXT NOT NULL,
  seq_bound INTEGER NOT NULL, cause TEXT NOT NULL, evidence TEXT NOT NULL, wall REAL NOT NULL);
CREATE TABLE lineages(lineage INTEGER PRIMARY KEY, parent TEXT);
CREATE TABLE samplers(name TEXT PRIMARY KEY, version TEXT NOT NULL, heard REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE groups(
  id INTEGER PRIMARY KEY, task TEXT NOT NULL, stay INTEGER NOT NULL, state TEXT NOT NULL, ending TEXT,
  final INTEGER NOT NULL DEFAULT 0, lease INTEGER, oldest TEXT, newest TEXT, ended_step INTEGER);
CREATE INDEX groups_live ON groups(state, id) WHERE state != 'ended';
CREATE INDEX groups_lease ON groups(lease) WHERE lease IS NOT NULL;
CREATE TABLE slots(
  group_id INTEGER NOT NULL, slot INTEGER NOT NULL, state TEXT NOT NULL, faults INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(group_id, slot)) WITHOUT ROWID;
CREATE INDEX slots_free ON slots(group_id, slot) WHERE state = 'free';
CREATE TABLE reservations(
  token INTEGER PRIMARY KEY AUTOINCREMENT, request_id TEXT NOT NULL UNIQUE, seat TEXT NOT NULL, lane TEXT NOT NULL,
  task TEXT NOT NULL, stay INTEGER NOT NULL, group_id INTEGER, round_id INTEGER, slot INTEGER NOT NULL,
  state TEXT NOT NULL, expires REAL NOT NULL, reply BLOB NOT NULL);
CREATE INDEX reservations_out ON reservations(seat, token) WHERE state = 'out';
CREATE TABLE episodes(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL UNIQUE, lane TEXT NOT NULL, task TEXT NOT NULL,
  stay INTEGER NOT NULL, group_id INTEGER, round_id INTEGER, success INTEGER NOT NULL, feasible INTEGER NOT NULL,
  reason TEXT NOT NULL, wall_s REAL NOT NULL, busy_s REAL NOT NULL, ended_step INTEGER NOT NULL,
  tokens INTEGER NOT NULL DEFAULT 0, surprisal REAL NOT NULL DEFAULT 0, place INTEGER,
  live INTEGER NOT NULL DEFAULT 1, score REAL);
CREATE INDEX episodes_group ON episodes(group_id) WHERE group_id IS NOT NULL;
CREATE INDEX episodes_round ON episodes(round_id) WHERE round_id IS NOT NULL;
CREATE INDEX episodes_train ON episodes(seq) WHERE lane = 'train';
CREATE INDEX episodes_demo ON episodes(seq) WHERE lane = 'demo' AND success = 1;
CREATE INDEX episodes_live ON episodes(lane, ended_step) WHERE live = 1 AND place IS NULL;
CREATE INDEX episodes_kept ON episodes(stay, task, place) WHERE place IS NOT NULL;
CREATE TABLE steps(
  token INTEGER NOT NULL, n INTEGER NOT NULL, well_formed INTEGER NOT NULL, ref BLOB NOT NULL,
  PRIMARY KEY(token, n)) WITHOUT ROWID;
CREATE TABLE blobs(
  segment TEXT NOT NULL, at INTEGER NOT NULL, size INTEGER NOT NULL, digest TEXT NOT NULL, refs INTEGER NOT NULL,
  PRIMARY KEY(segment, at, digest)) WITHOUT ROWID;
CREATE INDEX blobs_dead ON blobs(segment, at) WHERE refs <= 0;
CREATE TABLE dead_segments(segment TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE reservoirs(
  stay INTEGER NOT NULL, task TEXT NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY(stay, task)) WITHOUT ROWID;
CREATE TABLE leases(
  id INTEGER PRIMARY KEY AUTOINCREMENT, request_id TEXT NOT NULL UNIQUE, learner TEXT NOT NULL, stay INTEGER NOT NULL,
  state TEXT NOT NULL, made TEXT, final INTEGER NOT NULL DEFAULT 0, success REAL, entropy REAL, figures TEXT,
  seq_bound INTEGER, wall REAL, reply BLOB);
CREATE INDEX leases_stay ON leases(stay, state);
CREATE INDEX leases_out ON leases(id) WHERE state = 'out';
CREATE INDEX leases_trained ON leases(id) WHERE state = 'trained';
CREATE INDEX leases_provisional ON leases(id) WHERE state = 'trained' AND final = 0;
CREATE TABLE stay_steps(stay INTEGER PRIMARY KEY, trained INTEGER NOT NULL);
CREATE TRIGGER step_begun AFTER INSERT ON leases WHEN new.state = 'trained' BEGIN
  INSERT INTO stay_steps VALUES(new.stay, 1) ON CONFLICT DO UPDATE SET trained = trained + 1; END;
CREATE TRIGGER step_made AFTER UPDATE OF state ON leases WHEN new.state = 'trained' AND old.state != 'trained' BEGIN
  INSERT INTO stay_steps VALUES(new.stay, 1) ON CONFLICT DO UPDATE SET trained = trained + 1; END;
CREATE TRIGGER step_undone AFTER UPDATE OF state ON leases WHEN old.state = 'trained' AND new.state != 'trained' BEGIN
  UPDATE stay_steps SET trained = trained - 1 WHERE stay = new.stay; END;
CREATE TABLE evidence(lease INTEGER PRIMARY KEY, wasted TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE solved(task TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE rounds(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, version TEXT NOT NULL, temperature REAL NOT NULL,
  max_new_tokens INTEGER NOT NULL, task_set TEXT NOT NULL, tasks INTEGER NOT NULL, closed INTEGER NOT NULL DEFAULT 0,
  abandoned INTEGER NOT NULL DEFAULT 0, wall REAL, said TEXT);
CREATE INDEX rounds_open ON rounds(id) WHERE closed = 0;
CREATE UNIQUE INDEX rounds_name ON rounds(name) WHERE abandoned = 0;
CREATE TABLE round_tasks(
  round_id INTEGER NOT NULL, n INTEGER NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL,
  faults INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(round_id, n)) WITHOUT ROWID;
CREATE INDEX round_tasks_free ON round_tasks(round_id, n) WHERE state = 'free';
CREATE TABLE wards(
  task TEXT PRIMARY KEY, state TEXT NOT NULL, streak INTEGER NOT NULL, failed_probes INTEGER NOT NULL,
  probe_at REAL NOT NULL, probe INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE shown(
  n INTEGER PRIMARY KEY, task TEXT NOT NULL UNIQUE, faults INTEGER NOT NULL DEFAULT 0,
  imported INTEGER NOT NULL DEFAULT 0, first_tries INTEGER NOT NULL DEFAULT 0, first_wins INTEGER NOT NULL DEFAULT 0,
  first_out INTEGER NOT NULL DEFAULT 0, mixed_tries INTEGER NOT NULL DEFAULT 0, mixed_wins INTEGER NOT NULL DEFAULT 0,
  mixed_out INTEGER NOT NULL DEFAULT 0, policy_tries INTEGER NOT NULL DEFAULT 0,
  policy_wins INTEGER NOT NULL DEFAULT 0, policy_out INTEGER NOT NULL DEFAULT 0);
CREATE TABLE imports(digest TEXT PRIMARY KEY) WITHOUT ROWID;
"""


def connect(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open or make the database; also says whether it is new. Autocommit: transactions are begun by the caller.

    Raises StoreError when the file is no ledger of this form.
    """
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        connection.row_factory = sqlite3.Row
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        form = connection.execute("PRAGMA user_version").fetchone()[0]
        if form == 0:
            # One transaction: a kill between two tables must not leave a file that is neither new nor a ledger.
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={FORM}; COMMIT;")
    except sqlite3.Error as error:
        raise StoreError(f"the ledger {path} can't be opened: {error}") from error
    if form not in (0, FORM):
        connection.close()
        raise StoreError(
            f"the ledger {path} has form {form}, this build reads form {FORM}: finish it with its own build"
        )
    return connection, form == 0


LEDGER = "ledger.sqlite"
BUSY_S = 10.0


@contextmanager
def reading(run: Path) -> Iterator[sqlite3.Connection]:
    """The ledger of the run in folder `run`, read-only, rows by name. Raises StoreError, from the body, too.

    Another build's is refused by its form. Form 0 is a ledger whose tables are still being made.
    """
    path = run / LEDGER
    if not path.is_file():
        raise StoreError(f"{run} holds no ledger: the run ended before it played anything")
    try:
        with closing(_connected(path.resolve())) as database:
            database.row_factory = sqlite3.Row
            form = database.execute("PRAGMA user_version").fetchone()[0]
            if form not in (0, FORM):
                raise StoreError(
                    f"the ledger of {run} has form {form}, this build reads form {FORM}: use its own build"
                )
            yield database
    except sqlite3.Error as error:
        raise StoreError(f"the ledger of {run} can't be read: {error}") from error


def copy_ledger(run: Path, into: Path, again: Sequence[str]) -> None:
    """Copy the ledger of the run in folder `run` into folder `into`, as of before the run was over.

    The rounds in `again`, and those still open, are to be played again. Raises StoreError.
    """
    try:
        with (
            reading(run) as source,
            closing(sqlite3.connect(into / LEDGER, isolation_level=None)) as copy,
        ):
            source.backup(copy)
            copy.execute("DELETE FROM stays WHERE phase = 'done' AND idx = (SELECT max(idx) FROM stays)")
            marks = ", ".join("?" * len(again))
            copy.execute(
                f"UPDATE rounds SET abandoned = 1, closed = 1 WHERE NOT closed OR name IN ({marks})",  # noqa: S608
                again,
            )
            copy.execute("DELETE FROM round_tasks WHERE state = 'free'")
    except sqlite3.Error as error:
        raise StoreError(f"the ledger of {run} can't be copied: {error}") from error


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
