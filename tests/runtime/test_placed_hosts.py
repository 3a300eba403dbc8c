"""Hosts on other machines: one life at a time is talked to, and both sides of a cut stop by themselves."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from runtime.errors import ActorGone
from runtime.hosts import ray as engine
from runtime.hosts.door import MARK
from runtime.hosts.frames import PlaceHost
from runtime.logs.reader import read_logs
from runtime.program import check_origin
from runtime.segments import read_blob
from runtime.system import ActorSpec, ActorSystem, HostSpec, PlacerSpec, RestartPolicy
from tests.heard import gone, until
from tests.runtime.example_actors import Add, Counter, CounterConfig, Greet, Home, Keep, Look, Pid

# ruff: noqa: ASYNC240 - /proc answers at once, and tells of no changes


def placed(tmp_path: Path, *arguments: str, wait_s: float = 30.0, **host: object) -> ActorSystem:
    hosts = [HostSpec(**{"name": "away", "place": {"desktops": 4}} | host)]
    placer = PlacerSpec(module="tests.runtime.local_placer", arguments=arguments, passes=("RAY_",), wait_s=wait_s)
    return ActorSystem(tmp_path, hosts=hosts, placer=placer)


def lines(tmp_path: Path, event: str) -> list[dict]:
    return list(read_logs(tmp_path, event=event))


async def counter(system: ActorSystem, **config: object) -> int:
    """The actor `a` on the host `away`; its process."""
    await system.spawn(ActorSpec(name="a", factory=Counter, config=CounterConfig(**config), host="away"))
    return (await system.ref("a").ask(Pid(), timeout_s=30)).n


async def again_from(system: ActorSystem) -> int:
    """The process of the host's next life."""
    return (await system.ref("a").ask_until(Pid(), timeout_s=5, give_up_s=60)).n


@pytest.mark.slow
async def test_an_actor_elsewhere_answers_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_A_SHELL", "1")
    monkeypatch.setenv("NEEDED_THERE", "2")
    async with placed(tmp_path, passes=("NEEDED_THERE",), heartbeat_s=1.0, counts_below=True) as system:
        pid = await counter(system, start=3)
        assert pid != os.getpid()
        assert (await system.ref("a").ask(Add(n=2), timeout_s=30)).n == 5
        assert set(system.cpu_placed()) == {"away"}
        await until(lambda: system.cpu_placed()["away"][0] > 0.05)
        assert not system.cpu_placed()["away"][1], "this placer places it on this very machine"
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert b"NEEDED_THERE=2" in variables
        assert not any(one.startswith(b"SECRET_OF_A_SHELL") for one in variables)
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"--fd" not in command
        assert [(one.name, one.machine) for one in await system.statuses()] == [("a", "m0")]
        folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        assert folder != tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        assert f"--run-dir={folder / tmp_path.name}".encode() in command.split(b"\0")
    assert gone(pid)
    assert not folder.exists()
    (started,) = lines(tmp_path, "host_started")
    assert (started["machine"], started["pid"]) == ("m0", pid)
    assert not lines(tmp_path, "host_lost")


@pytest.mark.slow
async def test_what_it_stores_reads_and_says_is_in_the_run_s_folder(tmp_path):
    run = tmp_path / "run"
    async with placed(run) as system:
        await counter(system)
        actor = system.ref("a")
        refs = [(await actor.ask(Keep(payload=payload), timeout_s=20)).ref for payload in (b"one", b"two" * 9)]
        assert [ref.segment for ref in refs] == ["a-000000.seg", "a-000001.seg"], "each writer begins a file of its own"
        assert [read_blob(run / "segments", ref) for ref in refs] == [b"one", b"two" * 9]
        lost = msgspec.structs.replace(refs[0], digest="00" * 16)
        found = (await actor.ask(Look(refs=[*refs, lost]), timeout_s=20)).texts
        assert found[:2] == [repr(b"one"), repr(b"two" * 9)]
        assert found[2].startswith("PayloadLost")
        assert (await actor.ask(Home(), timeout_s=20)).texts == [str(run), ""]
        await actor.tell(Greet(text="hello"))
        await until(lambda: lines(run, "example_greeted"))
    assert [line["actor"] for line in lines(run, "example_greeted")] == ["a"]
    assert {line["actor"] for line in lines(run, "host_stopping")} == {"host/away"}


async def test_a_machine_without_the_run_s_folder_fails_the_run(tmp_path):
    async with placed(tmp_path, restart=RestartPolicy(max_restarts=0)) as system:
        (tmp_path / MARK).write_text("of another run")
        system._host("away")
        async with asyncio.timeout(60):
            assert str(tmp_path) in await system.failed()


@pytest.mark.slow
async def test_a_killed_life_comes_back(tmp_path):
    async with placed(tmp_path) as system:
        pid = await counter(system)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: gone(pid))
        again = await again_from(system)
        assert again != pid
    (lost,) = lines(tmp_path, "host_lost")
    assert (lost["exit_code"], lost["machine"]) == (-signal.SIGKILL, "m0")


@pytest.mark.slow
async def test_a_lost_placer_ends_neither_the_run_nor_what_is_asked_later(tmp_path):
    async with placed(tmp_path) as system:
        pid = await counter(system)
        folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        placer = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(placer, signal.SIGKILL)
        await until(lambda: gone(pid))  # what it has placed ends with it
        assert await again_from(system) != pid
        assert len(lines(tmp_path, "placer_lost")) == 1
        assert not folder.exists()  # the next process has removed what a killed one left


