"""Messages to bytes and back, and objects by import path.

Invariant: decoding is strict against the one type that both sides know; nothing on the wire chooses what is loaded.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, get_args, get_origin

import msgspec

from runtime.errors import ActorFailed, ComputerRLError, ConfigError, ProtocolError, named
from runtime.messaging.message import Request

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
