"""The catalogue of log events.

Invariant: an event's name, level and fields are declared once. A log line that differs from its declaration can't be
written, so readers of logs may rely on the catalogue.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from runtime.errors import ProtocolError

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
RESERVED = frozenset({"ts", "t", "level", "event", "actor", "trace"})
_KINDS = (str, int, float, bool, list, dict, types.NoneType)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Event:
    """One declared event: its name, level, and the type of each field."""

    name: str
    level: str
    fields: Mapping[str, Any]

    def check(self, values: Mapping[str, object]) -> None:
        """Raise ProtocolError unless `values` has exactly the declared fields with values of their types."""
        if values.keys() != self.fields.keys():
            missing = sorted(self.fields.keys() - values.keys())
            extra = sorted(values.keys() - self.fields.keys())
            raise ProtocolError(f"event {self.name}: missing fields {missing}, undeclared fields {extra}")
        for name, value in values.items():
            if not matches(value, self.fields[name]):
                raise ProtocolError(f"event {self.name}: field {name} is not {self.fields[name]}: {value!r:.80}")


_catalogue: dict[str, Event] = {}


def declare(name: str, level: str, /, **fields: Any) -> Event:
    """Put an event into the catalogue. Raises ProtocolError for a name already taken or a type that can't be logged."""
    if name in _catalogue:
        raise ProtocolError(f"event {name} is declared twice")
    if not _NAME.fullmatch(name) or level not in LEVELS:
        raise ProtocolError(f"event {name!r} with level {level!r}: names are snake_case, levels are {list(LEVELS)}")
    for field, kind in fields.items():
        if field in RESERVED:
            raise ProtocolError(f"event {name}: field {field} is reserved")
        if not _loggable(kind):
            raise ProtocolError(f"event {name}: field {field} can't be logged as {kind}")
    event = _catalogue[name] = Event(name, level, types.MappingProxyType(dict(fields)))
    return event


def declare_struct(name: str, level: str, kind: type[msgspec.Struct]) -> Event:
    """Declare an event with the fields of the struct `kind`, which `fields_of` takes from one.

    A field of a type that can't be logged is logged as text. Raises as `declare` does.
    """
    hints = get_type_hints(kind)
    fields = {field: hints[field] for field in kind.__struct_fields__}
    return declare(name, level, **{field: of if _loggable(of) else str for field, of in fields.items()})


def fields_of(struct: msgspec.Struct) -> dict[str, Any]:
    """What an event of `declare_struct` says of `struct`."""
    values = {field: getattr(struct, field) for field in struct.__struct_fields__}
    return {field: value if isinstance(value, _KINDS) else str(value) for field, value in values.items()}


def _loggable(declared: Any) -> bool:
    return all(kind in _KINDS for kind in _alternatives(declared))


def _alternatives(declared: Any) -> list[Any]:
    if get_origin(declared) in (Union, types.UnionType):
        return [kind for arg in get_args(declared) for kind in _alternatives(arg)]
    return [types.NoneType if declared is None else get_origin(declared) or declared]


def matches(value: object, declared: Any) -> bool:
    """Whether `value` may stand in a field of type `declared`; an int passes as a float, a bool only as a bool."""
    for kind in _alternatives(declared):
        if isinstance(value, bool):
            if kind is bool:
                return True
        elif isinstance(value, (int, float) if kind is float else kind):
            return True
    return False
