"""The life of each desktop of a pool: its states, its boot and removal, and the quarantine of its host and image.

Invariant: a desktop has at most one holder in its life. Only the newest lease's holder may use it, and only until its
deadline. A frozen desktop never acts again. A desktop that did not come up leaves nothing behind, and a removal that
failed is tried again. Every desktop ends `gone`.

booting -> ready -> leased -> acted -> frozen -> retiring -> gone; to `retiring` from every state before it.

Transitions that are missing on purpose:
- leased, acted or frozen -> ready: its holder may have changed the desktop. A new desktop costs less processor time
  than a proof that it is unchanged, so no desktop is handed out twice.
- booting -> leased: only a desktop that has answered is handed out.
- acted -> leased: this state decides whether a fault can still be the infrastructure's alone.
- frozen -> anything but retiring: what the verifier has read must stay what the episode ended with.
- anything but retiring -> gone: what a desktop holds on the host is given back in one way only.
- retiring -> anything but gone: a desktop that was taken back is being killed, even under a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from actors.desktop.faults import Culprit, DesktopHealth, error_for
from actors.desktop.link import GuestLink, LinkDown, evidence_of
from actors.desktop.network import Network
from actors.desktop.provider import Desktop, DesktopSpec, Provider
from actors.errors import DesktopFault, GuestRefused, LeaseLost
from runtime.disk import Log
from runtime.errors import ProtocolError
from runtime.logs.events import declare
from runtime.supervision import Quarantine, QuarantinePolicy

# Desktops have these limits from the next boot on, by what their machine has room for.
LIMITS_FITTED = declare("limits_fitted", "info", memory_mib=int, processes=int, open_files=int, terminals=int)
# Even the least limits don't fit beside what has come since: the limits stay as they are.
LIMITS_KEPT = declare("limits_kept", "warning", cause=str)
DESKTOP_BOOTED = declare("desktop_booted", "info", desktop=str, boot_s=float, warnings=list[str])
DESKTOP_BOOT_FAILED = declare("desktop_boot_failed", "warning", cause=str, detail=str, culprit=str, again_s=float)
DESKTOP_SPARE_DIED = declare("desktop_spare_died", "warning", desktop=str, detail=str)
DESKTOP_NOT_REMOVED = declare("desktop_not_removed", "error", desktop=str, detail=str)
# A desktop is thrown away: its holder ("" for a spare), and what its guest has used, 0 where that is unknown.
DESKTOP_GONE = declare("desktop_gone", "info", desktop=str, holder=str, cpu_s=float)
LEASE_EXPIRED = declare("lease_expired", "warning", desktop=str, lease=int, holder=str, state=str, held_s=float)
HOST_QUARANTINED = declare("host_rests", "warning", cause=str, detail=str, faults=int)
HOST_LET_BACK = declare("host_let_back", "info", desktop=str, rested_s=float)
IMAGE_QUARANTINED = declare("image_rests", "warning", image=str, cause=str, detail=str, faults=int)
IMAGE_LET_BACK = declare("image_let_back", "info", image=str, desktop=str, rested_s=float)


class DesktopState(StrEnum):
    """Where a desktop is between its boot and its end."""

    BOOTING = "booting"
    READY = "ready"  # it has answered and has no holder
    LEASED = "leased"
    ACTED = "acted"  # leased, and the policy has acted on it
    FROZEN = "frozen"  # leased, and it may be read alone
    RETIRING = "retiring"
    GONE = "gone"


_NEXT: dict[DesktopState, frozenset[DesktopState]] = {
    DesktopState.BOOTING: frozenset({DesktopState.READY, DesktopState.RETIRING}),
    DesktopState.READY: frozenset({DesktopState.LEASED, DesktopState.RETIRING}),
    DesktopState.LEASED: frozenset({DesktopState.ACTED, DesktopState.FROZEN, DesktopState.RETIRING}),
    DesktopState.ACTED: frozenset({DesktopState.FROZEN, DesktopState.RETIRING}),
    DesktopState.FROZEN: frozenset({DesktopState.RETIRING}),
    DesktopState.RETIRING: frozenset({DesktopState.GONE}),
    DesktopState.GONE: frozenset(),
}
_HELD = frozenset({DesktopState.LEASED, DesktopState.ACTED, DesktopState.FROZEN})


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to use one desktop until `until` (monotonic seconds). `number` grows with every lease of the pool."""

    desktop: str
    number: int
    holder: str
    since: float
    until: float


