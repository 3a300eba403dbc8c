"""What a function is that a model may call, and what an action is that comes of a call.

The functions of an application are declared in a YAML file: the class that owns them, and of each function what it does
and its parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from runtime.errors import ConfigError

# The types that published functions give to parameters of a kind; those of any other kind are texts.
PUBLISHED_TYPES = {
    "integer": "int", "rgb": "int", "number": "float", "boolean": "bool", "spot": "Dict", "extent": "Dict",
    **dict.fromkeys(("scalars", "names", "letters", "indices", "lines"), "List"),
}  # fmt: skip


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
        parts = (f"{p.name}: {p.published_type}" + ("" if p.required else f" = {p.default!r}") for p in self.params)
        return f"{self.owner}.{self.name}({', '.join(parts)})"


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter in a file; a choice without a meaning says its values."""

    kind: str
    limits: list[str | int | float] = []
    default: str | int | float | bool | msgspec.UnsetType | None = msgspec.UNSET
    means: str = ""

    def named(self, name: str) -> Param:
        written = PUBLISHED_TYPES.get(self.kind, "str")
        if self.default is None:
            written = f"Optional[{written}]"
        means = self.means or (f"one of {', '.join(map(str, self.limits))}" if self.kind == "choice" else "")
        default = msgspec.NODEFAULT if self.default is msgspec.UNSET else self.default
        return Param(name, self.kind, written, tuple(self.limits), default, means)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    owner: str
    functions: dict[str, dict[str, str | Parameter]]


def read(file: Path) -> tuple[Function, ...]:
    """The functions that a YAML file declares. Raises ConfigError with the file for one of another form."""
    import yaml  # not as commands begin

    try:
        # The parser in C takes a tenth of the time, at every start of a process.
        content = yaml.load(file.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        declared = msgspec.convert(content, _File)
    except (OSError, msgspec.ValidationError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from error
    functions = []
    for name, parts in declared.functions.items():
        does = parts.get("does")
        params = {name: part for name, part in parts.items() if isinstance(part, Parameter)}
        if not isinstance(does, str) or len(params) != len(parts) - 1:
            raise ConfigError(f"{file}: {name}: `does` is a sentence, and each parameter has a kind")
        functions.append(Function(declared.owner, name, Tool, tuple(p.named(name) for name, p in params.items()), does))
    return tuple(functions)
