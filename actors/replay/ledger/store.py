"""The one thread that owns the database.

Invariant: a job is answered only after the transaction that holds it is on the disk. Jobs that wait together share one
transaction, each under its own savepoint. So the disk's time is paid once for many jobs. The event loop never waits for
the disk.
"""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from actors.replay.config import LedgerSettings
from actors.replay.database.auditing import BOUND, refuse_unsound
from actors.replay.database.ledger_file import connect
from actors.replay.database.transaction import Transaction
from actors.replay.ledger import demo_tasks, episodes, phases, task_choice, training
from runtime.disk import DiskGate, Log, on_disk, why
from runtime.errors import ComputerRLError, DiskRefuses, MailboxFull, StoreError
from runtime.logs.events import Event
from runtime.program import boot_id

T = TypeVar("T")
Job = Callable[[Transaction], Any]
Logged = list[tuple[Event, dict[str, Any]]]
MAX_WAITING = 4096
MAX_TOGETHER = 128
_REFUSALS = {  # of SQLite, as the system calls them
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
}


class Opened(NamedTuple):
    """What opening came upon."""

    fresh: bool
    released: int
    returned: int
    phase: str
    quarantined: list[str]  # tasks


class Ledger:
    """The database as its thread sees it: blocking, one caller at a time."""

    def __init__(
        self, path: Path, settings: LedgerSettings, clock: Callable[[], float] = time.monotonic, boot: str = ""
    ) -> None:
        self._connection, fresh = connect(path)
        self._clock = clock
        self._boot = boot or boot_id()
        self.tx = Transaction(self._connection, settings)
        (opened,) = self.run([lambda tx: _recover(tx, fresh, self._boot)])
        if isinstance(opened, ComputerRLError):
            self.close()
            raise opened
        self.opened: Opened = opened

    def run(self, jobs: list[Job]) -> list[Any]:
        """Run `jobs` in one durable transaction; a job that is refused leaves no trace and gives its error.

        Raises DiskRefuses, with nothing done, when the disk takes no more, StoreError when the database fails.
        """
        tx, execute = self.tx, self._connection.execute
        tx.now, tx.wall = self._clock(), time.time()
        tx.made_good = False
        results: list[Any] = []
        try:
            execute("BEGIN IMMEDIATE")
            for job in jobs:
                execute("SAVEPOINT job")
                logged = len(tx.events)
                try:
                    results.append(job(tx))
                except ComputerRLError as refusal:
                    execute("ROLLBACK TO job")
                    del tx.events[logged:]
                    results.append(refusal)
                execute("RELEASE job")
            execute("COMMIT")
            if tx.made_good:
                tx.refused_since = None
        except BaseException as error:
            # Whatever ended it, nothing may be logged of a transaction that was not committed.
            tx.events.clear()
            tx.pool = None
            if self._connection.in_transaction:
                execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                number = _REFUSALS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
                what = f"the ledger's database failed: {why(number, str(error))}"
                if number is None:
                    raise StoreError(what) from error
                tx.refused_since = tx.now if tx.refused_since is None else tx.refused_since
                raise DiskRefuses(what) from error
            raise
        return results

    @property
    def changes(self) -> int:
        return self._connection.total_changes

    def close(self) -> None:
        self._connection.close()


def _rebooted(tx: Transaction) -> None:
    """Times of another boot mean nothing on this one's clock: what waited for them is due at once."""
    tx.execute("UPDATE reservations SET expires = ? WHERE state = 'out'", tx.now)
    tx.execute("UPDATE samplers SET heard = ?", tx.now)
    tx.execute("UPDATE wards SET probe_at = ?", tx.now)
    phases.mark(tx)


