"""What hangs in or around a desktop ends by its deadline, under its own name; a bystander does not notice.

The stop signals and the cut connection come from this host, as no policy could send them, on desktops that are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from actors.desktop.config import PoolConfig
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import AgentBrokeDesktop, DesktopFault, GuestRefused
from tests.proofs import proofs


def processes(booted: BootedDesktop, word: bytes) -> list[int]:
    """Processes of the desktop that have `word` in their command line."""
    outside = booted.desktop.outside
    assert outside is not None
    space = os.readlink(f"/proc/{outside.init_pid}/ns/pid")
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/ns/pid") == space and word in Path("/proc", entry, "cmdline").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


@pytest.fixture
async def pool(sandbox: SandboxProvider):
    pool = DesktopPool(sandbox, DesktopSpec(), PoolConfig(warm_pool=1))
    yield pool
    await pool.close()
    sandbox._folder.mkdir()  # the fixture closes it once more


async def bystander_answers(body: LeasedDesktop) -> None:
    began = time.monotonic()
    assert await body.call("ping", {}, 10.0) == "pong"
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("acted", [False, *proofs(True)])
async def test_a_stopped_agent_is_named_at_the_deadline(pool: DesktopPool, acted: bool) -> None:
    booted, beside = await pool.acquire(30.0), LeasedDesktop(await pool.acquire(30.0))
    body = LeasedDesktop(booted)
    body.acted = acted
    for pid in processes(booted, b"guest\0agent"):
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(AgentBrokeDesktop if acted else DesktopFault) as ended:
        await body.call("observe", {}, 1.0)
    assert time.monotonic() - began < 10.0
    name = "no_answer" if acted else "agent_silent"
    assert str(ended.value).startswith(f"{name}: observe: no answer within 1 s")
    await bystander_answers(beside)


@pytest.mark.parametrize("acted", [True, *proofs(False)])
async def test_a_connection_cut_under_a_call_is_named_at_once(pool: DesktopPool, acted: bool) -> None:
    booted, beside = await pool.acquire(30.0), LeasedDesktop(await pool.acquire(30.0))
    body = LeasedDesktop(booted)
    body.acted = acted
    call = asyncio.ensure_future(body.call("wait_window", {"title": "none", "timeout_ms": 20_000}, 25.0))
    await asyncio.sleep(0.3)
    servers = processes(booted, b"sshd: ")  # of connections that stand; the session that makes them is left alone
    assert servers
    began = time.monotonic()
    for pid in reversed(servers):  # a monitor ends by itself when its child does
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(AgentBrokeDesktop if acted else DesktopFault) as ended:
        await call
    assert time.monotonic() - began < 10.0
    assert str(ended.value).startswith("link_closed: " if acted else "connection_lost: ")
    await bystander_answers(beside)


async def test_a_hung_application_does_not_hang_its_desktop(pool: DesktopPool) -> None:
    booted, beside = await pool.acquire(30.0), LeasedDesktop(await pool.acquire(30.0))
    body = LeasedDesktop(booted)
    await body.call("launch", {"argv": ["mousepad"]}, 10.0)
    await body.call("wait_window", {"title": "mousepad"}, 15.0)
    for pid in processes(booted, b"mousepad"):
        os.kill(pid, signal.SIGSTOP)
    seen = await body.call("observe", {}, 20.0)
    assert [row.class_ for row in seen.windows] == ["Mousepad"]
    assert seen.elements == []
    assert seen.cut  # said to be incomplete, not to be empty
    for method, args in (("click", {"x": 300, "y": 300}), ("settle", {"timeout_ms": 500})):
        with contextlib.suppress(GuestRefused):  # what can't be seen may be refused, in time
            await body.call(method, args, 20.0)
    assert await body.call("ping", {}, 5.0) == "pong"
    await bystander_answers(beside)
