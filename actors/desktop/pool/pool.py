"""Desktops that stand ready, one pool per actor host.

Invariant: a desktop is handed out at most once, after it has just answered; whatever was booted is destroyed, by
`retire`, by the end of its lease or by `close`. Boots happen in the background, so a lease costs no boot while spares
keep up. While the host or its image rests, one boot at a time tries whether desktops can be had again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from actors.desktop import events
from actors.desktop.config import DesktopsConfig, PoolConfig, SshConfig
from actors.desktop.faults import Culprit, FaultCause, fault, judge
from actors.desktop.link import GuestLink, LinkDown, seen_of
from actors.desktop.pool.host_quarantine import PoolQuarantine
from actors.desktop.pool.lifecycle import Lease, Lives, State
from actors.desktop.pool.plan import PoolPlan
from actors.desktop.provider import Desktop, DesktopSpec, Health, Provider
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.ssh import HostsProvider
from actors.errors import DesktopFault, GuestRefused
from runtime.logs.events import Event
from runtime.storage.slow_disk import Log

CHECK_S = 5.0  # for a spare to answer before it is handed out
REMOVE_S = 30.0  # for one desktop to be destroyed
REMOVE_AGAIN_S = (5.0, 30.0, 120.0)  # pauses before what a busy host did not let go is removed again
_REMOVE = "remove again"
CLOSE_S = 60.0  # for all that is under way at the end


class NoLog:
    """Where nobody listens."""

    def emit(self, event: Event, *, trace: str | None = None, **fields: object) -> None:
        """Do nothing."""


class BootedDesktop(msgspec.Struct, frozen=True, eq=False):
    """A desktop that answers, the link to its agent, and the lease of who holds it; None while it is a spare."""

    provider: Provider
    desktop: Desktop
    link: GuestLink
    lives: Lives
    lease: Lease | None = None


class Pool:
    """Keeps spares and hands them out. Make and use it on one event loop."""

    def __init__(self, provider: Provider, spec: DesktopSpec, config: PoolConfig, log: Log | None = None) -> None:
        self.provider = provider
        self._spec = spec
        self._config = config
        self._log = log or NoLog()
        self._plan = PoolPlan(config)
        self.lives = Lives()
        self._quarantine = PoolQuarantine(config.quarantine)
        self._quarantined_since: dict[str, float] = {}  # "host", "image"
        self._well = asyncio.Event()
        self._well.set()
        self._ends: dict[str, asyncio.TimerHandle] = {}  # of leases, by desktop
        self._spares: list[BootedDesktop] = []  # the plan bounds them
        self._wanting: list[asyncio.Future[BootedDesktop]] = []  # one per caller
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_fault: DesktopFault | None = None
        self._defect: BaseException | None = None
        self._closed = False
        self._tend()

    @classmethod
    async def open(cls, config: DesktopsConfig, run_dir: Path, log: Log | None = None) -> Pool:
        """The configured provider with a pool before it. Raises ConfigError."""
        provider: Provider
        if isinstance(config.provider, SshConfig):
            provider = HostsProvider(config.provider)
            spec = DesktopSpec(width=config.screen.width, height=config.screen.height)
        else:
            provider = await SandboxProvider.start(config.provider, run_dir.name)
            spec = DesktopSpec.of(config.provider, config.screen)
        return cls(provider, spec, config.pool, log)

    async def acquire(self, timeout_s: float, holder: str = "") -> BootedDesktop:
        """A desktop that answers, for the caller alone, for `lease_s` at most; give it back with `retire`.

        Raises DesktopFault: with the last boot's fault if boots fail, else `no_spare` at the deadline.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            while True:
                booted = await self._next(deadline)
                try:
                    answers = await self._answers(booted)
                except BaseException:  # whoever wanted it has gone, and it is no spare any more
                    self.retire(booted)
                    raise
                if answers:
                    return self._lease(booted, holder)
        except TimeoutError:
            raise self._last_fault or fault(FaultCause.NO_SPARE, f"none within {timeout_s:g} s") from None

    def retire(self, booted: BootedDesktop) -> None:
        """Throw a used desktop away, in the background; nothing when that is under way already."""
        end = self._ends.pop(booted.desktop.name, None)
        if end is not None:
            end.cancel()
        if self.lives.retire(booted.desktop.name):
            holder = booted.lease.holder if booted.lease is not None else ""
            self._spawn(self._throw_away(booted.desktop, booted.link, holder), "retire")

    @property
    def quarantined(self) -> tuple[str, ...]:
        """What is quarantined: "host", "image"."""
        return self._quarantine.quarantined

    async def well(self, timeout_s: float) -> bool:
        """Wait until neither the host nor its image is quarantined; False when one still is after `timeout_s`.

        Raises the defect that stopped the pool.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._well.wait()
        except TimeoutError:
            return False
        if self._defect is not None:
            raise self._defect
        return True

    def succeeded(self) -> None:
        """An episode on one of these desktops came to an outcome: the streaks of host and image are forgotten."""
        self._quarantine.succeeded()

    def faulted(self, error: DesktopFault) -> None:
        """Count a fault that ended an episode on one of these desktops, where the host or its image is the culprit.

        While that is quarantined it counts nothing: the episode began before and tells nothing of new desktops.
        """
        if error.culprit not in self._quarantine.quarantined:
            self._count(error)

    def _count(self, error: DesktopFault) -> None:
        if self._quarantine.faulted(error.culprit, time.monotonic()):
            self._quarantined_since[error.culprit] = time.monotonic()
            self._well.clear()
            streak = self._quarantine.streak(error.culprit)
            if error.culprit == Culprit.HOST:
                self._log.emit(events.HOST_RESTS, cause=error.cause, detail=error.detail[:400], faults=streak)
            else:
                self._log.emit(
                    events.IMAGE_RESTS, image=self._image, cause=error.cause, detail=error.detail[:400], faults=streak
                )
        if self._quarantine.quarantined:
            self._plan.probe_after(time.monotonic(), self._quarantine.probe_delay_s())
            self._tend()

    async def close(self) -> None:
        """End boots, destroy every desktop and close the provider.

        Raises the defect that stopped the pool, if any, and DesktopFault where a desktop did not end in time: the
        provider was closed nevertheless.
        """
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for end in self._ends.values():
            end.cancel()
        late: set[asyncio.Task[None]] = set()
        while self._tasks and not late:
            for task in self._tasks:
                if task.get_name() in ("boot", _REMOVE):
                    task.cancel()
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for name in self.lives.names(*State):
            self.lives.retire(name)
        for booted in self._spares:
            await booted.link.close()
        self._spares.clear()
        await self.provider.close()  # removes what those that are late have not
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=REMOVE_S)
        for name in self.lives.names(State.RETIRING):
            self.lives.gone(name)
        if self._defect is not None:
            raise self._defect
        if late:
            raise fault(FaultCause.HOST_STALLED, f"{len(late)} desktops did not end within {CLOSE_S:g} s")

    async def _next(self, deadline: float) -> BootedDesktop:
        if self._defect is not None:
            raise self._defect
        if self._closed:
            raise fault(FaultCause.NO_SPARE, "the pool is closed")
        if self._spares:
            self._plan.taken()
            booted = self._spares.pop(0)
            self._tend()
            return booted
        wish: asyncio.Future[BootedDesktop] = asyncio.get_running_loop().create_future()
        self._wanting.append(wish)
        self._plan.waiting += 1
        self._tend()
        try:
            async with asyncio.timeout_at(deadline):
                return await wish
        except (asyncio.CancelledError, TimeoutError):
            if wish.done() and not wish.cancelled():  # it came in the moment of giving up
                self._keep(wish.result())
            raise
        finally:
            self._plan.waiting -= 1
            if wish in self._wanting:
                self._wanting.remove(wish)

    def _keep(self, booted: BootedDesktop) -> None:
        """Hand a desktop to who has waited longest, or set it aside."""
        self._plan.ready += 1
        while self._wanting:
            wish = self._wanting.pop(0)
            if not wish.done():
                self._plan.taken()
                wish.set_result(booted)
                return
        self._spares.append(booted)

    def _lease(self, booted: BootedDesktop, holder: str) -> BootedDesktop:
        lease = self.lives.lease(booted.desktop.name, holder, time.monotonic(), self._config.lease_s)
        leased = msgspec.structs.replace(booted, lease=lease)
        later = asyncio.get_running_loop().call_later(self._config.lease_s, self._take_back, leased, lease)
        self._ends[lease.desktop] = later
        return leased

    def _take_back(self, booted: BootedDesktop, lease: Lease) -> None:
        """The lease is over: kill the desktop, whoever still uses it."""
        state = self.lives.state(lease.desktop)
        self._log.emit(
            events.LEASE_EXPIRED, desktop=lease.desktop, lease=lease.number, holder=lease.holder, state=str(state),
            held_s=time.monotonic() - lease.since,
        )  # fmt: skip
        self.retire(booted)

    @property
    def _image(self) -> str:
        return self._spec.home_template or "the program's own"

    async def _answers(self, booted: BootedDesktop) -> bool:
        """Whether a spare is alive now; one that is not is thrown away."""
        health = await self.provider.probe(booted.desktop)
        detail = "its sandbox has ended"
        if health.alive:
            try:
                await booted.link.call("ping", timeout_s=CHECK_S)
            except (LinkDown, GuestRefused) as error:
                detail = str(error)
            else:
                return True
        self._log.emit(events.DESKTOP_SPARE_DIED, desktop=booted.desktop.name, detail=detail)
        self.retire(booted)
        return False

    def _tend(self) -> None:
        """Start the boots that the plan wants, and come back when its back-off has passed."""
        if self._closed or self._defect is not None:
            return
        now = time.monotonic()
        for _ in range(self._plan.to_start(now)):
            self._plan.started()
            self._spawn(self._boot(), "boot")
        pause_s = self._plan.pause_s(now)
        if pause_s > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._after_pause)

    def _after_pause(self) -> None:
        self._timer = None
        self._tend()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            self._tend()
            return
        self._defect = task.exception()  # not a fault but a defect: whoever waits, and `close`, raises it
        self._well.set()
        while self._wanting:
            wish = self._wanting.pop(0)
            if not wish.done():
                wish.set_exception(self._defect or RuntimeError("unknown"))

    async def _boot(self) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._config.boot_timeout_s):
                booted = await self._boot_one()
        except TimeoutError:
            error = fault(FaultCause.BOOT_TIMEOUT, f"not ready within {self._config.boot_timeout_s:g} s")
            self._boot_failed(error)
        except DesktopFault as error:
            self._boot_failed(error)
        except OSError as error:  # no descriptors or processes are left, for now
            self._boot_failed(fault(FaultCause.SANDBOX_REFUSED, f"{error.strerror}: {error.filename or ''}"))
        else:
            self._plan.booted()
            self._plan.taken()
            self._last_fault = None
            self._probed_well(booted.desktop.name)
            took_s = time.monotonic() - started
            warnings = list(booted.desktop.warnings)
            self._log.emit(events.DESKTOP_BOOTED, desktop=booted.desktop.name, boot_s=took_s, warnings=warnings)
            self._keep(booted)

    def _boot_failed(self, error: DesktopFault) -> None:
        self._last_fault = error
        again_s = self._plan.failed(time.monotonic())
        self._log.emit(
            events.DESKTOP_BOOT_FAILED, cause=error.cause, detail=error.detail, culprit=error.culprit, again_s=again_s
        )
        self._count(error)

    def _probed_well(self, desktop: str) -> None:
        """A desktop boots and answers: what is quarantined is let back."""
        for who in self._quarantine.booted():
            rested_s = time.monotonic() - self._quarantined_since.pop(who)
            if who == Culprit.HOST:
                self._log.emit(events.HOST_LET_BACK, desktop=desktop, rested_s=rested_s)
            else:
                self._log.emit(events.IMAGE_LET_BACK, image=self._image, desktop=desktop, rested_s=rested_s)
        self._well.set()

    async def _boot_one(self) -> BootedDesktop:
        desktop = await self.provider.boot(self._spec)
        self.lives.begin(desktop.name)
        try:
            link = await GuestLink.open(desktop, timeout_s=self._config.boot_timeout_s)
        except BaseException as error:
            self.lives.retire(desktop.name)
            async with asyncio.timeout(REMOVE_S):  # shielded: the boot's own deadline may come meanwhile
                health = await asyncio.shield(self._post_mortem(desktop))
            if isinstance(error, LinkDown):
                raise judge(seen_of(health, error, acted=False)) from error
            raise
        self.lives.booted(desktop.name)
        return BootedDesktop(self.provider, desktop, link, self.lives)

    async def _post_mortem(self, desktop: Desktop) -> Health:
        """What is left of a desktop that did not come up; then remove it."""
        health = await self.provider.probe(desktop)
        await self._throw_away(desktop, None)
        return health

    async def _throw_away(self, desktop: Desktop, link: GuestLink | None, holder: str = "") -> None:
        if link is not None:
            await link.close()
        used = (await self.provider.probe(desktop)).cpu_s
        self._log.emit(events.DESKTOP_GONE, desktop=desktop.name, holder=holder, cpu_s=used)
        if not await self._removed(desktop) and not self._closed:
            self._spawn(self._remove_again(desktop), _REMOVE)
        self.lives.gone(desktop.name)

    async def _removed(self, desktop: Desktop) -> bool:
        try:
            await self.provider.destroy(desktop)
        except (DesktopFault, OSError, TimeoutError) as error:
            self._log.emit(events.DESKTOP_NOT_REMOVED, desktop=desktop.name, detail=str(error)[:400])
            return False
        return True

    async def _remove_again(self, desktop: Desktop) -> None:
        """Mostly processes that a busy host was slow to end; what its provider still holds goes when that closes."""
        for pause_s in REMOVE_AGAIN_S:
            await asyncio.sleep(pause_s)
            if await self._removed(desktop):
                return
