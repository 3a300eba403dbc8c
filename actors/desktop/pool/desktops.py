"""Boots, checks and removes the desktops of one provider.

Invariant: a desktop that did not come up leaves nothing behind, and a removal that failed is tried again. Every desktop
moves through `Lives`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from actors.desktop import events
from actors.desktop.faults import error_for
from actors.desktop.link import GuestLink, LinkDown, evidence_of
from actors.desktop.pool.lifecycle import Lease, Lives
from actors.desktop.provider import Desktop, DesktopHealth, DesktopSpec, Provider
from actors.errors import DesktopFault, GuestRefused
from runtime.disk import Log

CHECK_S = 5.0  # for a spare to answer before it is handed out
REMOVE_S = 30.0  # for one desktop to be destroyed
REMOVE_AGAIN_S = (5.0, 30.0, 120.0)  # pauses before what a busy host did not let go is removed again


class BootedDesktop(msgspec.Struct, frozen=True, eq=False):
    """A desktop that answers, the link to its agent, and its holder's lease. A spare has no lease."""

    provider: Provider
    desktop: Desktop
    link: GuestLink
    lives: Lives
    lease: Lease | None = None


class ProvidedDesktops:
    """What a pool does to one desktop at a time. `left` is called with a desktop that the host did not let go."""

    def __init__(
        self, provider: Provider, spec: DesktopSpec, lives: Lives, log: Log, left: Callable[[Desktop], None]
    ) -> None:
        self._provider = provider
        self.spec = spec  # of the next boot
        self._lives = lives
        self._log = log
        self._left = left

    async def boot(self, timeout_s: float) -> BootedDesktop:
        """A new desktop that has answered. Raises DesktopFault and OSError."""
        desktop = await self._provider.boot(self.spec)
        self._lives.begin(desktop.name)
        try:
            link = await GuestLink.open(desktop, timeout_s=timeout_s)
        except BaseException as error:
            self._lives.retire(desktop.name)
            async with asyncio.timeout(REMOVE_S):  # shielded: the boot's own deadline may come meanwhile
                health = await asyncio.shield(self._post_mortem(desktop))
            if isinstance(error, LinkDown):
                raise error_for(evidence_of(health, error, acted=False)) from error
            raise
        self._lives.booted(desktop.name)
        return BootedDesktop(self._provider, desktop, link, self._lives)

    async def _post_mortem(self, desktop: Desktop) -> DesktopHealth:
        """What is left of a desktop that did not come up. Removes it."""
        health = await self._provider.probe(desktop)
        await self.throw_away(desktop, None)
        return health

    async def answers(self, booted: BootedDesktop) -> bool:
        """Whether a spare is alive and answers now."""
        health = await self._provider.probe(booted.desktop)
        detail = "its sandbox has ended"
        if health.alive:
            try:
                await booted.link.call("ping", timeout_s=CHECK_S)
            except (LinkDown, GuestRefused) as error:
                detail = str(error)
            else:
                return True
        self._log.emit(events.DESKTOP_SPARE_DIED, desktop=booted.desktop.name, detail=detail)
        return False

    async def throw_away(self, desktop: Desktop, link: GuestLink | None, holder: str = "") -> None:
        """Close the link and destroy the desktop."""
        if link is not None:
            await link.close()
        used = (await self._provider.probe(desktop)).cpu_s
        self._log.emit(events.DESKTOP_GONE, desktop=desktop.name, holder=holder, cpu_s=used)
        if not await self._removed(desktop):
            self._left(desktop)
        self._lives.gone(desktop.name)

    async def remove_again(self, desktop: Desktop) -> None:
        """Try again after each pause. What the provider still holds after that goes when the provider closes."""
        for pause_s in REMOVE_AGAIN_S:
            await asyncio.sleep(pause_s)
            if await self._removed(desktop):
                return

    async def _removed(self, desktop: Desktop) -> bool:
        try:
            await self._provider.destroy(desktop)
        except (DesktopFault, OSError, TimeoutError) as error:
            self._log.emit(events.DESKTOP_NOT_REMOVED, desktop=desktop.name, detail=str(error)[:400])
            return False
        return True
