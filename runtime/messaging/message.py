"""What travels between actors: typed messages, their bytes, and the envelope around them.

Invariant: a message is an immutable, typed value in MessagePack, even inside one process. Decoding is strict against
the one type that both sides know; nothing on the wire chooses what is loaded. Every envelope has a deadline in seconds
of the run's clock.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import secrets
from typing import Any, Generic, Literal, TypeVar, dataclass_transform, get_args, get_origin

import msgspec

from runtime.errors import ActorFailed, ComputerRLError, ConfigError, ProtocolError, named

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


_TRANSPORT = frozenset({"ActorGone", "DeadlineExceeded", "MailboxFull"})


def encode(value: object) -> bytes:
    """MessagePack of a message or config. Raises ProtocolError when it holds what can't be encoded."""
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"can't encode {type(value).__name__}: {error}") from error


@functools.cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def decode(body: bytes, kind: Any) -> Any:
    """The value of type `kind` in `body`. Raises ProtocolError when it is anything else."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


@functools.cache
def reply_type(request: type) -> Any:
    """`R` of the `Request[R]` that `request` derives from. Raises ProtocolError when there is none."""
    for cls in request.__mro__:
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is Request:
                return get_args(base)[0]
    raise ProtocolError(f"{request.__name__} does not say its reply type: derive it from Request[...]")


def encode_error(error: BaseException) -> bytes:
    """An error as name and text."""
    if isinstance(error, ActorFailed):
        return encode([error.type_name, error.text])
    return encode([type(error).__name__, str(error)[:4000]])


def decode_error(body: bytes, *, from_handler: bool) -> ComputerRLError:
    """The error to raise at the asker: ActorFailed where this process knows no class of its name.

    A handler's ActorGone, DeadlineExceeded or MailboxFull concerns the handler's own peers, so it arrives as
    ActorFailed. A bare one always concerns this ask itself.
    """
    name, text = decode(body, tuple[str, str])
    cls = named(name)
    if cls is None or cls.__init__ is not Exception.__init__ or (from_handler and name in _TRANSPORT):
        return ActorFailed(name, text)
    return cls(text)


def import_path(cls: type) -> str:
    """`package.module:Class`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def load(path: str) -> Any:
    """The object at `package.module:name`. Raises ConfigError when there is none."""
    module_name, _, qualname = path.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for part in qualname.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"can't load {path}: {error}") from error
    return target


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
