"""Desktops that are booted ahead, one pool per actor process.

Invariant: a desktop is handed out at most once, after it has just answered. Every booted desktop is destroyed, by
`retire`, by the end of its lease or by `close`. Boots happen in the background, so a lease costs no boot while spares
keep up. While the host or its image is quarantined, one boot at a time probes whether desktops can be had again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from actors.desktop import config as configs
from actors.desktop.config import USUAL_SCREEN, DesktopsConfig, PoolConfig, ProviderConfig, ScreenConfig, key_of
from actors.desktop.faults import FaultCause, fault
from actors.desktop.network import Network
from actors.desktop.pool import desktops
from actors.desktop.pool.desktops import BootedDesktop, DesktopState, Lease, Lives, PoolHealth, ProvidedDesktops
from actors.desktop.provider import Desktop, DesktopSpec, Provider
from actors.desktop.providers.container import ContainerProvider
from actors.desktop.providers.e2b import E2bProvider
from actors.desktop.providers.qemu.provider import QemuProvider
from actors.desktop.providers.sandbox import shares
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.ssh import SshProvider
from actors.errors import DesktopFault
from runtime.disk import Log
from runtime.errors import ConfigError
from runtime.logs.events import Event
from runtime.supervision import Backoff

BOOTS_LEAST = 2  # a boot mostly waits for its parts: even one core gains from a second
CORES_EACH = 4  # the other cores are for desktops in use
MEMORY_EACH_MIB = 256  # an X server, a session and an application, before their limits are known to hold
DESKTOPS_EACH = 8  # of an SSH machine: episodes last over eight times as long as boots
# OpenSSH begins to drop connections at random when ten are not logged in yet (MaxStartups); each boot opens some.
LOGINS_AT_ONCE = 10


def boots_at_once(provider: ProviderConfig, processes: int, cores: int, memory_mib: int) -> int:
    """Boots at once of one of `processes` processes alike, where the deploy file does not say.

    `cores` and `memory_mib` (for all desktops) are of the machine where that process runs. All processes of a run
    together boot no more than their machines bear, but each may always boot `BOOTS_LEAST`.
    """
    if isinstance(provider, configs.SandboxConfig):
        return max(BOOTS_LEAST, min(cores // CORES_EACH, memory_mib // MEMORY_EACH_MIB) // processes)
    # `provider` is this process's share, and the work of a boot is the machines'.
    each = max(1, LOGINS_AT_ONCE // processes)
    if isinstance(provider, configs.E2bConfig):
        return max(BOOTS_LEAST, min(each, provider.desktops))
    return max(BOOTS_LEAST, sum(min(each, machine.desktops // DESKTOPS_EACH) for machine in provider.machines))


class PoolPlan:
    """How many desktops to boot, and when: counts of one pool; `now` is monotonic seconds.

    Invariant: ready and booting desktops never outnumber the wanted spares plus the waiting callers, plus one while a
    probe is wanted. After a failed boot nothing starts before its back-off has passed.
    """

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._boots = config.boots_at_once or BOOTS_LEAST
        self._backoff = Backoff(first_s=config.first_backoff_s, longest_s=config.longest_backoff_s)
        self.ready = 0
        self.booting = 0
        self.waiting = 0
        self.probing = False  # one boot is wanted to learn whether desktops can be had, whatever is ready
        self._failures = 0
        self._not_before = float("-inf")

    def to_start(self, now: float) -> int:
        if now < self._not_before:
            return 0
        lacking = self._config.warm_pool + self.waiting - self.ready - self.booting
        if self.probing and not self.booting:
            lacking = max(1, lacking)
        # After a failure one boot tries the ground.
        room = (1 if self._failures or self.probing else self._boots) - self.booting
        return max(0, min(lacking, room))

    def probe_after(self, now: float, delay_s: float) -> None:
        """Want one boot, not before `delay_s` have passed, and no others until it has succeeded."""
        self.probing = True
        self._not_before = max(self._not_before, now + delay_s)

    def pause_s(self, now: float) -> float:
        return max(0.0, self._not_before - now)

    def started(self) -> None:
        self.booting += 1

    def booted(self) -> None:
        self.booting -= 1
        self.ready += 1
        self.probing = False
        self._failures = 0
        self._not_before = float("-inf")

    def failed(self, now: float) -> float:
        """A boot failed; the back-off in seconds, doubled with each failure in a row."""
        self.booting -= 1
        self._failures += 1
        delay_s = self._backoff.delay_s(self._failures)
        self._not_before = max(self._not_before, now + delay_s)
        return delay_s

    def taken(self) -> None:
        self.ready -= 1


_REMOVE = "remove again"
CLOSE_S = 60.0  # for all that is under way at the end


class NoLog:
    """Drops every event."""

    def emit(self, event: Event, *, trace: str | None = None, **fields: object) -> None:
        """Do nothing."""


class DesktopPool:
    """Keeps spares and hands them out. Make and use it on one event loop."""

    def __init__(self, provider: Provider, spec: DesktopSpec, config: PoolConfig, log: Log | None = None) -> None:
        self.provider = provider
        self._config = config
        self._log = log or NoLog()
        self._plan = PoolPlan(config)
        self.lives = Lives()
        self._desktops = ProvidedDesktops(provider, spec, self.lives, self._log, self._remove_later)
        self._health = PoolHealth(config.quarantine, spec.home_template or "the program's own", self._log)
        self._ends: dict[str, asyncio.TimerHandle] = {}  # of leases, by desktop
        self._spares: list[BootedDesktop] = []  # the plan bounds them
        self._waiting: list[asyncio.Future[BootedDesktop]] = []  # one per caller
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._fitted: tuple[DesktopsConfig, int] | None = None  # what limits are fitted to, as `fit` got it
        self._unfit = ""  # why the newest limits were kept
        self._last_fault: DesktopFault | None = None
        self._defect: BaseException | None = None
        self._closed = False
        self._tend()

    @classmethod
    async def open(
        cls, config: DesktopsConfig, run_dir: Path, log: Log | None = None, *, fit_seats: int = 0
    ) -> DesktopPool:
        """The configured provider with a pool before it. `fit_seats` is that of `fit`. Raises ConfigError."""
        network = None if config.network is None else await Network.open(config.network, log or NoLog())
        provider = await open_provider(config.provider, run_dir.name, config.screen)
        boots = config.pool.boots_at_once or boots_at_once(
            config.provider, config.pool.processes, len(os.sched_getaffinity(0)), shares.room().memory_mib
        )
        pool = cls(provider, desktop_of(config), msgspec.structs.replace(config.pool, boots_at_once=boots), log)
        pool._desktops.network = network
        try:
            pool.fit(config, fit_seats)  # the provider is open, so each other process of the run sees this one
        except BaseException:
            await pool.close()
            raise
        return pool

    def fit(self, config: DesktopsConfig, fit_seats: int) -> None:
        """From the next boot on desktops have the limits that this machine has room for, with so many seats.

        Those that are up keep theirs until their episodes end. Another process with desktops that comes or goes counts
        from the next boot on, too. Changed limits are logged. Raises ConfigError, and then nothing has changed.
        """
        spec = desktop_of(config, fit_seats)
        if spec != self._desktops.spec:
            self._log.emit(
                desktops.LIMITS_FITTED, memory_mib=spec.memory_bytes >> 20, processes=spec.processes,
                open_files=spec.open_files, terminals=spec.terminals,
            )  # fmt: skip
        self._desktops.spec, self._fitted, self._unfit = spec, (config, fit_seats), ""

    async def acquire(self, timeout_s: float, holder: str = "") -> BootedDesktop:
        """A desktop that answers, for the caller alone, for `lease_s` at most; give it back with `retire`.

        Raises DesktopFault: with the last boot's fault if boots fail, else `no_spare` at the deadline.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            while True:
                booted = await self._next(deadline)
                try:
                    answers = await self._desktops.answers(booted)
                except BaseException:  # its caller has gone, and it is no spare any more
                    self.retire(booted)
                    raise
                if answers:
                    return self._lease(booted, holder)
                self.retire(booted)
        except TimeoutError:
            raise self._last_fault or fault(FaultCause.NO_SPARE, f"none within {timeout_s:g} s") from None

    def retire(self, booted: BootedDesktop) -> None:
        """Throw a used desktop away, in the background; nothing when that is under way already."""
        end = self._ends.pop(booted.desktop.name, None)
        if end is not None:
            end.cancel()
        if self.lives.retire(booted.desktop.name):
            holder = booted.lease.holder if booted.lease is not None else ""
            self._spawn(self._desktops.throw_away(booted.desktop, booted.link, holder), "retire")

    @property
    def quarantined(self) -> tuple[str, ...]:
        return self._health.quarantined

    async def well(self, timeout_s: float) -> bool:
        """Wait until neither the host nor its image is quarantined; False when one still is after `timeout_s`.

        Raises the defect that stopped the pool.
        """
        well = await self._health.wait(timeout_s)
        if well and self._defect is not None:
            raise self._defect
        return well

    def succeeded(self) -> None:
        """An episode on one of these desktops came to an outcome: the streaks of host and image are forgotten."""
        self._health.succeeded()

    def faulted(self, error: DesktopFault) -> None:
        """Count a fault that ended an episode on one of these desktops, where the host or its image is the culprit.

        While that is quarantined it counts nothing: the episode began before and tells nothing of new desktops.
        """
        if error.culprit not in self._health.quarantined:
            self._count(error)

    def _count(self, error: DesktopFault) -> None:
        self._health.faulted(error)
        if self._health.quarantined:
            self._plan.probe_after(time.monotonic(), self._health.probe_delay_s())
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
        for name in self.lives.names(*DesktopState):
            self.lives.retire(name)
        for booted in self._spares:
            await booted.link.close()
        self._spares.clear()
        await self.provider.close()  # removes what the late tasks have not
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=desktops.REMOVE_S)
        for name in self.lives.names(DesktopState.RETIRING):
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
        request: asyncio.Future[BootedDesktop] = asyncio.get_running_loop().create_future()
        self._waiting.append(request)
        self._plan.waiting += 1
        self._tend()
        try:
            async with asyncio.timeout_at(deadline):
                return await request
        except (asyncio.CancelledError, TimeoutError):
            if request.done() and not request.cancelled():  # it came in the moment of giving up
                self._keep(request.result())
            raise
        finally:
            self._plan.waiting -= 1
            if request in self._waiting:
                self._waiting.remove(request)

    def _keep(self, booted: BootedDesktop) -> None:
        """Hand a desktop to the caller that has waited longest, or set it aside."""
        self._plan.ready += 1
        while self._waiting:
            request = self._waiting.pop(0)
            if not request.done():
                self._plan.taken()
                request.set_result(booted)
                return
        self._spares.append(booted)

    def _lease(self, booted: BootedDesktop, holder: str) -> BootedDesktop:
        lease = self.lives.lease(booted.desktop.name, holder, time.monotonic(), self._config.lease_s)
        leased = msgspec.structs.replace(booted, lease=lease)
        later = asyncio.get_running_loop().call_later(self._config.lease_s, self._take_back, leased, lease)
        self._ends[lease.desktop] = later
        return leased

    def _take_back(self, booted: BootedDesktop, lease: Lease) -> None:
        """The lease is over: kill the desktop, even under a call."""
        state = self.lives.state(lease.desktop)
        self._log.emit(
            desktops.LEASE_EXPIRED, desktop=lease.desktop, lease=lease.number, holder=lease.holder, state=str(state),
            held_s=time.monotonic() - lease.since,
        )  # fmt: skip
        self.retire(booted)

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
        self._defect = task.exception()  # a defect, no fault: each waiting caller and `close` raise it
        self._health.wake()
        while self._waiting:
            request = self._waiting.pop(0)
            if not request.done():
                request.set_exception(self._defect or RuntimeError("unknown"))

    async def _boot(self) -> None:
        started = time.monotonic()
        if self._fitted is not None and self._fitted[1]:
            try:
                self.fit(*self._fitted)
            except ConfigError as unfit:  # what came later is refused where it starts, or by the control groups
                if self._unfit != str(unfit):
                    self._log.emit(desktops.LIMITS_KEPT, cause=str(unfit))
                self._unfit = str(unfit)
        try:
            async with asyncio.timeout(self._config.boot_timeout_s):
                booted = await self._desktops.boot(self._config.boot_timeout_s)
        except TimeoutError:
            self._boot_failed(fault(FaultCause.BOOT_TIMEOUT, f"not ready within {self._config.boot_timeout_s:g} s"))
        except DesktopFault as error:
            self._boot_failed(error)
        except OSError as error:  # no descriptors or processes are left, for now
            self._boot_failed(fault(FaultCause.SANDBOX_REFUSED, f"{error.strerror}: {error.filename or ''}"))
        else:
            self._plan.booted()
            self._plan.taken()
            self._last_fault = None
            self._health.booted(booted.desktop.name)
            took_s = time.monotonic() - started
            warnings = list(booted.desktop.warnings)
            self._log.emit(desktops.DESKTOP_BOOTED, desktop=booted.desktop.name, boot_s=took_s, warnings=warnings)
            self._keep(booted)

    def _boot_failed(self, error: DesktopFault) -> None:
        self._last_fault = error
        again_s = self._plan.failed(time.monotonic())
        self._log.emit(
            desktops.DESKTOP_BOOT_FAILED, cause=error.cause, detail=error.detail, culprit=error.culprit, again_s=again_s
        )
        self._count(error)

    def _remove_later(self, desktop: Desktop) -> None:
        """Its processes were too slow to end, mostly on a busy host."""
        if not self._closed:
            self._spawn(self._desktops.remove_again(desktop), _REMOVE)


