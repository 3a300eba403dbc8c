"""The base of every error that this program raises on purpose, and the errors of messages, hosts and stores.

Invariant: an error that crosses an actor's border derives from ComputerRLError, and its name means one class. Any other
error is a defect and restarts the actor that it arose in. A library's errors are translated where they arise.
"""

# ruff: noqa: N818 - an error is named after its condition, as in `except MailboxFull`

from __future__ import annotations

from typing import Any

_NAMED: dict[str, type[ComputerRLError]] = {}  # every subclass that this process has imported


def named(name: str) -> type[ComputerRLError] | None:
    """The error class of that name, or None where this process has imported no such class."""
    return _NAMED.get(name)


class ComputerRLError(Exception):
    """Base of all errors with a meaning. Its text is for people and fits on one line.

    Raises TypeError where a second class of the same name is declared: an error travels between processes by its name.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        first = _NAMED.setdefault(cls.__name__, cls)
        if (first.__module__, first.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two errors are named {cls.__name__}: in {first.__module__} and in {cls.__module__}")
        _NAMED[cls.__name__] = cls


class ConfigError(ComputerRLError):
    """What the user gave can't work; says which setting and what to do. Never cured by a restart."""


class ProtocolError(ComputerRLError):
    """Two parts disagree about a message, a frame or a log event: a defect, not a condition."""


class DeadlineExceeded(ComputerRLError):
    """A wait reached its deadline; the text says who waited how long for what from whom."""


class MailboxFull(ComputerRLError):
    """The peer's mailbox pushed back until the deadline; the message was not delivered."""


class ActorGone(ComputerRLError):
    """The peer does not exist, stopped, restarted or lost its host while the message was with it."""


class ActorFailed(ComputerRLError):
    """The peer's handler raised; `type_name` and `text` are of the error it raised."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text


class HostLost(ComputerRLError):
    """A process host ended without being asked to."""


class StoreError(ComputerRLError):
    """Stored bytes are missing, torn or not what their digest says, or can't be written."""


class DiskRefuses(StoreError):
    """The disk takes no more bytes: it is full or fails. The same request succeeds once it takes them."""


class PayloadLost(StoreError):
    """A stored payload is gone, freed, torn or not what its digest says: another try would read the same."""
