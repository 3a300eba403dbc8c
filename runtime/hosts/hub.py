"""What a process host needs of the system that it belongs to.

Invariant: none of these calls waits, so a host's reader never stands still for the system.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from runtime.messaging.envelope import Envelope


class Hub(Protocol):
    """What a process host needs of the system."""

    def route(self, envelope: Envelope) -> None:
        """Take an envelope that came from the child. Never waits."""
        ...

    def host_lost(self, host: str, names: Collection[str], reason: str) -> None:
        """The child and the actors `names` in it are gone."""
        ...

    def give_up(self, name: str, reason: str) -> None:
        """Something can't be kept alive."""
        ...
