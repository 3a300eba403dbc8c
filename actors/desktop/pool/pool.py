"""Desktops that stand ready, one pool per actor process.

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

from actors.desktop import events
from actors.desktop.config import DesktopsConfig, PoolConfig
from actors.desktop.faults import FaultCause, fault
from actors.desktop.pool.boots import boots_at_once
from actors.desktop.pool.desktops import REMOVE_S, BootedDesktop, ProvidedDesktops
from actors.desktop.pool.health import PoolHealth
from actors.desktop.pool.lifecycle import DesktopState, Lease, Lives
from actors.desktop.pool.plan import PoolPlan
from actors.desktop.provider import Desktop, DesktopSpec, Provider
from actors.desktop.providers.open import desktop_of, open_provider
from actors.desktop.providers.sandbox import shares
from actors.errors import DesktopFault
from runtime.disk import Log
from runtime.errors import ConfigError
from runtime.logs.events import Event

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
        provider = await open_provider(config.provider, run_dir.name)
        boots = config.pool.boots_at_once or boots_at_once(
            config.provider, config.pool.processes, len(os.sched_getaffinity(0)), shares.room().memory_mib
        )
        pool = cls(provider, desktop_of(config), msgspec.structs.replace(config.pool, boots_at_once=boots), log)
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
                events.LIMITS_FITTED, memory_mib=spec.memory_bytes >> 20, processes=spec.processes,
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
        """What is quarantined: "host", "image"."""
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
            await asyncio.wait(late, timeout=REMOVE_S)
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
            events.LEASE_EXPIRED, desktop=lease.desktop, lease=lease.number, holder=lease.holder, state=str(state),
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
                    self._log.emit(events.LIMITS_KEPT, cause=str(unfit))
                self._unfit = str(unfit)
        try:
            async with asyncio.timeout(self._config.boot_timeout_s):
                booted = await self._desktops.boot(self._config.boot_timeout_s)
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
            self._health.booted(booted.desktop.name)
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

    def _remove_later(self, desktop: Desktop) -> None:
        """Its processes were too slow to end, mostly on a busy host."""
        if not self._closed:
            self._spawn(self._desktops.remove_again(desktop), _REMOVE)
