"""Invariant 7: mailboxes, tables, logs, frames and queues have bounds, and reaching one pushes back or fails."""

from __future__ import annotations

import ast
import asyncio
import socket

import pytest

from runtime import segments, waits
from runtime.errors import ActorGone, ComputerRLError, DeadlineExceeded, HostLost, MailboxFull, StoreError
from runtime.hosts import frames
from runtime.hosts.frames import (
    FromMain,
    Link,
    PeersLost,
)
from runtime.logs import writer as logs
from runtime.logs.events import declare
from runtime.messaging import node
from runtime.segments import SegmentStore
from runtime.system import ActorSpec, ActorSystem, HostSpec, RestartPolicy
from tests.invariants.product_code import called, naming, place, tree_of
from tests.runtime.example_actors import Counter, Greet, Hold, Number, Park, Sleep, Total

HOSTS = [HostSpec(name="one")]
SHOUTED = declare("bounds_test_shouted", "info", text=str, items=list)

# Collections without a bound of their own, and what bounds them.
BOUNDED_ELSEWHERE = {
    "runtime/messaging/node.py": "capacity and max_waiters, checked on the way in",
    "runtime/program.py": "one origin per process",
    "runtime/messaging/message.py": "one entry per message class",
    "apis/apps/check/case.py": "one table of the cases there are",
    "apis/tasks/families/__init__.py": "one file of wordings",
    "policy/megatron/flex.py": "one function of no argument",
    "policy/engine/worker.py": "one call per HTTP request, and the server bounds those",
    "policy/engine/scheduler.py": "the engine refuses requests beyond its limit",
    "actors/desktop/providers/ssh.py": "one archive per process",
    "actors/desktop/pool/pool.py": "one request per seat, and the plan bounds the spares",
    "actors/replay/ledger/store.py": "MAX_WAITING, checked on the way in",
}


def is_unbounded(call: ast.Call) -> bool:
    """Whether this makes a queue or a cache that can grow for ever."""
    given = [*call.args, *(k.value for k in call.keywords)]
    limits = [a for a in given if not (isinstance(a, ast.Constant) and not a.value)]  # None and 0 are no limit
    if called(call) == "deque":
        return len(limits) < 1 or (len(given) == 1 and not call.keywords)
    if called(call) in ("Queue", "LifoQueue", "PriorityQueue", "lru_cache"):
        return not limits
    return called(call) == "SimpleQueue"


def caches_all(function: ast.AST) -> bool:
    """Whether a function remembers every result."""
    decorators = getattr(function, "decorator_list", [])
    return any(ast.unparse(d) in ("cache", "functools.cache") for d in decorators)


@pytest.mark.slow
def test_nothing_grows_without_bound_in_the_code():
    """A deque, queue or cache has a bound in its constructor, or a reason above."""
    found = [
        place(path, item)
        for path in naming("cache", "deque", "Queue")
        for item in ast.walk(tree_of(path))
        if caches_all(item) or (isinstance(item, ast.Call) and is_unbounded(item))
    ]
    assert [where for where in found if where.split(":")[0] not in BOUNDED_ELSEWHERE] == []


@pytest.mark.slow
@pytest.mark.parametrize("host", ["main", "one"])
async def test_nothing_grows_without_bound_in_mailboxes(tmp_path, host):
    async with ActorSystem(tmp_path, hosts=HOSTS) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host=host, mailbox=10))
        ref = system.ref("a")
        end = tmp_path / "end"
        busy = asyncio.ensure_future(ref.ask(Hold(until=str(end)), timeout_s=60))
        await asyncio.sleep(0.2)
        flood = [asyncio.ensure_future(ref.tell(Greet(text="x"), timeout_s=4)) for _ in range(300)]
        await asyncio.sleep(0.2)
        (status,) = await system.statuses()
        assert status.mailbox <= 10
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert not busy.done()
        assert sum(result is None for result in results) <= 10
        assert {type(result) for result in results if result is not None} <= {MailboxFull, DeadlineExceeded}
        assert any(isinstance(result, MailboxFull) for result in results)
        end.touch()
        await busy
        assert await ref.ask(Total(), timeout_s=30) == Number(n=10)


