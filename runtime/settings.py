"""Sections of settings, addresses that a person names, and seeds.

Invariant: a section never holds a number outside its annotation's bounds, whether a file, a flag or code made it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from runtime.errors import ConfigError

ADVANCED = "advanced"


def key(description: str, *, advanced: bool = False, **bounds: Any) -> msgspec.Meta:
    """What a key's annotation says: its meaning, its bounds (ge, gt, le, lt), and whether few users need it."""
    return msgspec.Meta(description=description, extra={ADVANCED: advanced}, **bounds)


def tuning(description: str, **bounds: Any) -> msgspec.Meta:
    """What `key` says, of a key that few users need."""
    return key(description, advanced=True, **bounds)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that stand together. Raises ConfigError for a number out of bounds, naming its key by its path."""

    AT: ClassVar[str] = ""  # the section's own path in a deploy file

    def __post_init__(self) -> None:
        for name, shape in _shapes(type(self)):
            for at, value, why in out_of_bounds(getattr(self, name), shape, f"{self.AT}.{name}".removeprefix(".")):
                raise ConfigError(f"{at} is {value}: {why}")


@lru_cache(maxsize=64)
def _shapes(section: type[Section]) -> tuple[tuple[str, inspect.Type], ...]:
    shape = inspect.type_info(section)
    return tuple((field.name, field.type) for field in shape.fields) if isinstance(shape, inspect.StructType) else ()


def parts(shape: inspect.Type) -> tuple[inspect.Type, ...]:
    """What a value of this type may be, type by type."""
    if isinstance(shape, inspect.Metadata):
        return parts(shape.type)
    if isinstance(shape, inspect.UnionType):
        return tuple(part for each in shape.types for part in parts(each))
    return (shape,)


def items(value: Any, part: inspect.Type) -> list[tuple[object, Any, inspect.Type]]:
    """What lies in a list, a tuple or a mapping of type `part`: its place, the item and its type; nothing in others."""
    if isinstance(value, dict) and isinstance(part, inspect.DictType):
        return [(key, item, part.value_type) for key, item in value.items()]
    if isinstance(value, list | tuple) and isinstance(part, inspect.TupleType):
        return [(n, item, its) for n, (item, its) in enumerate(zip(value, part.item_types, strict=False))]
    if isinstance(value, list | tuple) and isinstance(part, inspect.ListType | inspect.VarTupleType):
        return [(n, item, part.item_type) for n, item in enumerate(value)]
    return []


def out_of_bounds(value: Any, shape: inspect.Type, at: str) -> Iterator[tuple[str, Any, str]]:
    """Path, value and reason of each number in `value` that its type's bounds exclude."""
    for part in parts(shape):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and isinstance(part, inspect.IntType | inspect.FloatType) and (why := _excluded(value, part)):
            yield at, value, why
        for place, item, its in items(value, part):
            yield from out_of_bounds(item, its, f"{at}.{place}")


def _excluded(value: float, part: inspect.IntType | inspect.FloatType) -> str:
    """Why a number is out of bounds; empty where it is not."""
    if not math.isfinite(value):
        return "it is a finite number"
    low, high = part.ge if part.ge is not None else part.gt, part.le if part.le is not None else part.lt
    inside = (
        (part.ge is None or value >= part.ge)
        and (part.gt is None or value > part.gt)
        and (part.le is None or value <= part.le)
        and (part.lt is None or value < part.lt)
    )
    if inside:
        return ""
    if isinstance(part, inspect.IntType):
        return f"it counts from {low}" + (f" to {high}" if high is not None else "")
    if high is None:
        return f"it is at least {low:g}" if part.ge is not None else f"it is above {low:g}"
    below = f"{high:g}" if part.le is not None else f"below {high:g}"
    return f"it is from {low:g} to {below}" if part.ge is not None else f"it is above {low:g} and up to {below}"


_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def refuse_bad_url(url: str, at: str, instead: str) -> None:
    """Raise ConfigError unless `url` is `http(s)://HOST[:PORT][/PATH]` without credentials.

    `at` names the key or flag in the error; `instead` says where a secret belongs.
    """
    try:
        parts = urlsplit(url)
        host, user, _ = parts.hostname, parts.username, parts.port  # the port is checked when it is read
    except ValueError as error:
        raise ConfigError(f"{at} is {masked(url)!r}: {error}") from None
    if user is not None or _CREDENTIALS.search(url):
        raise ConfigError(f"{at} is {masked(url)!r}: it holds a user name or password, which logs repeat; {instead}")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{at} is {url!r}: a server is http://HOST:PORT or https://HOST:PORT")
    if parts.query or parts.fragment:
        raise ConfigError(f"{at} is {url!r}: leave out what follows {'?' if parts.query else '#'}; {instead}")


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach the address or name `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def masked(text: str) -> str:
    """`text` with the credentials of every address in it replaced by `***`."""
    return _CREDENTIALS.sub("***@", text)


def stable_seed(*parts: object) -> int:
    """A 63-bit seed from the text of `parts`, equal on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