@pytest.mark.slow
async def test_a_wait_for_machines_says_what_is_wanted_and_ends_by_its_limit(tmp_path):
    async with placed(tmp_path, "--room=2", wait_s=6.0) as system:
        spawned = asyncio.ensure_future(counter(system))
        wanted = "away wait for a machine with desktops 4 free: m0 has desktops 2 of 2"
        await until(lambda: system.waits() == [wanted])
        (status,) = await system.statuses()
        assert (status.state, status.doing) == ("starting", "its host waits for a machine")
        async with asyncio.timeout(60):
            assert f"cluster.wait_s: 6 s are over, and {wanted}" in await system.failed()
        with pytest.raises(Exception, match="wait_s"):
            await spawned


async def test_what_no_restart_helps_fails_the_run_with_its_reason(tmp_path):
    async with placed(tmp_path, "--unusable=there is no such cluster") as system:
        system._host("away")
        async with asyncio.timeout(60):
            assert await system.failed() == "there is no such cluster"


class Proxy:
    """Passes connections on to `target` until it is cut; then nothing goes through, and nothing is closed."""

    def __init__(self) -> None:
        self.target = ("", 0)
        self.cut = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65_536):
            if self.cut.is_set():
                await asyncio.sleep(3600)
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self.target)
        self._writers += [writer, there_writer]
        for pump in (self._pump(reader, there_writer), self._pump(there_reader, writer)):
            task = asyncio.ensure_future(pump)
            self._tasks.add(task)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Proxy, int]]:
    proxy = Proxy()
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await proxy.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reached", "gives_up"),
    [
        pytest.param(True, False, id="the placer reaches it"),
        pytest.param(False, False, id="the placer is cut off, too"),
        pytest.param(False, True, id="the placer gives it up at once", marks=pytest.mark.proof),
    ],
)
async def test_both_sides_of_a_cut_stop_and_the_host_comes_back(tmp_path, monkeypatch, reached, gives_up):
    monkeypatch.setattr("runtime.hosts.process.STOP_S", 1.0)
    monkeypatch.setattr("runtime.hosts.process.MARGIN_S", 0.5)
    deaf = tmp_path / "deaf"
    async with proxied() as (proxy, port):
        limits = {"heartbeat_s": 1.0, "silent_limit_s": 4.0}
        told = [f"--via={port}", f"--deaf={deaf}", *(["--gives-up"] if gives_up else [])]
        async with placed(tmp_path, *told, **limits) as system:
            assert system._placer is not None
            await until(lambda: system._placer.door.address)
            host, _, at = system._placer.door.address.rpartition(":")
            proxy.target = (host, int(at))
            pid = await counter(system)
            proxy.cut.set()
            if not reached:
                deaf.touch()
            with pytest.raises(ActorGone, match="silent"):
                await system.ref("a").ask(Add(n=1), timeout_s=20)
            proxy.cut.clear()
            again = await again_from(system)
            assert again != pid
            assert gone(pid)  # before another life was begun
            deaf.unlink(missing_ok=True)
    (lost,) = lines(tmp_path, "host_lost")
    # Both sides give up after the same silence: either its process kills the host, or it has just stopped by itself.
    assert lost["exit_code"] in ((-signal.SIGKILL, 0) if reached else (None,))
    assert "was silent" in lost["cause"]


def test_a_host_whose_loop_stands_still_in_a_cut_is_killed_by_its_own_watch():
    script = "import os, time; from runtime.hosts.child import DeadMan; os.setsid(); d = DeadMan(0.2, 0.1)"
    script += "; time.sleep(90)"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": check_origin().root}, check=False
    )
    assert done.returncode == -signal.SIGKILL


ORDER = PlaceHost(
    life="next", run="run", names=[], families=[], root="/", arguments=[], env={}, ticket=b"", resources={}
)


class Method:
    def __init__(self, answer: Future[Any]) -> None:
        self.answer = answer

    def remote(self) -> Any:
        return SimpleNamespace(future=lambda: self.answer)


class Ray:
    """Keepers that come up once no machine is excluded."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=OSError, ActorUnavailableError=ConnectionError)
        self.orders, self.ended = list[dict[str, Any]](), list[Any]()

    def remote(self, _: Any) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda _: self.made(options)))

    def made(self, options: dict[str, Any]) -> Any:
        self.orders.append(options)
        where, watch = Future[Any](), Future[Any]()
        watch.set_result(([], 0))
        if "label_selector" not in options:
            where.set_result({"machine": "m", "node": "n", "pid": 7})
        return SimpleNamespace(where=Method(where), watch=Method(watch))

    def kill(self, made: Any, *, no_restart: bool) -> None:
        self.ended.append(made)


async def test_a_host_goes_to_a_machine_that_is_no_longer_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "AGAIN_S", 0.01)
    ray, there = engine.RayEngine(argparse.Namespace()), list[tuple[str, int]]()
    fake = ray._ray = Ray()
    ray._suspect, ray._nodes = {"lost"}, {"lost": "n"}
    placing = asyncio.create_task(ray.place(ORDER, lambda *where: there.append(where), lambda _: None))
    await asyncio.sleep(0.05)
    assert [order["label_selector"] for order in fake.orders] == [{engine.NODE_LABEL: "!in(n)"}]
    ray._suspect.clear()
    assert await asyncio.wait_for(placing, 60) == 0
    assert there == [("m", 7)]
    assert len(fake.orders) == len(fake.ended) == 2
    assert not ray._processes
