"""Tells faults of the infrastructure from what the policy did to its own desktop.

Invariant: a fault needs a cause that the host has seen. After the policy's first action every other end of a desktop is
the policy's doing. Before the first action only the infrastructure can be at fault.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from actors.errors import AgentBrokeDesktop, DesktopFault


class Culprit(StrEnum):
    """What quarantine counts a fault against."""

    SEAT = "seat"
    HOST = "host"
    IMAGE = "image"


class FaultCause(StrEnum):
    """Why no desktop could be leased or one was lost, by a cause that the host has seen; and the fault's culprit."""

    culprit: Culprit

    def __new__(cls, cause: str, culprit: Culprit) -> FaultCause:
        made = str.__new__(cls, cause)
        made._value_, made.culprit = cause, culprit
        return made

    SANDBOX_REFUSED = "sandbox_refused", Culprit.HOST  # the kernel or a missing program did not let it start
    BOOT_TIMEOUT = "boot_timeout", Culprit.HOST
    BOOT_FAILED = "boot_failed", Culprit.IMAGE  # it started and ended, or what answered was no desktop
    CONNECTION_LOST = "connection_lost", Culprit.SEAT  # of one that had answered and that no policy has acted on
    AGENT_SILENT = "agent_silent", Culprit.SEAT  # likewise: a call passed its deadline
    NO_SPARE = "no_spare", Culprit.HOST  # the pool had none before the caller's deadline
    SANDBOX_KILLED = "sandbox_killed", Culprit.SEAT  # a signal from outside the sandbox
    HOST_MEMORY = "host_memory", Culprit.HOST
    HOST_STALLED = "host_stalled", Culprit.HOST  # this process itself did not get to run
    MACHINE_UNREACHABLE = "machine_unreachable", Culprit.HOST  # a machine of its own, reached by SSH
    OUTSIDE_VIEW = "outside_view", Culprit.SEAT  # the host could not look into HOME
    STILL_RUNNING = "still_running", Culprit.SEAT  # its programs went on after they were stopped
    LEASE_EXPIRED = "lease_expired", Culprit.SEAT  # the pool took the desktop back; raised as LeaseLost


class BrokenBy(StrEnum):
    """What the policy's doing looked like from the host."""

    MEMORY_LIMIT = "memory_limit"
    PROCESS_LIMIT = "process_limit"
    SESSION_ENDED = "session_ended"
    NONSENSE = "nonsense"  # a frame or a reply that the agent never sends
    LINK_CLOSED = "link_closed"  # the agent or its SSH server was ended inside
    NO_ANSWER = "no_answer"
    TOO_SLOW = "too_slow"  # each call was answered in time, all of them together were not
    STILL_RUNNING = "still_running"  # its programs woke as often as they were stopped


class LinkState(StrEnum):
    """The state of the link to the agent."""

    UP = "up"
    LOST = "lost"
    SILENT = "silent"  # a call passed its deadline
    NONSENSE = "nonsense"


class DesktopHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What the host sees of a desktop now."""

    alive: bool
    said: str = ""  # the end of what its sandbox has said
    exit_signal: int = 0  # of the sandbox's outer process: no process inside can send it one
    oom_kills: int = 0  # processes of this desktop that the kernel killed for memory
    limit_hits: int = 0  # times that it reached its own limit of memory
    processes_refused: int = 0  # times that it reached its own limit of processes
    reachable: bool = True  # False: the machine that it runs on does not answer the host's own connection
    memory_left: float = 1.0  # the host's available memory as a share of all
    cpu_s: float = 0.0  # processor seconds since boot, 0 where unknown


class Evidence(DesktopHealth, frozen=True, kw_only=True):
    """What the host saw of a desktop that is in trouble."""

    alive: bool = True
    acted: bool  # the policy has acted on this desktop
    ready: bool = False  # it had answered before, so its boot and its image are in order
    link: LinkState = LinkState.UP
    loop_lag_s: float = 0.0  # how long the host's event loop did not run at worst while it was asked
    detail: str = ""


MEMORY_LEFT_LEAST = 0.02
LOOP_LAG_MOST_S = 5.0


def cause_of(seen: Evidence) -> FaultCause | BrokenBy:
    """What ended the desktop. The host's own troubles are looked for first."""
    if not seen.reachable:
        return FaultCause.MACHINE_UNREACHABLE
    if seen.oom_kills and not seen.limit_hits:
        return FaultCause.HOST_MEMORY  # the kernel killed it for another program's need of memory
    if seen.acted and seen.oom_kills:  # at its own limit: judged before the signals that may have come of it
        return BrokenBy.MEMORY_LIMIT
    if seen.acted and seen.processes_refused:
        return BrokenBy.PROCESS_LIMIT
    if seen.exit_signal:
        return FaultCause.SANDBOX_KILLED
    if seen.link is LinkState.SILENT and seen.loop_lag_s > LOOP_LAG_MOST_S:
        return FaultCause.HOST_STALLED
    if seen.link is LinkState.SILENT and seen.memory_left < MEMORY_LEFT_LEAST:
        return FaultCause.HOST_MEMORY
    if not seen.acted and seen.ready and seen.alive and seen.link is not LinkState.NONSENSE:
        return FaultCause.AGENT_SILENT if seen.link is LinkState.SILENT else FaultCause.CONNECTION_LOST
    if not seen.acted:
        silent = seen.alive and seen.link is LinkState.SILENT
        return FaultCause.BOOT_TIMEOUT if silent else FaultCause.BOOT_FAILED
    if seen.link is LinkState.NONSENSE:
        return BrokenBy.NONSENSE
    if not seen.alive:
        return BrokenBy.SESSION_ENDED
    return BrokenBy.LINK_CLOSED if seen.link is LinkState.LOST else BrokenBy.NO_ANSWER


def fault(cause: FaultCause, detail: str) -> DesktopFault:
    """The error for a cause that is known."""
    return DesktopFault(cause, detail, cause.culprit)


def error_for(seen: Evidence) -> DesktopFault | AgentBrokeDesktop:
    """The error to raise for a desktop in trouble."""
    cause = cause_of(seen)
    if isinstance(cause, FaultCause):
        return fault(cause, seen.detail)
    return AgentBrokeDesktop(cause, seen.detail)
