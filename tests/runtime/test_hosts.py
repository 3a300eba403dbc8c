"""Frames are bounded, hosts run the same code and die with their parent, Ctrl-C stops in two steps."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from runtime import program
from runtime.actor import Actor, handles
from runtime.control import connect_unix, listen_unix
from runtime.errors import ActorFailed, ConfigError, HostLost, ProtocolError, StoreError
from runtime.hosts.frames import MAX_FRAME_BYTES, FromMain, Link, PeersLost, StopHost
from runtime.logs.reader import read_logs
from runtime.messaging.message import Done, Request
from runtime.program import TOGETHER_S
from runtime.segments import SegmentStore, read_blob
from runtime.system import ActorSpec, ActorSystem, HostSpec, RestartPolicy, run
from tests.heard import gone
from tests.runtime.example_actors import Counter, Total

ROOT = Path(__file__).resolve().parents[2]


async def linked() -> tuple[Link, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return await Link.of_socket(ours, FromMain), theirs


async def test_frames_arrive_as_sent():
    a, b = socket.socketpair()
    left, right = await Link.of_socket(a, FromMain), await Link.of_socket(b, FromMain)
    frames = [PeersLost(names=["x"] * n, reason="r") for n in range(50)]
    for frame in frames:
        await left.send(frame, 1.0)
    assert [await right.receive() for _ in frames] == frames
    await left.close()
    assert await right.receive() is None
    await right.close()
    with pytest.raises(HostLost, match="closed"):
        right.write(StopHost())


@pytest.mark.parametrize(
    "raw",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x02" + msgspec.msgpack.encode([1]),
        (n := msgspec.msgpack.encode({"type": "Unknown"})) and len(n).to_bytes(4, "big") + n,
    ],
)
async def test_what_is_no_frame_is_refused(raw):
    link, theirs = await linked()
    await asyncio.get_running_loop().sock_sendall(theirs, raw)
    with pytest.raises(ProtocolError):
        await link.receive()
    await link.close()
    theirs.close()


async def test_half_a_frame_is_the_end():
    link, theirs = await linked()
    await asyncio.get_running_loop().sock_sendall(theirs, b"\x00\x00\x01\x00abc")
    theirs.close()
    assert await link.receive() is None
    await link.close()


async def test_a_peer_that_does_not_read_is_given_up():
    link, theirs = await linked()
    with pytest.raises(HostLost, match="did not read"):
        await link.send(PeersLost(names=["x" * (4 << 20)], reason=""), 0.1)
    await link.close()
    theirs.close()


def test_sockets_in_deep_folders(tmp_path):
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    server = listen_unix(folder / "s.sock")
    connect_unix(folder / "s.sock", 1.0).close()
    with pytest.raises(ConfigError, match="running process"):
        listen_unix(folder / "s.sock")
    server.close()
    listen_unix(folder / "s.sock").close()  # what a killed process left is taken over


def test_an_intruding_package_is_named(tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "__init__.py").touch()
    script = "from runtime.program import check_origin; check_origin()"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([sys.executable, "-P", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"package policy comes from {tmp_path / 'policy'}" in done.stderr


def test_the_build_follows_what_both_sides_share(tmp_path):
    for package in program.PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    before = program._build(tmp_path)
    (tmp_path / "apis" / "actions.py").write_text("x = 1\n")
    assert program._build(tmp_path) == before
    (tmp_path / "apis" / "messages.py").write_text("x = 1\n")
    assert program._build(tmp_path) != before
    assert Path(program.check_origin().root) == ROOT


async def test_a_child_of_another_build_is_refused(tmp_path, monkeypatch):
    real = program.check_origin()
    other = program.Origin(real.root, "0" * 16)
    monkeypatch.setattr("runtime.hosts.process.check_origin", lambda: other)
    async with ActorSystem(tmp_path) as system:
        system._host("one")
        async with asyncio.timeout(60):
            assert "runs other code" in await system.failed()


async def test_a_child_that_can_not_start_fails_the_system_and_its_output_is_logged(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "msgspec.py").write_text("raise SystemExit('broken\\x1b installation')\n")
    hosts = [
        HostSpec(
            name="one",
            env={"PYTHONPATH": str(tmp_path / "bad")},
            restart=RestartPolicy(max_restarts=1, first_delay_s=0.01),
        )
    ]
    async with ActorSystem(tmp_path, hosts=hosts) as system:
        system._host("one")
        async with asyncio.timeout(60):
            assert "host one failed 2 times" in await system.failed()
    assert {line["line"] for line in read_logs(tmp_path, event="host_output")} == {"broken\\x1b installation"}


SCRIPT = """
import asyncio, sys
from pathlib import Path
from runtime.program import stop_event
from runtime.system import ActorSpec, ActorSystem, HostSpec, run
from tests.runtime.example_actors import Counter, Pid

async def main():
    hosts = [HostSpec(name="one")]
    with stop_event() as stop:
        async with ActorSystem(Path(sys.argv[1]), hosts=hosts) as system:
            await system.spawn(ActorSpec(name="a", factory=Counter, host="one"))
            print((await system.ref("a").ask(Pid(), timeout_s=30)).n, flush=True)
            await stop.wait()
            if "hang" in sys.argv:
                print("hanging", flush=True)
                await asyncio.sleep(60)
    print("clean", flush=True)

