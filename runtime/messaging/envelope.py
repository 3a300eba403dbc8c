"""What wraps a message on its way.

Invariant: every envelope has a deadline in seconds of the run's clock. They mean the same on every host, and setting a
machine's clock does not move them. Its body is MessagePack, even when sender and receiver share a process.
"""

from __future__ import annotations

import itertools
import secrets
from typing import Literal

import msgspec

Kind = Literal["ask", "tell", "reply", "accepted", "error"]

_process = secrets.token_hex(4)
_count = itertools.count()


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="envelope"):
    """One hop-independent message. `reply_to` is the host that keeps the sender's pending ask."""

    id: str
    kind: Kind
    to: str
    sender: str
    reply_to: str
    trace: str | None
    deadline: float
    message: str  # class name of the message; in an error "handler" or "runtime", by what raised it
    body: bytes

    def left_s(self, now: float) -> float:
        """Seconds from `now`, on the run's clock, to the deadline; negative when it has passed."""
        return self.deadline - now

    def answer(self, kind: Kind, type_name: str, body: bytes) -> Envelope:
        """The envelope that answers this one."""
        return Envelope(
            id=self.id,
            kind=kind,
            to=self.sender,
            sender=self.to,
            reply_to=self.reply_to,
            trace=self.trace,
            deadline=self.deadline,
            message=type_name,
            body=body,
        )


def fresh_id() -> str:
    """An id that no other process and no other call ever gives."""
    return f"{_process}-{next(_count)}"
