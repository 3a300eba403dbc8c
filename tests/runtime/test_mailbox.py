"""A mailbox keeps order and its bounds, and pushes back."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import MailboxFull
from runtime.messaging.message import Envelope, fresh_id
from runtime.messaging.node import Mailbox


def envelope(kind: str = "Add", deadline_s: float = 5.0) -> Envelope:
    return Envelope(
        id=fresh_id(),
        kind="ask",
        to="a",
        sender="b",
        reply_to="main",
        trace=None,
        deadline=time.monotonic() + deadline_s,
        message=kind,
        body=b"",
    )


@given(
    capacity=st.integers(1, 5),
    room=st.integers(0, 5),
    steps=st.lists(st.sampled_from(["put", "get", "get_b", "put_b"]), max_size=60),
)
def test_order_and_bounds_hold_for_any_schedule(capacity, room, steps):
    async def play() -> None:
        box = Mailbox("a", capacity, max_waiters=room)
        puts: list[tuple[Envelope, asyncio.Task[None]]] = []
        taken: list[Envelope] = []
        for step in steps:
            if step.startswith("put"):
                item = envelope("B" if step == "put_b" else "A")
                puts.append((item, asyncio.ensure_future(box.put(item, 5.0))))
            else:
                ready = (lambda e: e.message == "B") if step == "get_b" else (lambda e: True)
                try:
                    async with asyncio.timeout(0):
                        taken.append(await box.get(ready))
                except TimeoutError:
                    pass
            await asyncio.sleep(0)
            assert len(box) <= capacity
            assert sum(not task.done() for _, task in puts) <= room
        taken += box.drain()
        await asyncio.gather(*(task for _, task in puts), return_exceptions=True)
        accepted = [item for item, task in puts if task.exception() is None]
        assert sorted(e.id for e in accepted) == sorted(e.id for e in taken)
        for kind in ("A", "B"):
            assert [e.id for e in taken if e.message == kind] == [e.id for e in accepted if e.message == kind]

    asyncio.run(play())


async def test_a_full_mailbox_pushes_back_until_the_deadline():
    box = Mailbox("a", 1)
    await box.put(envelope(), 1.0)
    with pytest.raises(MailboxFull, match="stayed full"):
        await box.put(envelope(), 0.05)
    waiting = asyncio.ensure_future(box.put(envelope(), 5.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    await box.get(lambda e: True)
    await waiting
    assert len(box) == 1


async def test_a_sender_who_gives_up_leaves_nothing_behind():
    box = Mailbox("a", 1)
    await box.put(envelope(), 1.0)
    sender = asyncio.ensure_future(box.put(envelope("Second"), 5.0))
    await asyncio.sleep(0)
    sender.cancel()
    await asyncio.gather(sender, return_exceptions=True)
    await box.get(lambda e: True)
    assert len(box) == 0
    assert box.drain() == []


def test_whoever_sets_the_clock_moves_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = envelope(deadline_s=5.0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600.0)
    assert 4.0 < waiting.left_s(time.monotonic()) <= 5.0
