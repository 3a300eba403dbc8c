"""Tools of MCP servers as declared functions, and declared functions as tools. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apis import built
from apis.functions.declaration import Function, Param, Parameter

JSON_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "List": "array", "str": "string"}
FAR = 10**9  # the bound of a number whose schema has none
TEXT_CHARS, ITEMS = 1000, 100  # where a schema has no bound


class ToolRefusedError(Exception):
    """A tool's schema is not of the closed set; the text says what."""


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


def taken(
    tools: Iterable[tuple[str, str, dict[str, Any]]],
) -> tuple[dict[str, built.BuiltFunction], dict[str, str], dict[str, str]]:
    """Functions by name, the tools that they are, and why each other tool is refused."""
    functions, names, refused = {}, {}, {}
    for tool, described, given in tools:
        name = re.sub(r"\W+|(?<=[a-z])(?=[A-Z])", "_", tool).lower()
        try:
            params = {each: _parameter(each, how, given) for each, how in (given.get("properties") or {}).items()}
            does = " ".join("".join(c if c.isprintable() else " " for c in described or tool).split())[:300]
            if why := built.unsound(name, params) or ("its name is taken" if name in functions else ""):
                raise ToolRefusedError(why)
            functions[name] = msgspec.convert({"does": does, "params": params}, built.BuiltFunction)
            msgspec.convert({name: 0}, dict[built.Name, int])
            names[name] = tool
        except (ToolRefusedError, msgspec.ValidationError, TypeError, ValueError) as error:
            functions.pop(name, None) if name not in names else None
            refused[tool[:60]] = str(error)[:200]
    return functions, names, refused


def _parameter(name: str, how: Any, given: dict[str, Any]) -> Parameter:
    """A property as a parameter; one that may be left out has a default. Raises ToolRefusedError."""
    if not isinstance(how, dict):
        raise ToolRefusedError(f"{name}: no schema")
    kinds = how.get("anyOf") or [how]
    if len(other := [each for each in kinds if isinstance(each, dict) and each.get("type") != "null"]) != 1:
        raise ToolRefusedError(f"{name}: of several types")
    kind, limits = _kind(name, other[0])
    default = {} if name in given.get("required", []) else {"default": how.get("default")}
    means = " ".join(str(how.get("description") or how.get("title") or "").split())[:300]
    return msgspec.convert({"kind": kind, "limits": limits, "means": means} | default, Parameter)


def _kind(name: str, how: dict[str, Any]) -> tuple[str, list[Any]]:
    wanted, known = how.get("type"), set(how)
    if "enum" in known and all(isinstance(each, str) for each in how["enum"]):
        return "choice", list(how["enum"])
    if wanted in ("integer", "number"):
        return wanted, [how.get("minimum", -FAR), how.get("maximum", FAR)]
    if wanted == "boolean":
        return "boolean", []
    if wanted == "string" and not known & {"pattern", "format"}:
        return "text", [min(int(how.get("maxLength", TEXT_CHARS)), 4000)]
    if wanted == "array" and isinstance(items := how.get("items"), dict) and items.get("type") == "string":
        return "names", [min(int(how.get("maxItems", ITEMS)), ITEMS)]
    raise ToolRefusedError(f"{name}: {str(wanted)[:40]} with {', '.join(sorted(known))[:80]} is not of the closed set")
