"""The keys of a deploy file, from where they are declared.

Invariant: a key, its type, its default, its bounds and its meaning are read from the class that a deploy file is
checked against, so that what is told here is what counts.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from actors.cluster.config.schema import DeployFile
from runtime.settings import ADVANCED

_PLAIN: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true | false", NoneType: "null", Any: "value",
}  # fmt: skip


class Key(msgspec.Struct, frozen=True):
    """One of them; of an entry of a list it is `list[].key`."""

    key: str
    type: str
    default: str | None  # as YAML has it; None: it must be said
    advanced: bool  # few users need it
    meaning: str


def of_deploy() -> list[Key]:
    """All keys, in order of declaration. What the entries of several lists share is told of the first list."""
    return list(_of(DeployFile, "", {}))


def _of(struct: type[msgspec.Struct], at: str, told: dict[type, str], chosen: str = "") -> Iterator[Key]:
    for field in msgspec.structs.fields(struct):
        key = f"{at}.{field.encode_name}" if at else field.encode_name
        parts = list(_parts(field.type))
        entries = [inner for part in parts if get_origin(part) is list for inner in _parts(get_args(part)[0])]
        structs = [inner for inner in entries if _is_struct(inner)]
        same = next((told[one] for one in structs if one in told), "")
        if not any(map(_is_struct, parts)):
            said, advanced = _said(field.type)
            shared = f"Its entries are those of {same}." if same else ""
            meaning = " ".join(filter(None, (chosen, said, shared)))
            yield Key(key, " or ".join(map(_called, parts)), _default(field), advanced, meaning)
        yield from _chosen([part for part in parts if _is_struct(part)], key, told, chosen, _default(field))
        if not same:
            told.update(dict.fromkeys(structs, key))
            yield from _chosen(structs, f"{key}[]", told, chosen, None)


def _chosen(
    structs: list[type[msgspec.Struct]], at: str, told: dict[type, str], chosen: str, default: str | None
) -> Iterator[Key]:
    """The keys of what lies at `at`, which is one of `structs`; which, its `type` says where there are several."""
    tags = [str(one.__struct_config__.tag) for one in structs]
    if len(structs) > 1:
        usual = None if default is None else msgspec.json.decode(default)["type"]
        yield Key(f"{at}.type", " | ".join(tags), usual, advanced=at.endswith("[]"), meaning="Chooses which it is.")
    for one, tag in zip(structs, tags, strict=True):
        yield from _of(one, at, told, f"({tag})" if len(structs) > 1 else chosen)


def _said(annotation: Any) -> tuple[str, bool]:
    """What an annotation says of its key, and whether few users need it."""
    metas = [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    said = next((one for one in metas if one.description), msgspec.Meta(description=""))
    return said.description or "", bool((said.extra or {}).get(ADVANCED))


def _parts(shape: Any) -> Iterator[Any]:
    """What a value may be, one by one."""
    if get_origin(shape) is Annotated:
        yield from _parts(get_args(shape)[0])
    elif get_origin(shape) in (Union, UnionType):
        for part in get_args(shape):
            yield from _parts(part)
    else:
        yield shape


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _called(shape: Any) -> str:
    if get_origin(shape) is Literal:
        return " | ".join(map(str, get_args(shape)))
    if isinstance(shape, type) and issubclass(shape, Enum):
        return " | ".join(str(one.value) for one in shape)
    if get_origin(shape) in (list, dict, tuple):
        return "mapping" if get_origin(shape) is dict else "list"
    return _PLAIN[shape]


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.default_factory is not msgspec.NODEFAULT:
        value: Any = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        value = field.default
    else:
        return None
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) and plain else msgspec.json.encode(plain).decode()


def usual(keys: Iterable[Key]) -> list[Key]:
    """Those that most users need."""
    return [one for one in keys if not one.advanced]


def matching(word: str, keys: Iterable[Key]) -> list[Key]:
    """Those that have `word` in them, or in what they mean."""
    low = word.lower()
    return [one for one in keys if low in one.key.lower() or low in one.meaning.lower()]


def told(one: Key, columns: int) -> str:
    """Name, default and type on a line, and what it means on the next ones, of at most `columns` characters."""
    default = "(no default)" if one.default is None else f"= {one.default}"
    head = f"{one.key} {default}   {one.type}"
    return "\n".join([head, *textwrap.wrap(one.meaning, columns, initial_indent="    ", subsequent_indent="    ")])


def schema() -> dict[str, Any]:
    """The JSON schema of deploy files, for editors that complete and check them."""
    found = msgspec.json.schema(DeployFile)
    definitions = found["$defs"]
    for definition in definitions.values():  # what a section's keys say is not said once more of the section
        for shown in definition.get("properties", {}).values():
            if isinstance(shown.get("default"), dict) and ("$ref" in shown or "anyOf" in shown):
                del shown["default"]
    for default in _defaults(DeployFile()):
        # A mapping that leaves `type` out is of the default one.
        config = default.__struct_config__
        if config.tag is not None:
            definition = definitions[type(default).__name__]
            definition["required"] = [name for name in definition.get("required", []) if name != config.tag_field]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "ComputerRL deploy file", **found}


def _defaults(section: msgspec.Struct) -> Iterator[msgspec.Struct]:
    """A section with all that stand in it."""
    yield section
    for name in section.__struct_fields__:
        if isinstance(inner := getattr(section, name), msgspec.Struct):
            yield from _defaults(inner)
