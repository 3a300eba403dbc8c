"""Actors that the runtime's tests start, inline and in child processes."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import msgspec

from runtime.actor import Actor, handles
from runtime.disk import refusal
from runtime.errors import ComputerRLError, ConfigError
from runtime.logs.events import declare
from runtime.messaging.message import BlobRef, Done, Message, Request
from runtime.system import ActorSystem
from runtime.waits import ActorStatus

GREETED = declare("example_greeted", "info", text=str)


async def seen(system: ActorSystem, name: str, **wanted: Any) -> ActorStatus:
    """The actor's status once it is as `wanted`."""
    async with asyncio.timeout(30):
        while True:
            for status in await system.statuses():
                if status.name == name and all(getattr(status, field) == value for field, value in wanted.items()):
                    return status
            await asyncio.sleep(0.01)


class NoEngineError(ComputerRLError):
    pass


class CausedError(ComputerRLError):
    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")


class Number(Message):
    n: int


class Text(Message):
    text: str


class Add(Request[Number]):
    n: int


class Total(Request[Number | Text]):
    pass


class Boom(Request[Done]):
    kind: str = "defect"


class Sleep(Request[Done]):
    seconds: float


class Park(Request[Number]):
    seconds: float


class Hold(Request[Done]):
    """Be busy until the file `until` is there; with `block` so that the host's loop stands still."""

    until: str
    block: bool = False


class Stay(Request[Number]):
    """Like `Park`, until `Leave`."""


class Leave(Request[Done]):
    pass


class Via(Request[Number]):
    """Ask `peer` to add `n`."""

    peer: str
    n: int


class Pid(Request[Number]):
    pass


class Greet(Message):
    text: str


class Kept(Message):
    ref: BlobRef


class Keep(Request[Kept]):
    """Store `payload` in the run's segments, and flush."""

    payload: bytes


class Texts(Message):
    texts: list[str]


class Look(Request[Texts]):
    """What these name in the run's segments, as `repr` says it."""

    refs: list[BlobRef]


class Home(Request[Texts]):
    """The run's folder with the main host, and why that machine's disk takes no bytes."""


class Lie(Request[Number]):
    pass


class SpawnBoom(Request[Done]):
    pass


class CounterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    start: int = 0
    fail_starts_file: str = ""
    bad_config: bool = False


class Box:
    def __init__(self):
        self.users = 0

    async def close(self):
        pass


async def make_box() -> Box:
    await asyncio.sleep(0.01)
    return Box()


class Asked(Actor):
    """Counts how often it is asked what it does."""

    times = 0

    def doing(self) -> str:
        self.times += 1
        return str(self.times)

    @handles(Total)
    async def total(self, msg: Total) -> Number | Text:
        return Number(n=self.times)


class Counter(Actor):
    """Adds numbers; knows how to misbehave."""

    async def on_start(self) -> None:
        config = self.config or CounterConfig()
        self.added = 0
        self.most_at_once = self.now_inside = 0
        self.may_leave = asyncio.Event()
        if config.bad_config:
            raise ConfigError("bad setting")
        if config.fail_starts_file and os.path.exists(config.fail_starts_file):  # noqa: ASYNC240
            os.unlink(config.fail_starts_file)
            raise RuntimeError("not yet")
        box = await self.ctx.shared("box", make_box)
        box.users += 1

    @property
    def total(self) -> int:
        return self.added + (self.config or CounterConfig()).start

    def doing(self) -> str:
        return f"total {self.total}"

    @handles(Add)
    async def add(self, msg: Add) -> Number:
        self.now_inside += 1
        self.most_at_once = max(self.most_at_once, self.now_inside)
        before = self.added
        await asyncio.sleep(0)
        self.added = before + msg.n
        self.now_inside -= 1
        return Number(n=self.total)

    @handles(Total)
    async def get_total(self, msg: Total) -> Number | Text:
        return Number(n=self.total) if self.total < 1000 else Text(text="many")

    @handles(Boom)
    async def boom(self, msg: Boom) -> Done:
        match msg.kind:
            case "named":
                raise NoEngineError("no engine")
            case "fault":
                raise CausedError("boot_timeout", "30 s")
        raise RuntimeError("a defect\x1b[2J")

    @handles(Sleep)
    async def sleep(self, msg: Sleep) -> Done:
        await asyncio.sleep(msg.seconds)
        return Done()

    @handles(Park, concurrent=True, limit=3)
    async def park(self, msg: Park) -> Number:
        self.now_inside += 1
        most = self.most_at_once = max(self.most_at_once, self.now_inside)
        await asyncio.sleep(msg.seconds)
        self.now_inside -= 1
        return Number(n=most)

    @handles(Hold)
    async def hold(self, msg: Hold) -> Done:
        while not os.path.exists(msg.until):  # noqa: ASYNC240 - as good as an event from another process
            if msg.block:
                time.sleep(0.01)  # noqa: ASYNC251 - a handler that blocks its loop
            else:
                await asyncio.sleep(0.01)
        return Done()

    @handles(Stay, concurrent=True, limit=3)
    async def stay(self, msg: Stay) -> Number:
        self.now_inside += 1
        self.most_at_once = max(self.most_at_once, self.now_inside)
        await self.may_leave.wait()
        self.now_inside -= 1
        return Number(n=self.most_at_once)

    @handles(Leave)
    async def leave(self, msg: Leave) -> Done:
        self.may_leave.set()
        return Done()

    @handles(Via)
    async def via(self, msg: Via) -> Number:
        return await self.ctx.ref(msg.peer).ask(Add(n=msg.n), timeout_s=5.0)

    @handles(Pid)
    async def pid(self, msg: Pid) -> Number:
        return Number(n=os.getpid())

    @handles(Greet)
    async def greet(self, msg: Greet) -> None:
        self.ctx.log.emit(GREETED, text=msg.text)
        self.added += 1

    @handles(Keep)
    async def keep(self, msg: Keep) -> Kept:
        def stored() -> BlobRef:
            store = self.ctx.segments()
            try:
                ref = store.append(msg.payload)
                store.flush([ref.segment])
                return ref
            finally:
                store.close()

        return Kept(ref=await asyncio.to_thread(stored))

    @handles(Look)
    async def look(self, msg: Look) -> Texts:
        def read() -> list[str]:
            return [repr(one) for one in self.ctx.payloads(msg.refs)]

        return Texts(texts=await asyncio.to_thread(read))

    @handles(Home)
    async def home(self, msg: Home) -> Texts:
        look = await asyncio.to_thread(refusal, self.ctx.home)
        return Texts(texts=[str(self.ctx.home), look])

    @handles(Lie)
    async def lie(self, msg: Lie) -> Number:
        return Done()  # type: ignore[return-value]

    @handles(SpawnBoom)
    async def spawn_boom(self, msg: SpawnBoom) -> Done:
        async def fail() -> None:
            raise RuntimeError("in a task")

        self.ctx.spawn(fail(), "failing")
        return Done()