run(main())
"""


def start(tmp_path: Path, *args: str) -> tuple[subprocess.Popen[str], int]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *args], stdout=subprocess.PIPE, text=True, env=env
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def ended(pid: int) -> bool:
    """Whether a process ends within seconds."""
    for _ in range(100):
        if gone(pid):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_killed_parent_takes_its_hosts_with_it(tmp_path):
    parent, child = start(tmp_path)
    assert os.getpgid(child) == child
    parent.kill()
    parent.communicate()
    assert ended(child)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_cleanly_and_its_like_beside_it_too(tmp_path, number):
    parent, child = start(tmp_path)
    parent.send_signal(number)
    parent.send_signal(signal.SIGTERM)
    out, _ = parent.communicate(timeout=20)
    assert (out, parent.returncode) == ("clean\n", 0)
    assert ended(child)
    assert not (tmp_path / "control.sock").exists()


@pytest.mark.slow
def test_a_later_signal_stops_at_once(tmp_path):
    parent, child = start(tmp_path, "hang")
    parent.send_signal(signal.SIGINT)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "hanging\n"
    time.sleep(TOGETHER_S + 0.1)
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=5)
    assert parent.returncode == 130
    assert ended(child)


class Pool:
    """Counts how often it was made and closed."""

    made = closed = 0

    @classmethod
    async def make(cls) -> Pool:
        await asyncio.sleep(0.01)
        cls.made += 1
        return cls()

    async def close(self) -> None:
        Pool.closed += 1


class Defect(Request[Done]):
    pass


class Seat(Actor):
    """Shares a pool, runs a task, fails on demand, and logs its ends in `ended`."""

    ended: list[str] = []
    stubborn: asyncio.Event | None = None  # the task ends no sooner than this
    bad_stop = False

    async def on_start(self) -> None:
        self.pool = await self.ctx.shared("pool", Pool.make)
        self.ctx.spawn(self._forever(), "forever")

    async def _forever(self) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            if self.stubborn is not None:
                await self.stubborn.wait()
            self.ended.append(f"task {self.ctx.name}")

    async def on_stop(self) -> None:
        self.ended.append(f"stop {self.ctx.name}")
        if self.bad_stop:
            raise RuntimeError("bad stop")

    def doing(self) -> str:
        raise RuntimeError("no idea")

    @handles(Defect)
    async def defect(self, msg: Defect) -> Done:
        raise KeyError("defect")


@pytest.fixture(autouse=True)
def fresh():
    Pool.made = Pool.closed = 0
    Seat.ended, Seat.stubborn, Seat.bad_stop = [], None, False


def seats(count: int, **changes) -> list[ActorSpec]:
    quick = RestartPolicy(first_delay_s=0.01)
    return [ActorSpec(name=f"seat/{n}", factory=Seat, restart=quick, **changes) for n in range(count)]


async def test_shared_objects_are_made_and_closed_once(tmp_path):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(*seats(5))
        with pytest.raises(ActorFailed):
            await system.ref("seat/0").ask(Defect(), timeout_s=30)
        assert (Pool.made, Pool.closed) == (1, 0)
    assert (Pool.made, Pool.closed) == (1, 1)


async def test_every_life_ends_its_tasks_before_on_stop(tmp_path):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(*seats(1))
        assert "doing() failed" in (await system.statuses())[0].doing
        for _ in range(2):
            with pytest.raises(ActorFailed):
                await system.ref("seat/0").ask(Defect(), timeout_s=30)
    assert Seat.ended in (["task seat/0", "stop seat/0"] * lives for lives in (2, 3))
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


async def test_what_does_not_stop_in_time_is_named(tmp_path):
    Seat.stubborn, Seat.bad_stop = asyncio.Event(), True
    async with ActorSystem(tmp_path) as system:
        await system.spawn(*seats(1, stop_timeout_s=0.05))
    (outlives,) = read_logs(tmp_path, event="task_outlives")
    assert outlives["tasks"] == ["seat/0:forever"]
    (bad,) = read_logs(tmp_path, event="stop_failed")
    assert bad["error"] == "RuntimeError: bad stop"
    Seat.stubborn.set()
    async with asyncio.timeout(30):
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert Seat.ended == ["stop seat/0", "task seat/0"]


async def test_spawning_needs_a_running_system(tmp_path):
    system = ActorSystem(tmp_path)
    with pytest.raises(ConfigError, match="not running"):
        await system.spawn(*seats(1))
    await system.start()
    await system.stop()
    await system.stop()


async def test_a_factory_that_is_not_there(tmp_path):
    async with ActorSystem(tmp_path) as system:
        with pytest.raises(ActorFailed, match="can't load nowhere:Actor"):
            await system.spawn(ActorSpec(name="a", factory="nowhere:Actor"))


@pytest.mark.slow
def test_it_runs_on_uvloop_and_leaves_no_descriptors(tmp_path):
    async def once(folder: Path) -> str:
        async with ActorSystem(folder) as system:
            await system.spawn(ActorSpec(name="a", factory=Counter), ActorSpec(name="b", factory=Counter, host="one"))
            await system.ref("b").ask(Total(), timeout_s=30)
        return type(asyncio.get_running_loop()).__module__

    assert run(once(tmp_path / "0")).startswith("uvloop")
    before = sorted(os.listdir("/proc/self/fd"))
    run(once(tmp_path / "1"))
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_full_disk_refuses_the_payload_and_keeps_the_rest(tmp_path, monkeypatch):
    store = SegmentStore(tmp_path, "w")
    before = store.append(b"before")
    real, budget = os.pwrite, [30]

    def short(fd, data, offset):
        if budget[0] <= 0:
            raise OSError(28, "No space left on device")
        budget[0] -= 30
        return real(fd, data[:30], offset)

    monkeypatch.setattr("runtime.segments.os.pwrite", short)
    with pytest.raises(StoreError, match="No space left"):
        store.append(b"x" * 100)
    monkeypatch.setattr("runtime.segments.os.pwrite", real)
    after = store.append(b"after")
    store.close()
    SegmentStore(tmp_path, "w").close()
    assert [read_blob(tmp_path, ref) for ref in (before, after)] == [b"before", b"after"]
