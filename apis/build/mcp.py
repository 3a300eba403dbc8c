"""Tools of MCP servers as declared functions, and declared functions as tools. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apis.built import BuiltFunction
from apis.functions.declaration import Function, Param

JSON_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "List": "array", "str": "string"}
FAR, TEXT_CHARS, ITEMS = 10**9, 1000, 100  # where a schema has no bound
_SAID = {"type", "title", "description", "default", "examples"}  # what bounds no value


def schema(function: Function) -> dict[str, Any]:
    """The JSON schema of a function's arguments."""
    properties = {param.name: _property(param) for param in function.params}
    required = [param.name for param in function.params if param.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _property(param: Param) -> dict[str, Any]:
    written = param.published_type.removeprefix("Optional[").rstrip("]")
    made: dict[str, Any] = {"description": param.meaning}
    if kind := JSON_TYPES.get(written):
        made["type"] = [kind, "null"] if param.default is None else kind
    if param.kind == "choice":
        made["enum"] = [*param.limits, *([None] if param.default is None else [])]
    if param.kind in ("integer", "number"):
        made |= dict(zip(("minimum", "maximum"), param.limits, strict=True))
    return made if param.required else made | {"default": param.default}


def taken(tools: Iterable[tuple[str, str, dict[str, Any]]]) -> tuple[list[BuiltFunction], dict[str, str]]:
    """The functions that tools of a name, a description and a schema become, and why each other tool is refused."""
    functions: dict[str, BuiltFunction] = {}
    refused: dict[str, str] = {}
    for tool, described, given in tools:
        name = re.sub(r"\W+|(?<=[a-z])(?=[A-Z])", "_", tool).lower()
        does = _line(described or tool)
        try:
            if name in functions:
                raise ValueError("its name is taken")
            params = {each: _parameter(each, how, given) for each, how in (given.get("properties") or {}).items()}
            made = {"name": name, "does": does, "params": params, "code": tool}
            functions[name] = msgspec.convert(made, BuiltFunction)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            refused[tool[:60]] = str(error)[:200]
    return list(functions.values()), refused


def _line(text: object) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())[:300]


def _parameter(name: str, how: Any, given: dict[str, Any]) -> dict[str, Any]:
    """A property in the form of a declared parameter; one that may be left out has a default. Raises ValueError."""
    if not isinstance(how, dict):
        raise ValueError(f"{name}: no schema")
    kinds = [each for each in how.get("anyOf") or [how] if isinstance(each, dict) and each.get("type") != "null"]
    if len(kinds) != 1:
        raise ValueError(f"{name}: of several types")
    kind, limits = _kind(name, kinds[0])
    default = {} if name in given.get("required", []) else {"default": how.get("default")}
    means = _line(how.get("description") or how.get("title") or "")
    return {"kind": kind, "limits": limits, "means": means} | default


def _kind(name: str, how: dict[str, Any]) -> tuple[str, list[Any]]:
    wanted, known = how.get("type"), how.keys() - _SAID
    if known == {"enum"} and all(isinstance(each, str) for each in how["enum"]):
        return "choice", list(how["enum"])
    if wanted in ("integer", "number") and known <= {"minimum", "maximum"}:
        return wanted, [how.get("minimum", -FAR), how.get("maximum", FAR)]
    if wanted == "boolean" and not known:
        return "boolean", []
    if wanted == "string" and known <= {"maxLength"}:
        return "text", [min(int(how.get("maxLength", TEXT_CHARS)), 4000)]
    if wanted == "array" and known <= {"items", "maxItems"} and _kind(name, how["items"]) == ("text", [TEXT_CHARS]):
        return "names", [min(int(how.get("maxItems", ITEMS)), ITEMS)]
    raise ValueError(f"{name}: {str(wanted)[:40]} with {', '.join(sorted(known))[:80]} is not of the closed set")
