"""Hosts that a real Ray has placed. COMPUTERRL_TEST_RAY=1 runs this where `make ray` has installed it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runtime.logs.reader import read_logs
from runtime.system import ActorSpec, ActorSystem, HostSpec, PlacerSpec
from tests.cluster.machines import gone
from tests.runtime.example_actors import Add, Counter, Greet, Pid

pytestmark = [
    pytest.mark.skipif(os.environ.get("COMPUTERRL_TEST_RAY") != "1", reason="COMPUTERRL_TEST_RAY=1 asks for it"),
    pytest.mark.timeout(360),
]


STARTS_S = 240.0  # of a whole Ray and its workers, on a busy machine


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@asynccontextmanager
async def placed(run: Path) -> AsyncIterator[ActorSystem]:
    """Two hosts on a Ray that is started for them; actors `a/0` and `a/1`."""
    need = {"CPU": 1.0, "desktops": 30.0}
    hosts = [HostSpec(name=f"away/{k}", place=need, start_timeout_s=STARTS_S) for k in range(2)]
    has = json.dumps({name: 2 * amount for name, amount in need.items()})
    placer = PlacerSpec(arguments=("--address=local", f"--resources={has}"), wait_s=STARTS_S)
    async with ActorSystem(run, hosts=hosts, placer=placer) as system:
        await system.spawn(*(ActorSpec(name=f"a/{k}", factory=Counter, host=f"away/{k}") for k in range(2)))
        yield system


async def process_of(system: ActorSystem, name: str) -> int:
    return (await system.ref(name).ask_until(Pid(), timeout_s=10, give_up_s=STARTS_S)).n


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while not gone(pid):  # noqa: ASYNC110 - /proc tells of no changes
            await asyncio.sleep(0.1)


async def test_ray_places_hosts_and_places_them_again(tmp_path):
    async with placed(tmp_path) as system:
        first, second = [await process_of(system, f"a/{k}") for k in range(2)]
        parents = parent(first), parent(second)
        assert parents[0] != parents[1]
        workers = environment(first) + environment(second)
        assert b"RAY_" not in workers  # nor any other of the worker's settings
        assert b"PYTHONBREAKPOINT" not in workers
        await system.ref("a/0").ask(Add(n=1), timeout_s=10)
        await system.ref("a/1").tell(Greet(text="hello"))

        os.kill(first, signal.SIGKILL)
        again = await process_of(system, "a/0")
        os.kill(parents[1], signal.SIGKILL)  # a Ray worker
        await until_gone(second)  # it may answer until it is
        other = await process_of(system, "a/1")
        assert {again, other}.isdisjoint({first, second})
    assert all(gone(pid) for pid in (first, second, again, other))
    assert [line["actor"] for line in read_logs(tmp_path, event="example_greeted")] == ["a/1"]
    lost = {line["name"]: line["exit_code"] for line in read_logs(tmp_path, event="host_lost")}
    assert lost == {"away/0": -signal.SIGKILL, "away/1": None}
    assert not list(read_logs(tmp_path, event="placer_lost"))


async def test_a_lost_ray_ends_its_hosts_and_not_the_run(tmp_path):
    async with placed(tmp_path) as system:
        first = await process_of(system, "a/0")
        driver = next(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_placer(pid))
        os.kill(driver, signal.SIGKILL)
        await until_gone(first)
        assert await process_of(system, "a/0") != first
    assert len(list(read_logs(tmp_path, event="placer_lost"))) >= 1


def is_placer(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"runtime.hosts.ray" in words and f"--parent={os.getpid()}".encode() in words