class _Life:
    def __init__(self) -> None:
        self.state = DesktopState.BOOTING
        self.lease: Lease | None = None


class Lives:
    """All desktops of one pool that are not gone."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}  # the pool's plan and its callers bound it
        self._number = 0

    def __len__(self) -> int:
        return len(self._lives)

    def state(self, desktop: str) -> DesktopState:
        """Where it is. An unknown desktop is gone."""
        life = self._lives.get(desktop)
        return DesktopState.GONE if life is None else life.state

    def names(self, *states: DesktopState) -> list[str]:
        return [name for name, life in self._lives.items() if life.state in states]

    def begin(self, desktop: str) -> None:
        """It boots. Raises ProtocolError for a name in use."""
        if desktop in self._lives:
            raise ProtocolError(f"desktop {desktop} is alive already")
        self._lives[desktop] = _Life()

    def booted(self, desktop: str) -> None:
        self._move(desktop, DesktopState.READY)

    def lease(self, desktop: str, holder: str, now: float, lasts_s: float) -> Lease:
        """Hand it to `holder` alone. Raises ProtocolError unless it is ready."""
        life = self._move(desktop, DesktopState.LEASED)
        self._number += 1
        life.lease = Lease(desktop=desktop, number=self._number, holder=holder, since=now, until=now + lasts_s)
        return life.lease

    def may_call(self, lease: Lease, now: float) -> None:
        """Return if `lease` allows a call. Raises LeaseLost when it is over, ProtocolError on a frozen desktop."""
        if self._held(lease, now).state is DesktopState.FROZEN:
            raise ProtocolError(f"desktop {lease.desktop} is frozen: it never acts again")

    def act(self, lease: Lease, now: float) -> None:
        """The policy is about to act on it. Raises as `may_call`."""
        self.may_call(lease, now)
        if self.state(lease.desktop) is DesktopState.LEASED:
            self._move(lease.desktop, DesktopState.ACTED)

    def freeze(self, lease: Lease, now: float) -> None:
        """It is about to be frozen for good. Raises as `may_call`."""
        self.may_call(lease, now)
        self._move(lease.desktop, DesktopState.FROZEN)

    def may_read(self, lease: Lease, now: float) -> None:
        """Return if it may be read from outside. Raises LeaseLost, and ProtocolError unless it is frozen."""
        if self._held(lease, now).state is not DesktopState.FROZEN:
            raise ProtocolError(f"desktop {lease.desktop} is not frozen: what is read might change")

    def retire(self, desktop: str) -> bool:
        """Take it out of use, from whatever state; False when that was done before."""
        if self.state(desktop) in (DesktopState.RETIRING, DesktopState.GONE):
            return False
        self._move(desktop, DesktopState.RETIRING)
        return True

    def gone(self, desktop: str) -> None:
        """It holds nothing on the host any more. Raises ProtocolError unless it was retiring."""
        self._move(desktop, DesktopState.GONE)
        del self._lives[desktop]

    def _held(self, lease: Lease, now: float) -> _Life:
        life = self._lives.get(lease.desktop)
        if life is None or life.state not in _HELD or life.lease is None or life.lease.number != lease.number:
            raise LeaseLost(f"lease {lease.number} of {lease.holder or 'an unnamed holder'} on {lease.desktop} is over")
        if now >= lease.until:
            late_s = now - lease.until
            raise LeaseLost(f"lease {lease.number} of {lease.holder} on {lease.desktop} ended {late_s:.1f} s ago")
        return life

    def _move(self, desktop: str, to: DesktopState) -> _Life:
        at = self.state(desktop)
        if to not in _NEXT[at]:
            raise ProtocolError(f"desktop {desktop} can't go from {at} to {to}")
        life = self._lives[desktop]
        life.state = to
        return life


_USE, _PROBE = 0, 1


class PoolHealth:
    """Whether a pool's host and its image give desktops. `image` is the image's name in the log.

    A quarantine begins after so many faults in a row and ends only with a desktop that boots and answers. An episode
    that ends well does not end one: it began before and says nothing of new desktops. A boot does not shorten the
    streak: a host may boot desktops and then lose each of them.
    """

    def __init__(self, policy: QuarantinePolicy, image: str, log: Log) -> None:
        self._policy = policy
        self._log = log
        self._image = image
        self._kept = {str(culprit): Quarantine() for culprit in (Culprit.HOST, Culprit.IMAGE)}
        self._since: dict[str, float] = {}  # "host", "image"
        self._well = asyncio.Event()
        self._well.set()

    @property
    def quarantined(self) -> tuple[str, ...]:
        return tuple(culprit for culprit, kept in self._kept.items() if kept.quarantined)

    def probe_delay_s(self) -> float:
        """Seconds to wait before the next probe; 0 when nothing is quarantined."""
        waits = (kept.probe_delay_s(self._policy) for kept in self._kept.values() if kept.quarantined)
        return max(waits, default=0.0)

    def faulted(self, error: DesktopFault) -> None:
        """Count a fault against its culprit, where that is the host or its image."""
        before = self._kept.get(error.culprit)
        if before is None:
            return
        use, now = _PROBE if before.quarantined else _USE, time.monotonic()
        after = self._kept[error.culprit] = before.began(use).faulted(use, self._policy, now)
        if before.quarantined or not after.quarantined:
            return
        self._since[error.culprit] = now
        self._well.clear()
        about: dict[str, Any] = {"cause": error.cause, "detail": error.detail[:400], "faults": after.streak}
        if error.culprit is Culprit.HOST:
            self._log.emit(HOST_QUARANTINED, **about)
        else:
            self._log.emit(IMAGE_QUARANTINED, image=self._image, **about)

    def booted(self, desktop: str) -> None:
        """A desktop boots and answers, so nothing stays quarantined."""
        for culprit in self.quarantined:
            self._kept[culprit] = self._kept[culprit].began(_PROBE).ended(_PROBE, self._policy)
            about: dict[str, Any] = {"desktop": desktop, "rested_s": time.monotonic() - self._since.pop(culprit)}
            if culprit == Culprit.HOST:
                self._log.emit(HOST_LET_BACK, **about)
            else:
                self._log.emit(IMAGE_LET_BACK, image=self._image, **about)
        self._well.set()

    def succeeded(self) -> None:
        self._kept = {culprit: kept.ended(_USE, self._policy) for culprit, kept in self._kept.items()}

    async def wait(self, timeout_s: float) -> bool:
        """Wait until neither the host nor its image is quarantined. False when one still is after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._well.wait()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        self._well.set()


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
        self.network: Network | None = None  # that desktops reach

    async def boot(self, timeout_s: float) -> BootedDesktop:
        """A new desktop that has answered. Raises DesktopFault and OSError."""
        desktop = await self._provider.boot(self.spec)
        self._lives.begin(desktop.name)
        try:
            link = await GuestLink.open(desktop, timeout_s=timeout_s, network=self.network)
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
        health = await self._provider.probe(booted.desktop)
        detail = "its sandbox has ended"
        if health.alive:
            try:
                await booted.link.call("ping", timeout_s=CHECK_S)
            except (LinkDown, GuestRefused) as error:
                detail = str(error)
            else:
                return True
        self._log.emit(DESKTOP_SPARE_DIED, desktop=booted.desktop.name, detail=detail)
        return False

    async def throw_away(self, desktop: Desktop, link: GuestLink | None, holder: str = "") -> None:
        if link is not None:
            await link.close()
        used = (await self._provider.probe(desktop)).cpu_s
        self._log.emit(DESKTOP_GONE, desktop=desktop.name, holder=holder, cpu_s=used)
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
            self._log.emit(DESKTOP_NOT_REMOVED, desktop=desktop.name, detail=(str(error) or type(error).__name__)[:400])
            return False
        return True
