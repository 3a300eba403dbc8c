"""What a function is that a model may call, and what an action is that comes of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="function"):
    """Base of everything a model can do; on the wire and in JSON the field `function` names it."""


class Tool(Action, frozen=True, tag="tool"):
    """Call an application's function; `arguments` holds every parameter's value, those at their defaults too."""

    owner: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Param:
    """One parameter: `kind` names a check (`apis.actions.arguments`, `apis.functions.values`), `limits` its bounds or
    the values allowed.

    A parameter whose default is None takes None, too.
    """

    name: str
    kind: str
    published_type: str
    limits: tuple[Any, ...] = ()
    default: Any = msgspec.NODEFAULT
    meaning: str = ""

    @property
    def required(self) -> bool:
        """Whether the call must name it."""
        return self.default is msgspec.NODEFAULT

    @property
    def told(self) -> str:
        """What a prompt says of it: its meaning, and of a choice every value that its meaning does not name."""
        values = [str(value) for value in self.limits] if self.kind == "choice" else []
        if all(value in self.meaning for value in values):
            return self.meaning
        return f"{self.meaning}: one of {', '.join(map(repr, values))}".removeprefix(": ")


@dataclass(frozen=True)
class Function:
    """What a model may call: its published class and name, the action it makes, and what it does in a sentence."""

    owner: str
    name: str
    action: type[Action]
    params: tuple[Param, ...]
    description: str

    @property
    def signature(self) -> str:
        """The call as a prompt shows it."""
        parts = (f"{p.name}: {p.published_type}" + ("" if p.required else f" = {p.default!r}") for p in self.params)
        return f"{self.owner}.{self.name}({', '.join(parts)})"
