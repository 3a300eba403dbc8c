"""Leases that end, and hosts and images that rest: on real desktops, with boots that fail for real reasons."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import msgspec
import pytest

from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig, ScreenConfig
from actors.desktop.pool import desktops as events
from actors.desktop.pool import leased
from actors.desktop.pool.desktops import BootedDesktop, DesktopState
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import AgentBrokeDesktop, DesktopFault, GuestRefused, LeaseLost
from runtime.errors import ProtocolError
from runtime.supervision import QuarantinePolicy
from tests.heard import Heard, until
from tests.proofs import proofs

SOON = QuarantinePolicy(faults_in_a_row=2, first_probe_s=0.2, longest_probe_s=0.5)


async def test_a_lease_past_its_deadline_is_taken_back_under_a_call(state_dir: str, tmp_path: Path) -> None:
    heard = Heard()
    config = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=1, lease_s=1.5))
    pool = await DesktopPool.open(config, tmp_path, heard)
    booted = await pool.acquire(90.0, "desktop/7")
    body = LeasedDesktop(booted)
    body.acted = True
    pool._config = msgspec.structs.replace(pool._config, lease_s=900.0)  # of the next
    with pytest.raises(LeaseLost, match="of desktop/7 on"):  # and not that there is no such window
        await body.call("wait_window", {"title": "no such window", "timeout_ms": 90_000}, 95.0)
    (expired,) = heard.of(events.LEASE_EXPIRED)
    assert (expired["holder"], expired["state"], expired["desktop"]) == ("desktop/7", "acted", booted.desktop.name)
    assert 1.5 <= expired["held_s"] < 90.0
    for use in (body.call("ping", {}, 5.0), body.frozen_files(["a"], 5.0)):
        with pytest.raises(LeaseLost):
            await use
    pool.retire(booted)  # as the seat does at last: it changes nothing
    await until(lambda: pool.lives.state(booted.desktop.name) is DesktopState.GONE)
    assert not (await pool.provider.probe(booted.desktop)).alive
    other = await pool.acquire(90.0, "desktop/7")
    assert other.desktop.name != booted.desktop.name
    assert await LeasedDesktop(other).call("ping", {}, 30.0) == "pong"
    await pool.close()
    assert len(pool.lives) == 0
    assert len(heard.of(events.LEASE_EXPIRED)) == 1


async def test_a_frozen_desktop_answers_its_holder_no_more(state_dir: str, tmp_path: Path) -> None:
    pool = await DesktopPool.open(DesktopsConfig(provider=SandboxConfig(state_dir=state_dir)), tmp_path)
    booted = await pool.acquire(90.0)
    body = LeasedDesktop(booted)
    await body.frozen_files([], 60.0)
    with pytest.raises(ProtocolError, match="frozen"):
        await body.call("ping", {}, 5.0)
    with pytest.raises(ProtocolError, match="frozen"):
        body.acted = True
    await pool.close()


async def test_a_host_that_can_not_boot_rests_until_one_does(state_dir: str, tmp_path: Path) -> None:
    heard = Heard()
    template = tmp_path / "home"
    config = DesktopsConfig(
        provider=SandboxConfig(state_dir=state_dir),
        pool=PoolConfig(warm_pool=1, first_backoff_s=0.05, longest_backoff_s=0.2, quarantine=SOON),
        screen=ScreenConfig(home_template=str(template)),
    )
    pool = await DesktopPool.open(config, tmp_path, heard)
    await until(lambda: len(heard.of(events.DESKTOP_BOOT_FAILED)) >= 3)
    (rests,) = heard.of(events.HOST_QUARANTINED)
    assert (rests["cause"], rests["faults"]) == ("sandbox_refused", 2)
    assert pool.quarantined == ("host",)
    pool.succeeded()
    assert not await pool.well(0.05), "an episode from before ends no rest"
    assert len(heard.of(events.HOST_LET_BACK)) == 0
    template.mkdir()
    assert await pool.well(90.0)
    (back,) = heard.of(events.HOST_LET_BACK)
    assert back["rested_s"] > 0
    booted = await pool.acquire(90.0)
    assert booted.desktop.name
    pool.faulted(DesktopFault("host_stalled", "the loop stood still", "host"))
    assert pool.quarantined == ("host",), "what a probe let back rests again at its next fault"
    for _ in range(7):  # of the other seats, whose episodes began before the rest
        pool.faulted(DesktopFault("host_stalled", "the loop stood still", "host"))
    assert pool._plan.pause_s(time.monotonic()) <= SOON.first_probe_s
    assert await pool.well(90.0), "and is probed by a fresh boot although a desktop is there"
    pool.succeeded()
    pool.faulted(DesktopFault("host_stalled", "the loop stood still", "host"))
    assert pool.quarantined == (), "an outcome has cleared the streak"
    await pool.close()


async def test_an_image_that_does_not_come_up_rests(sandbox: SandboxProvider) -> None:
    heard = Heard()
    guest = sandbox._folder / "guest"
    shutil.move(guest / "agent.py", guest / "agent.kept")
    policy = PoolConfig(warm_pool=1, first_backoff_s=0.05, longest_backoff_s=0.2, quarantine=SOON)
    pool = DesktopPool(sandbox, DesktopSpec(), policy, heard)
    await until(lambda: heard.of(events.IMAGE_QUARANTINED))
    (rests,) = heard.of(events.IMAGE_QUARANTINED)
    assert (rests["cause"], rests["image"]) == ("boot_failed", "the program's own")
    assert pool.quarantined == ("image",)
    shutil.move(guest / "agent.kept", guest / "agent.py")
    assert await pool.well(90.0)
    assert [line["image"] for line in heard.of(events.IMAGE_LET_BACK)] == ["the program's own"]
    assert heard.of(events.HOST_QUARANTINED) == []
    await pool.close()
    sandbox._folder.mkdir()  # the fixture closes it once more


async def test_an_agent_that_answers_every_call_late_is_the_policys_doing(
    state_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leased, "CALLS_SHARE", 0.02)  # far from the lease's end, which a busy machine might come to
    config = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0, lease_s=100.0))
    pool = await DesktopPool.open(config, tmp_path)
    booted = await pool.acquire(90.0)
    body = LeasedDesktop(booted)
    body.acted = True

    async def settle(times: int) -> None:
        for _ in range(times):
            await body.call("settle", {"timeout_ms": 1100, "quiet_ms": 9000}, 60.0)

    await settle(1)
    with pytest.raises(AgentBrokeDesktop, match=r"^too_slow: calls took over 2 % of the lease's time"):
        await settle(2)  # the second at the latest: together they take longer
    pool.retire(booted)
    await pool.close()


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
    assert await body.call("ping", {}, 60.0) == "pong"


@pytest.mark.parametrize("acted", [False, *proofs(True)])
async def test_a_stopped_agent_is_named_at_the_deadline(pool: DesktopPool, acted: bool) -> None:
    booted, beside = await pool.acquire(90.0), LeasedDesktop(await pool.acquire(90.0))
    body = LeasedDesktop(booted)
    body.acted = acted
    for pid in processes(booted, b"guest\0agent"):
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(AgentBrokeDesktop if acted else DesktopFault) as ended:
        await body.call("observe", {}, 1.0)
    name = "no_answer" if acted else "agent_silent"
    assert str(ended.value).startswith(f"{name}: observe: no answer within 1 s")
    await bystander_answers(beside)


@pytest.mark.parametrize("acted", [True, *proofs(False)])
async def test_a_connection_cut_under_a_call_is_named_at_once(pool: DesktopPool, acted: bool) -> None:
    booted, beside = await pool.acquire(90.0), LeasedDesktop(await pool.acquire(90.0))
    body = LeasedDesktop(booted)
    body.acted = acted
    call = asyncio.ensure_future(body.call("wait_window", {"title": "none", "timeout_ms": 90_000}, 95.0))
    await asyncio.sleep(0.3)
    servers = processes(booted, b"sshd: ")  # of connections that stand; the session that makes them is left alone
    assert servers
    for pid in reversed(servers):  # a monitor ends by itself when its child does
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(AgentBrokeDesktop if acted else DesktopFault) as ended:
        await call  # and not for its 90 s
    assert str(ended.value).startswith("link_closed: " if acted else "connection_lost: ")
    await bystander_answers(beside)


async def test_a_hung_application_does_not_hang_its_desktop(pool: DesktopPool) -> None:
    booted, beside = await pool.acquire(90.0), LeasedDesktop(await pool.acquire(90.0))
    body = LeasedDesktop(booted)
    await body.call("launch", {"argv": ["mousepad"]}, 60.0)
    await body.call("wait_window", {"title": "mousepad", "timeout_ms": 60_000}, 65.0)
    for pid in processes(booted, b"mousepad"):
        os.kill(pid, signal.SIGSTOP)
    seen = await body.call("observe", {}, 60.0)
    assert [row.class_ for row in seen.windows] == ["Mousepad"]
    assert seen.elements == []
    assert seen.cut  # said to be incomplete, not to be empty
    for method, args in (("click", {"x": 300, "y": 300}), ("settle", {"timeout_ms": 500})):
        with contextlib.suppress(GuestRefused):  # what can't be seen may be refused, in time
            await body.call(method, args, 60.0)
    assert await body.call("ping", {}, 60.0) == "pong"
    await bystander_answers(beside)