async def test_nothing_grows_without_bound_in_waiting_rooms(tmp_path):
    """Senders outside a full mailbox are bounded as well; those beyond are refused at once."""
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, mailbox=5))
        ref = system.ref("a")
        busy = asyncio.ensure_future(ref.ask(Sleep(seconds=0.5), timeout_s=20))
        await asyncio.sleep(0.05)
        crowd = [asyncio.ensure_future(ref.tell(Greet(text="x"), timeout_s=30)) for _ in range(2000)]
        await asyncio.sleep(0.2)
        assert sum(not task.done() for task in crowd) <= 1024
        assert sum(task.done() and isinstance(task.exception(), MailboxFull) for task in crowd) >= 900
        await busy
        await asyncio.gather(*crowd, return_exceptions=True)


@pytest.mark.parametrize("host", ["main", "one"])
async def test_nothing_grows_without_bound_in_reply_tables(tmp_path, host):
    async with ActorSystem(tmp_path, hosts=HOSTS) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host=host))
        for _ in range(4):
            asks = [system.ref("a").ask(Park(seconds=0.15), timeout_s=0.05) for _ in range(50)]
            results = await asyncio.gather(*asks, return_exceptions=True)
            assert {type(result) for result in results} <= {DeadlineExceeded}
            for name in ("nobody", "nobody/2"):
                with pytest.raises(ActorGone):
                    await system.ref(name).ask(Total(), timeout_s=1)
        assert len(system._node._pending) == 0
        assert waits.waits_now() == []


async def test_nothing_grows_without_bound_in_asks_under_way(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "MAX_PENDING", 20)
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter))
        asks = [system.ref("a").ask(Sleep(seconds=0.05), timeout_s=0.3) for _ in range(40)]
        results = await asyncio.gather(*asks, return_exceptions=True)
        assert sum(isinstance(result, MailboxFull) for result in results) == 20


async def test_nothing_grows_without_bound_in_frames(monkeypatch):
    monkeypatch.setattr(frames, "MAX_UNSENT_BYTES", 1 << 20)
    ours, theirs = socket.socketpair()
    link: Link = await Link.of_socket(ours, FromMain)
    frame = PeersLost(names=["x" * 100_000], reason="")

    def flood() -> None:
        for _ in range(1000):
            link.write(frame)

    with pytest.raises(HostLost, match="unread"):
        flood()
    await link.close()
    theirs.close()


def test_nothing_grows_without_bound_in_logs(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 100_000)
    log = logs.host_log(tmp_path, "a")
    for _ in range(100):
        log.emit(SHOUTED, text="\x1b" * 10**6, items=["y" * 10**5] * 1000)
    log.close()
    files = list((tmp_path / "logs").iterdir())
    assert len(files) == 2
    assert max(path.stat().st_size for path in files) < 100_000 + 500_000


def test_nothing_grows_without_bound_in_segments(tmp_path):
    store = SegmentStore(tmp_path, "w", max_bytes=1000)
    for n in range(100):
        store.append(bytes([n]) * 50)
    assert max(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 1000 + 74
    with pytest.raises(StoreError):
        store.append(bytes(segments.MAX_BLOB_BYTES + 1))
    store.close()


async def test_nothing_grows_without_bound_in_restarts(tmp_path):
    async with ActorSystem(tmp_path) as system:
        policy = RestartPolicy(max_restarts=2, first_delay_s=0.0)
        with pytest.raises(ComputerRLError):
            await system.spawn(ActorSpec(name="a", factory="tests.runtime.example_actors:Number", restart=policy))
        async with asyncio.timeout(60):
            await system.failed()
        assert "a" not in system._node.mailboxes
