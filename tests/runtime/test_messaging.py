"""Mailboxes push back in order, an ask is repeated while its peer restarts, and an error travels by its name."""

from __future__ import annotations

import asyncio
import math
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import errors
from runtime.errors import (
    ActorFailed,
    ActorGone,
    ComputerRLError,
    DeadlineExceeded,
    DiskRefuses,
    MailboxFull,
    PayloadLost,
    ProtocolError,
    StoreError,
)
from runtime.messaging.message import Done, Envelope, Request, decode_error, encode, encode_error, fresh_id
from runtime.messaging.node import Mailbox, Node
from runtime.messaging.refs import Ref
from tests.leaping_clock import LeapingClock


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


async def test_a_sender_who_is_let_in_in_the_turn_of_its_deadline_is_not_refused():
    box, free = Mailbox("a", 1), list[bool]()
    box.offer(envelope())
    reader = asyncio.ensure_future(box.get(lambda _: bool(free)))
    sender = asyncio.ensure_future(box.put(envelope(), 0.05))
    await asyncio.sleep(0.01)
    time.sleep(0.06)  # noqa: ASYNC251 - the actor's busy turn ends as the sender's time does
    free.append(True)
    box.poke()
    await reader
    await sender
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


class Wish(Request[Done]):
    pass


class Peer(Ref):
    """Fails as told, then answers; each try takes a second."""

    def __init__(self, *failures: ComputerRLError) -> None:
        self.clock = LeapingClock()
        self._node = SimpleNamespace(clock=self.clock)  # type: ignore[assignment]
        self.failures = list(failures)
        self.tries = 0

    async def ask(self, msg: Request[Any], *, timeout_s: float, trace: str | None = None) -> Any:
        assert (timeout_s, trace) == (7.0, "g1.0")
        self.tries += 1
        self.clock.seconds += 1.0
        if self.failures:
            raise self.failures.pop(0)
        return Done()


TRANSIENT = [
    ActorGone("restarts"),
    ActorFailed("RuntimeError", "a defect"),
    DeadlineExceeded("slow"),
    MailboxFull("busy"),
    StoreError("a slow disk"),
]


async def asked(peer: Peer, give_up_s: float = math.inf) -> list[ComputerRLError]:
    heard: list[ComputerRLError] = []
    answer = await peer.ask_until(Wish(), timeout_s=7.0, give_up_s=give_up_s, trace="g1.0", silent=heard.append)
    assert answer == Done()
    return heard


async def test_what_may_pass_is_asked_again_after_growing_pauses():
    peer = Peer(*TRANSIENT, ActorGone("restarts"), ActorGone("restarts"))
    heard = await asked(peer)
    assert [type(error) for error in heard[:5]] == [type(error) for error in TRANSIENT]
    assert peer.clock.slept == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


async def test_a_refusal_is_raised_at_once():
    peer = Peer(ProtocolError("no such thing"))
    with pytest.raises(ProtocolError):
        await asked(peer)
    assert (peer.tries, peer.clock.slept) == (1, [])


async def test_after_the_limit_the_last_error_is_raised():
    peer = Peer(*[ActorGone(f"restart {number}") for number in range(100)])
    with pytest.raises(ActorGone, match="restart 7"):
        await asked(peer, give_up_s=25.0)
    assert peer.clock.now() <= 25.0 + 1.0, "no pause reaches beyond the limit"


async def test_a_disk_that_refuses_is_waited_for_however_long_that_takes():
    peer = Peer(*[DiskRefuses("full")] * 100, ActorGone("restarts"))
    assert [type(error) for error in await asked(peer, give_up_s=20.0)] == [ActorGone]
    assert peer.clock.now() > 400.0


class Large(Request[Done]):
    payload: bytes


class Uplink:
    """Sends nothing, and has the answer ready."""

    sent: Envelope | None = None

    async def send(self, envelope: Envelope) -> None:
        self.sent = envelope.answer("reply", "Done", encode(Done()))


async def test_what_was_sent_is_not_kept_while_its_answer_is_waited_for(tmp_path: Path) -> None:
    uplink = Uplink()
    node = Node("one", tmp_path, LeapingClock(), SimpleNamespace(), uplink)  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        asked = asyncio.ensure_future(Ref(node, "a", "b").ask(Large(payload=bytes(4 << 20)), timeout_s=30))
        assert tracemalloc.get_traced_memory()[0] > 4 << 20
        await asyncio.sleep(0)  # it runs until it waits for the answer
        assert uplink.sent is not None
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    node.resolve(uplink.sent)
    assert await asked == Done()


def test_any_module_may_declare_an_error_that_travels():
    class BenchBrokeError(ComputerRLError):
        pass

    arrived = decode_error(encode_error(BenchBrokeError("no spindle")), from_handler=True)
    assert (type(arrived), str(arrived)) == (BenchBrokeError, "no spindle")


@pytest.mark.parametrize("name", ["NeverImportedError", "ValueError", "SystemExit", "named", "__builtins__", ""])
def test_an_error_that_this_process_does_not_know_arrives_with_its_name_and_text(name):
    arrived = decode_error(encode((name, "disk 3 is full")), from_handler=True)
    assert isinstance(arrived, ActorFailed)
    assert (arrived.type_name, arrived.text) == (name, "disk 3 is full")
    assert str(arrived) == f"{name}: disk 3 is full"


def test_two_errors_of_one_name_are_refused():
    with pytest.raises(TypeError, match=r"two errors are named PayloadLost: in runtime\.errors and in "):
        type("PayloadLost", (ComputerRLError,), {"__module__": __name__})
    assert errors.named("PayloadLost") is PayloadLost


def test_a_module_that_is_loaded_again_declares_its_errors_again(monkeypatch):
    monkeypatch.setitem(errors._NAMED, "PayloadLost", PayloadLost)
    again = type("PayloadLost", (StoreError,), {"__module__": "runtime.errors", "__qualname__": "PayloadLost"})
    assert errors.named("PayloadLost") is again
