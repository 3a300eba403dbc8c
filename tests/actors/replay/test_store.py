"""The thread that owns the database, and asks that wait."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.errors import LedgerError
from actors.replay.actor import Change, ParkingLot
from actors.replay.database.ledger_file import connect
from actors.replay.database.transaction import Transaction
from actors.replay.ledger import store as store_module
from actors.replay.ledger.store import Ledger, Logged, Store
from runtime.errors import MailboxFull, StoreError
from tests.actors.replay.ledger_tools import settings


class Running:
    """A store with its loop."""

    def __init__(self, folder: Path) -> None:
        self.logged: Logged = []
        self.changes = 0
        self.store = Store(folder / "ledger.sqlite", settings(), self.changed)

    def changed(self, logged: Logged) -> None:
        self.logged += logged
        self.changes += 1

    async def __aenter__(self) -> Running:
        await self.store.open()
        self.task = asyncio.ensure_future(self.store.serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.store.close()


def refuse(tx: Transaction) -> None:
    tx.set_meta("refused", "1")
    raise LedgerError("no")


async def test_jobs_share_a_transaction_but_not_their_refusals(tmp_path: Path) -> None:
    async with Running(tmp_path) as running:
        jobs = [running.store.do(lambda tx, n=n: tx.set_meta(f"k{n}", "1")) for n in range(20)]
        results = await asyncio.gather(*jobs, running.store.do(refuse), return_exceptions=True)
        assert [type(result) for result in results] == [type(None)] * 20 + [LedgerError]
        assert running.changes <= 4, "twenty-one jobs, a few transactions"
        assert await running.store.do(lambda tx: (tx.meta("k19"), tx.meta("refused"))) == ("1", None)
        before = running.changes
        await running.store.do(lambda tx: tx.meta("k1"))
        assert running.changes == before, "reading changes nothing"


async def test_a_defect_undoes_its_whole_transaction(tmp_path: Path) -> None:
    async with Running(tmp_path) as running:
        good = running.store.do(lambda tx: tx.set_meta("k", "1"))
        bad = running.store.do(lambda tx: tx.execute("SELECT * FROM nowhere"))
        results = await asyncio.gather(good, bad, return_exceptions=True)
        assert [type(result) for result in results] == [StoreError, StoreError]
        with pytest.raises(StoreError):
            await running.task
    async with Running(tmp_path) as running:
        assert await running.store.do(lambda tx: tx.meta("k")) is None


async def test_too_many_jobs_push_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_WAITING", 3)
    async with Running(tmp_path) as running:
        jobs = [running.store.do(lambda tx: tx.meta("k")) for _ in range(5)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(result) for result in results].count(MailboxFull) == 2


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a database at all, whatever its name says\n" * 50)
    with pytest.raises(StoreError, match="can't be opened"):
        connect(text)
    newer = tmp_path / "newer"
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="form 99"):
        connect(newer)


def test_a_ledger_that_does_not_add_up_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path, settings())
    ledger.run([lambda tx: tx.count("opened")])
    ledger.close()
    with pytest.raises(StoreError, match="opened: 1 counted, 0 in rows"):
        Ledger(path, settings())


async def test_parked_asks_are_answered_in_order_and_by_their_deadline() -> None:
    one = Lot()
    one.work += [1, 2]
    task = asyncio.ensure_future(one.lot.run())
    try:
        for name in "abc":
            one.park(name)
        assert [await one.waits[name] for name in "ab"] == [1, 2]
        assert len(one.lot) == 1
        one.work.append(3)
        one.change.happened()
        assert await one.waits["c"] == 3
        assert await one.lot.park("d", 0.05, "d") is None
        assert len(one.lot) == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_asks_of_a_life_that_is_over_are_given_up_unless_they_are_being_served() -> None:
    one = Lot()
    one.goes_on.clear()
    task = asyncio.ensure_future(one.lot.run())
    try:
        one.park("first life", "seat")
        await one.settle()
        assert one.served == [["first life"]]
        one.park("second", "seat")
        await one.settle()
        assert not one.answered(), "the answer under way may hold work"
        one.goes_on.set()
        assert await one.waits["first life"] is None
        await one.settle()
        one.park("third", "seat")
        assert await one.waits["second"] is None
        one.park("another's")
        await one.settle()
        one.work += [7, 8]
        one.change.happened()
        assert (await one.waits["third"], await one.waits["another's"]) == (7, 8)
        assert one.served[-1] == ["third", "another's"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Lot:
    """A lot whose serving takes no time while it `goes_on`, and the asks that it was given."""

    def __init__(self) -> None:
        self.work, self.change, self.goes_on = list[int](), Change(), asyncio.Event()
        self.goes_on.set()
        self.served: list[list[str]] = []
        self.lot: ParkingLot[str, int] = ParkingLot(self.serve, self.change)
        self.waits: dict[str, asyncio.Future[int | None]] = {}

    async def serve(self, asks: list[str]) -> list[int | None]:
        self.served.append(asks)
        await self.goes_on.wait()
        return [self.work.pop(0) if self.work else None for _ in asks]

    async def settle(self) -> None:
        for _ in range(40):
            await asyncio.sleep(0)

    def park(self, name: str, who: str = "") -> None:
        self.waits[name] = asyncio.ensure_future(self.lot.park(name, 600.0, who or name))

    def answered(self) -> list[str]:
        return [name for name, wait in self.waits.items() if wait.done()]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(["park", "work"]), st.integers(1, 60), st.booleans()), min_size=1, max_size=12)
)
@example([("park", 20, True), ("park", 5, False), ("work", 10, True)])
def test_all_work_there_is_goes_to_the_oldest(moves: list[tuple[str, int, bool]]) -> None:
    """Also where work comes in the same turn as new asks, before any of them is served."""

    async def play() -> None:
        one, made = Lot(), 0
        task = asyncio.ensure_future(one.lot.run())
        for kind, count, settled in moves:
            if kind == "park":
                for _ in range(count):
                    one.park(f"{len(one.waits)}")
            else:
                one.work += range(made, made + count)
                made += count
                one.change.happened()
            if settled:
                await one.settle()
                assert one.answered() == [f"{n}" for n in range(min(made, len(one.waits)))]
        await one.settle()
        assert [wait.result() for wait in one.waits.values() if wait.done()] == list(range(min(made, len(one.waits))))
        task.cancel()
        for wait in one.waits.values():
            wait.cancel()
        await asyncio.gather(task, *one.waits.values(), return_exceptions=True)

    asyncio.run(play())


@pytest.mark.parametrize("turns", [0, 10])
async def test_an_answer_in_the_turn_of_its_deadline_or_later_is_not_lost(turns: int) -> None:
    deadlines: list[asyncio.Timeout] = []

    async def serve(asks: list[str]) -> list[int | None]:
        deadlines[0].reschedule(asyncio.get_running_loop().time())  # fires before whoever waits runs again
        for _ in range(turns):
            await asyncio.sleep(0)
        return [4 for _ in asks]

    class Watched(asyncio.Timeout):
        async def __aenter__(self) -> Self:
            deadlines.append(self)
            return await super().__aenter__()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "timeout", lambda seconds: Watched(asyncio.get_running_loop().time() + seconds))
        lot: ParkingLot[str, int] = ParkingLot(serve, Change())
        task = asyncio.ensure_future(lot.run())
        assert await lot.park("a", 30.0, "a") == 4
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