def _recover(tx: Transaction, fresh: bool, boot: str) -> Opened:
    if tx.meta("boot") != boot:
        _rebooted(tx)
        tx.set_meta("boot", boot)
    if fresh or tx.row("SELECT 1 FROM stays LIMIT 1") is None:
        phases.begin(tx)
    released = returned = 0
    if fresh or tx.meta("incarnation") != tx.settings.incarnation or not tx.settings.incarnation:
        released = episodes.release_all(tx)
        returned = training.give_back_all(tx, "the run was killed") if not fresh else 0
        tx.execute("DELETE FROM samplers")
        tx.execute("DELETE FROM meta WHERE key = 'closed'")
        tx.set_meta("incarnation", tx.settings.incarnation)
        phases.mark(tx)
    bound = max(tx.rules.max_staleness, int(tx.meta(BOUND) or 0))  # a resume may change it
    tx.set_meta(BOUND, str(bound))
    refuse_unsound(tx.connection, strata=demo_tasks.rules_of(tx) is not None)
    return Opened(
        fresh=fresh,
        released=released,
        returned=returned,
        phase=tx.segment().phase,
        quarantined=list(task_choice.quarantined(tx)),
    )


class Store:
    """The database as the event loop sees it. `on_change` hears of every durable change, with what to log.

    While the disk is slow, jobs wait in line, and `log` names the file; beyond `MAX_WAITING` they are pushed back.
    """

    def __init__(
        self, path: Path, settings: LedgerSettings, on_change: Callable[[Logged], None], log: Log | None = None
    ) -> None:
        self._path = path
        self._log = log
        self._gate = DiskGate(path.parent, log)
        self._settings = settings
        self._on_change = on_change
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._jobs: deque[tuple[Job, asyncio.Future[Any]]] = deque()
        self._some = asyncio.Event()
        self._ledger: Ledger | None = None

    async def open(self) -> Opened:
        """Open or make the database. Raises StoreError when it is unreadable or does not add up."""
        self._ledger = await self._call(lambda: Ledger(self._path, self._settings))
        events, self._ledger.tx.events = self._ledger.tx.events, []
        self._on_change(events)
        return self._ledger.opened

    async def do(self, job: Callable[[Transaction], T]) -> T:
        """Run `job` in a transaction and return its result once that is durable.

        Raises the job's own refusal, MailboxFull when too many wait, DiskRefuses while the disk takes no more,
        StoreError when the database fails.
        """
        if len(self._jobs) >= MAX_WAITING:
            raise MailboxFull(f"{MAX_WAITING} jobs wait for the ledger's disk")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((job, future))
        self._some.set()
        return await future

    async def serve(self) -> None:
        """Run jobs until cancelled; the owner spawns this. A failing database ends it with StoreError."""
        assert self._ledger is not None
        ledger = self._ledger
        try:
            while True:
                await self._some.wait()
                batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), MAX_TOGETHER))]
                if not batch:
                    self._some.clear()
                    continue
                await self._run(ledger, batch)
        finally:
            while self._jobs:
                self._jobs.popleft()[1].cancel()

    async def _run(self, ledger: Ledger, batch: list[tuple[Job, asyncio.Future[Any]]]) -> None:
        before = ledger.changes
        try:
            async with on_disk(self._log, self._path.name, f"a transaction of {len(batch)} jobs"):
                results = await self._call(lambda: ledger.run([job for job, _ in batch]))
        except DiskRefuses as refusal:
            self._gate.refuse(str(refusal))
            for _, future in batch:
                if not future.done():
                    future.set_exception(refusal)
            return
        except BaseException as error:
            # Those who wait learn of it here; the actor's supervisor learns of it by the raise.
            for _, future in batch:
                if not future.done():
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            raise
        events, ledger.tx.events = ledger.tx.events, []
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue  # the asker gave up; what it asked for is done all the same
            if isinstance(result, ComputerRLError):
                future.set_exception(result)
            else:
                future.set_result(result)
        if ledger.changes != before:
            self._gate.accept()
            self._on_change(events)

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def close(self) -> None:
        if self._ledger is not None:
            await self._call(self._ledger.close)
            self._ledger = None
        self._thread.shutdown(wait=True)
