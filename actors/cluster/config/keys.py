"""The keys of a deploy file, from where they are declared.

Invariant: a key, its type, its default and its meaning are read from the class that a deploy file is checked against
and from the comment beside the field, so that what is told here is what counts.
"""

from __future__ import annotations

import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from actors.cluster.config.schema import EXPERT, Deploy

_PLAIN: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true | false", NoneType: "null"
}  # fmt: skip


class Key(msgspec.Struct, frozen=True):
    """One of them; of an entry of a list it is `list[].key`."""

    key: str
    type: str
    default: str | None  # as YAML has it; None: it must be said
    expert: bool  # whether it also needs run.expert
    meaning: str


def of_deploy() -> list[Key]:
    """All keys, in order of declaration."""
    return list(_of(Deploy, ""))


def _of(struct: type[msgspec.Struct], at: str, chosen: str = "") -> Iterator[Key]:
    said = comments(struct)
    for field in msgspec.structs.fields(struct):
        key = f"{at}.{field.encode_name}" if at else field.encode_name
        meaning = " ".join(filter(None, (chosen, said.get(field.name, ""))))
        parts = list(_parts(field.type))
        if not any(map(_is_struct, parts)):
            yield Key(key, " or ".join(map(_called, parts)), _default(field), key in EXPERT, meaning)
        entries = [inner for part in parts if get_origin(part) is list for inner in _parts(get_args(part)[0])]
        yield from _chosen([part for part in parts if _is_struct(part)], key, chosen, _default(field))
        yield from _chosen([inner for inner in entries if _is_struct(inner)], f"{key}[]", chosen, None)


def _chosen(structs: list[type[msgspec.Struct]], at: str, chosen: str, default: str | None) -> Iterator[Key]:
    """The keys of what lies at `at`, which is one of `structs`; which, its `type` says where there are several."""
    tags = [str(one.__struct_config__.tag) for one in structs]
    if len(structs) > 1:
        field = str(structs[0].__struct_config__.tag_field)
        usual = None if default is None else msgspec.json.decode(default)[field]
        yield Key(f"{at}.{field}", " | ".join(tags), usual, expert=False, meaning="which of them it is")
    for one, tag in zip(structs, tags, strict=True):
        yield from _of(one, at, f"({tag})" if len(structs) > 1 else chosen)


def _parts(shape: Any) -> Iterator[Any]:
    """What a value may be, one by one."""
    if get_origin(shape) is Annotated:
        shape = get_args(shape)[0]
    if get_origin(shape) in (Union, UnionType):
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


@lru_cache(maxsize=64)
def comments(struct: type) -> dict[str, str]:
    """Each field's comment: what stands after it on its line, else right above it."""
    found: dict[str, str] = {}
    for declared in reversed(struct.__mro__):
        if issubclass(declared, msgspec.Struct) and declared is not msgspec.Struct:
            found |= _read(inspect.getsource(declared))
    return found


def _read(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    above: list[str] = []
    words: list[str] = []  # of the statement that is being read
    for token in tokenize.generate_tokens(io.StringIO(textwrap.dedent(source)).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.removeprefix("#").strip()
            if words[1:2] == [":"]:
                found[words[0]] = re.sub(r"^noqa: \S+ - ", "", text)
            else:
                above.append(text)
        elif token.type == tokenize.NEWLINE:
            if words[1:2] == [":"] and above:
                found.setdefault(words[0], " ".join(above))
            words, above = [], []
        elif token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
            words.append(token.string)
    return found


def matching(word: str, keys: Iterable[Key]) -> list[Key]:
    """Those that have `word` in them, or in what they mean."""
    low = word.lower()
    return [one for one in keys if low in one.key.lower() or low in one.meaning.lower()]


def told(one: Key) -> str:
    """Name, default and type on a line, and what it means on the next ones."""
    default = "(no default)" if one.default is None else f"= {one.default}"
    expert = ", an expert's key" if one.expert else ""
    head = f"{one.key} {default}   {one.type}{expert}"
    return "\n".join([head, *textwrap.wrap(one.meaning, 108, initial_indent="    ", subsequent_indent="    ")])
