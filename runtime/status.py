"""What an actor is doing now, as `status` shows it.

Invariant: a status holds copies, bounded in size; reading it changes nothing.
"""

from __future__ import annotations

import msgspec


class WaitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One wait of the actor: for `what` from `whom`."""

    whom: str
    what: str
    waited_s: float
    left_s: float
    trace: str | None


class ActorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One actor. `current` is the message it has been busy on longest, from `sender`, for `busy_s` seconds."""

    name: str
    host: str
    machine: str = ""  # of the host's process, where it is on another one than the run
    pid: int
    state: str  # starting, running, restarting, stopping, failed, host_lost or host_silent
    doing: str
    mailbox: int = 0
    in_flight: int = 0
    current: str | None = None
    sender: str | None = None
    busy_s: float = 0.0
    restarts: int = 0
    waits: list[WaitStatus] = []
