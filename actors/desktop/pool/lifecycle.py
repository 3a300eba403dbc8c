"""The life of each desktop of a pool, and which lease may use it when. Pure: takes `now`, does no I/O.

Invariant: a desktop has at most one holder in its life. Only the newest lease's holder may use it, and only until its
deadline. A frozen desktop never acts again. Every desktop ends `gone`.

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

from enum import StrEnum

import msgspec

from actors.errors import LeaseLost
from runtime.errors import ProtocolError


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
        """Desktops in any of `states`, oldest first."""
        return [name for name, life in self._lives.items() if life.state in states]

    def begin(self, desktop: str) -> None:
        """It boots. Raises ProtocolError for a name in use."""
        if desktop in self._lives:
            raise ProtocolError(f"desktop {desktop} is alive already")
        self._lives[desktop] = _Life()

    def booted(self, desktop: str) -> None:
        """It has answered."""
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

    def overdue(self, now: float) -> list[Lease]:
        """Leases past their deadline that were not given back, in the order of handing out."""
        held = [life.lease for life in self._lives.values() if life.state in _HELD and life.lease is not None]
        return [lease for lease in held if now >= lease.until]

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