async def open_provider(settings: ProviderConfig, run_id: str, screen: ScreenConfig = USUAL_SCREEN) -> Provider:
    """The provider of these settings. `run_id` is the run's name. Raises ConfigError."""
    if isinstance(settings, configs.SshConfig):
        return SshProvider(settings)
    if isinstance(settings, configs.E2bConfig):
        return E2bProvider(settings, key_of(settings, os.environ))
    if isinstance(settings, configs.QemuConfig):
        return await QemuProvider.start(settings, run_id, screen)
    kind = ContainerProvider if isinstance(settings, configs.ContainerConfig) else SandboxProvider
    return await kind.start(settings, run_id)


def desktop_of(config: DesktopsConfig, fit_seats: int = 0) -> DesktopSpec:
    """What the provider boots. With `fit_seats` a desktop's limits are lowered to what this machine has for so many.

    Other processes of the run have as much of the machine. To be called with `fit_seats` once the provider is open.

    Raises ConfigError where even the least limits of so many don't fit.
    """
    settings = config.provider
    if isinstance(settings, configs.RemoteConfig):
        return DesktopSpec(width=config.screen.width, height=config.screen.height)
    if fit_seats:
        key, there = "desktops.count per process", shares.of_this_process(Path(settings.folder))
        settings = shares.fitted(settings, fit_seats, config.pool.warm_pool, there, key=key)
    return DesktopSpec.of(settings, config.screen, network=config.network is not None)
