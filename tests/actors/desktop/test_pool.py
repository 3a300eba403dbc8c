"""The pool: real spares are handed out and replaced, and whatever a boot ends in leaves nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig
from actors.desktop.faults import FaultCause, LinkState, fault
from actors.desktop.link import GuestLink, LinkDown
from actors.desktop.pool import desktops as events
from actors.desktop.pool import pool as pool_module
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import Desktop, DesktopHealth, DesktopSpec, SshAddress
from actors.desktop.providers.sandbox import cgroups, owners, shares
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.sandbox.sandbox import Sandbox
from actors.errors import DesktopFault, GuestRefused
from runtime.errors import ConfigError
from tests.heard import Heard, until


async def test_spares_are_handed_out_once_and_replaced(state_dir: str):
    heard = Heard()
    config = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=1))
    pool = await DesktopPool.open(config, Path("run-7"), heard)
    first, second = await asyncio.gather(pool.acquire(30), pool.acquire(30))
    assert first.desktop.name != second.desktop.name
    assert "run-7" in first.desktop.name
    assert await first.link.call("ping", timeout_s=30) == "pong"
    pool.retire(first)
    third = await pool.acquire(30)
    assert third.desktop.name not in (first.desktop.name, second.desktop.name)
    await pool.close()
    for booted in (first, second, third):
        assert not (await pool.provider.probe(booted.desktop)).alive
    assert len(heard.of(events.DESKTOP_BOOTED)) >= 3
    with pytest.raises(DesktopFault) as closed:
        await pool.acquire(1)
    assert closed.value.cause == FaultCause.NO_SPARE


@pytest.mark.proof
async def test_a_spare_that_died_is_not_handed_out(sandbox: SandboxProvider):
    heard = Heard()
    pool = DesktopPool(sandbox, DesktopSpec(), PoolConfig(warm_pool=1), heard)
    first = await pool.acquire(30)
    pool.retire(first)
    await until(lambda: bool(pool._spares))
    dead = pool._spares[0]
    init = sandbox._sandboxes[dead.desktop.name].init
    assert init is not None
    init.kill()
    await init.ended(5)
    alive = await pool.acquire(30)
    assert alive.desktop.name != dead.desktop.name
    assert [fields["desktop"] for fields in heard.of(events.DESKTOP_SPARE_DIED)] == [dead.desktop.name]
    await until(lambda: not pool._tasks)
    assert dead.desktop.name not in sandbox._sandboxes
    await pool.close()
    assert sandbox._sandboxes == {}
    sandbox._folder.mkdir()  # the fixture closes it once more


@pytest.mark.parametrize("part", ["kill", "remove"])
async def test_what_a_busy_host_did_not_let_go_is_removed_again(
    sandbox: SandboxProvider, monkeypatch: pytest.MonkeyPatch, part: str
):
    """Its processes took too long to die, or their group: without another try all of it would be held by the run."""
    kill, remove = Sandbox.kill, Sandbox.remove
    fails: list[Exception] = [TimeoutError() if part == "kill" else fault(FaultCause.SANDBOX_REFUSED, "groups stay")]

    async def killed(self: Sandbox) -> None:
        if fails and part == "kill":
            raise fails.pop()
        await kill(self)

    def removed(self: Sandbox) -> None:
        if fails and part == "remove":
            raise fails.pop()
        remove(self)

    monkeypatch.setattr(Sandbox, "kill", killed)
    monkeypatch.setattr(Sandbox, "remove", removed)
    monkeypatch.setattr("actors.desktop.pool.desktops.REMOVE_AGAIN_S", (0.05,))
    heard = Heard()
    pool = DesktopPool(sandbox, DesktopSpec(), PoolConfig(warm_pool=0), heard)
    booted = await pool.acquire(60.0)
    folder = sandbox._sandboxes[booted.desktop.name].folder
    pool.retire(booted)
    await until(lambda: not fails and not sandbox._sandboxes)
    assert not await asyncio.to_thread(os.path.exists, folder)
    assert [event.name for event, _ in heard.lines].count("desktop_not_removed") == 1
    await pool.close()
    sandbox._folder.mkdir()  # the fixture closes it once more


async def test_closing_waits_for_a_group_that_something_still_leaves(
    sandbox: SandboxProvider, monkeypatch: pytest.MonkeyPatch
):
    remove, fails = Sandbox.remove, [fault(FaultCause.SANDBOX_REFUSED, "groups stay")] * 2

    def removed(self: Sandbox) -> None:
        if fails:
            raise fails.pop()
        remove(self)

    monkeypatch.setattr(Sandbox, "remove", removed)
    await sandbox.boot(DesktopSpec())
    await sandbox.close()
    assert (fails, sandbox._sandboxes) == ([], {})
    sandbox._folder.mkdir()  # the fixture closes it once more


def nowhere(name: str) -> Desktop:
    """A desktop that is nowhere."""
    nobody = {"username": "", "host_key": b"", "client_key": b"", "agent": (), "home": ""}
    return Desktop(name=name, provider="none", address=SshAddress(), **nobody)


class Broken(SandboxProvider):
    """A provider whose boots end in some way; nothing of the real one runs."""

    def __init__(self, end: BaseException) -> None:
        self.end = end
        self.boots = 0

    async def boot(self, spec: DesktopSpec) -> Desktop:
        self.boots += 1
        await asyncio.sleep(0)
        raise self.end

    async def probe(self, desktop: Desktop) -> DesktopHealth:
        return DesktopHealth(alive=False)

    async def close(self) -> None:
        self.boots = -1


class OneSpare(Broken):
    """A provider with one desktop, whose first look takes for ever if it is stuck; what is destroyed is told."""

    def __init__(self, *, stuck: bool) -> None:
        super().__init__(fault(FaultCause.SANDBOX_REFUSED, "no"))
        self.stuck = stuck
        self.looked = asyncio.Event()
        self.destroyed: list[str] = []

    async def probe(self, desktop: Desktop) -> DesktopHealth:
        if self.stuck and not self.looked.is_set():
            self.looked.set()
            await asyncio.Event().wait()
        return DesktopHealth(alive=True)

    async def destroy(self, desktop: Desktop) -> None:
        self.destroyed.append(desktop.name)

    def pool(self) -> DesktopPool:
        """A pool with the desktop as its spare."""
        pool = DesktopPool(self, DesktopSpec(), PoolConfig(warm_pool=0))
        pool.lives.begin("spare")
        pool.lives.booted("spare")
        pool._keep(BootedDesktop(self, nowhere("spare"), Refusing(), pool.lives))
        return pool


class Refusing(GuestLink):
    """An agent that refuses whatever it is asked."""

    def __init__(self) -> None:
        self.down = None

    async def call(self, method: str, *, timeout_s: float, **args: object) -> Any:
        raise GuestRefused("failed", method)

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_spare_whose_acquirer_gives_up_is_thrown_away():
    provider = OneSpare(stuck=True)
    pool = provider.pool()
    wanting = asyncio.create_task(pool.acquire(30))
    await provider.looked.wait()
    wanting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wanting
    await until(lambda: not pool._tasks)
    assert provider.destroyed == ["spare"]
    assert len(pool.lives) == 0
    await pool.close()


class Late(OneSpare):
    """A provider whose desktop nobody gets through to, and whose looks take longer than a boot may."""

    async def boot(self, spec: DesktopSpec) -> Desktop:
        return nowhere("late")

    async def probe(self, desktop: Desktop) -> DesktopHealth:
        await asyncio.sleep(0.4)
        return DesktopHealth(alive=True)


async def test_a_boot_that_is_over_while_it_cleans_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch):
    async def refused(desktop: Desktop, timeout_s: float) -> GuestLink:
        raise LinkDown(LinkState.LOST, "no")

    monkeypatch.setattr(GuestLink, "open", refused)
    provider = Late(stuck=False)
    config = PoolConfig(warm_pool=1, boots_at_once=1, boot_timeout_s=0.2, first_backoff_s=30.0)
    pool = DesktopPool(provider, DesktopSpec(), config)
    await until(lambda: provider.destroyed == ["late"])
    await until(lambda: len(pool.lives) == 0)
    await pool.close()


async def test_desktops_have_from_the_next_boot_what_fits_so_many_seats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    room = shares.Room(memory_mib=3000, processes=6000, open_files=6000 * 512, terminals=300)
    monkeypatch.setattr(shares, "room", lambda: room)
    monkeypatch.setattr(shares, "held", lambda _: cgroups.GroupBounds(0, 0))  # of runs beside this test
    provider = OneSpare(stuck=False)
    booted: list[int] = []

    async def boot(spec: DesktopSpec) -> Desktop:
        booted.append(spec.memory_bytes >> 20)
        raise provider.end

    monkeypatch.setattr(provider, "boot", boot)
    folder = SandboxConfig(state_dir=str(tmp_path))
    pool, config = provider.pool(), DesktopsConfig(provider=folder, pool=PoolConfig(warm_pool=1))
    pool._log = heard = Heard()
    for seats in (1, 5):
        pool.fit(config, seats)
        with pytest.raises(DesktopFault):
            await pool._desktops.boot(1.0)
    with pytest.raises(ConfigError, match=r"desktops\.count per process is 100: this machine has 3000 MiB"):
        pool.fit(config, 100)
    with pytest.raises(DesktopFault):
        await pool._desktops.boot(1.0)
    assert booted == [1500, 500, 500]
    provider.destroyed.clear()
    for processes in (2, 9, 9):  # others have begun since; the least limits of nine don't fit
        sharing = {tmp_path: (frozenset[str](), processes)}
        monkeypatch.setattr(owners, "sharing", sharing.__getitem__)
        await pool._boot()
    assert booted[-3:] == [250, 250, 250]
    assert [fields["memory_mib"] for fields in heard.of(events.LIMITS_FITTED)][-2:] == [500, 250]
    (kept,) = heard.of(events.LIMITS_KEPT)
    assert "desktops.count per process is 5" in kept["cause"]
    await pool.close()


async def test_a_spare_that_refuses_is_no_error_of_its_acquirer():
    provider = OneSpare(stuck=False)
    pool = provider.pool()
    with pytest.raises(DesktopFault):
        await pool.acquire(0.1)
    assert provider.destroyed == ["spare"]
    await pool.close()


async def test_failing_boots_back_off_and_tell_their_cause():
    heard = Heard()
    provider = Broken(fault(FaultCause.SANDBOX_REFUSED, "no"))
    pool = DesktopPool(provider, DesktopSpec(), PoolConfig(warm_pool=2, boots_at_once=2, first_backoff_s=0.1), heard)
    with pytest.raises(DesktopFault) as refused:
        await pool.acquire(0.75)
    assert refused.value.cause == FaultCause.SANDBOX_REFUSED
    await until(lambda: len(heard.of(events.DESKTOP_BOOT_FAILED)) >= 3)
    failed = heard.of(events.DESKTOP_BOOT_FAILED)
    assert [line["again_s"] for line in failed[:3]] == [0.1, 0.2, 0.4]
    assert provider.boots <= 9, "two at 0, then one at 0.2 s, at 0.6, at 1.4: it does not try all the time"
    await pool.close()
    assert provider.boots == -1


async def test_a_defect_reaches_who_waits_and_who_closes():
    pool = DesktopPool(Broken(ZeroDivisionError("a defect")), DesktopSpec(), PoolConfig())
    with pytest.raises(ZeroDivisionError):
        await pool.acquire(5)
    with pytest.raises(ZeroDivisionError):
        await pool.close()


async def test_a_removal_that_takes_too_long_does_not_keep_the_provider_open(monkeypatch: pytest.MonkeyPatch):
    class Stuck(OneSpare):
        async def destroy(self, desktop: Desktop) -> None:
            await asyncio.Event().wait()

    async def answers(link: GuestLink, method: str, *, timeout_s: float, **args: object) -> str:
        return "pong"

    monkeypatch.setattr(Refusing, "call", answers)
    monkeypatch.setattr(pool_module, "CLOSE_S", 0.05)
    provider = Stuck(stuck=False)
    pool = provider.pool()
    pool.retire(await pool.acquire(5))
    with pytest.raises(DesktopFault, match="1 desktops did not end"):
        await pool.close()
    assert provider.boots == -1, "it was closed"
    assert (len(pool._tasks), len(pool.lives)) == (0, 0)


async def test_a_pool_closes_while_it_boots(sandbox: SandboxProvider):
    pool = DesktopPool(sandbox, DesktopSpec(), PoolConfig(warm_pool=3, boots_at_once=3))
    await asyncio.sleep(0.05)
    await pool.close()
    assert sandbox._sandboxes == {}
    sandbox._folder.mkdir()
