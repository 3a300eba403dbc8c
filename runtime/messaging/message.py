"""What travels between actors.

Invariant: a message is an immutable, typed value with a bounded encoding without pickle (MessagePack). Unknown fields
are refused, so two builds that disagree fail with an error.
"""

from __future__ import annotations

from typing import Generic, TypeVar, dataclass_transform

import msgspec

ReplyT_co = TypeVar("ReplyT_co", covariant=True)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag=True):
    """Base of everything that crosses a mailbox; its tag on the wire is the class name, unless it says another."""


def tag_of(kind: type[msgspec.Struct]) -> str:
    """What a message is called on the wire."""
    return str(kind.__struct_config__.tag or kind.__name__)


class Request(Message, Generic[ReplyT_co]):
    """A message that asks for a reply of type `ReplyT_co`.

    `class Reserve(Request[Reservation])` declares that `ref.ask(Reserve(...))` returns a `Reservation`.
    """


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of untagged values nested in messages."""


class Done(Message):
    """The reply of a request that has nothing to say but that it was carried out."""


class BlobRef(Value):
    """Where a stored payload lies: a byte range of one append-only segment file, named by its content."""

    segment: str  # file name inside the run's segment folder
    offset: int  # bytes from the start of the file
    size: int  # bytes
    digest: str  # blake2b-128 of the payload, hex


class Version(Value, order=True):
    """Which weights: a lineage and the optimizer steps taken in it; totally ordered."""

    lineage: int
    step: int

    def __str__(self) -> str:
        return f"{self.lineage}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> Version:
        """Inverse of `str`. Raises ValueError when `text` is not `LINEAGE.STEP`."""
        lineage, dot, step = text.partition(".")
        if not dot:
            raise ValueError(f"a weight version is LINEAGE.STEP, not {text!r}")
        return cls(lineage=int(lineage), step=int(step))
