"""Tools of MCP servers become declared functions, within the closed set, and functions become tools."""

from __future__ import annotations

from typing import Any

import pytest

from apis.build.mcp import schema, taken
from apis.catalogue import TOOLS
from apis.functions.values import Unfit, fit


def tool(name: str = "addNote", required: bool = True, **properties: Any) -> tuple[str, str, dict[str, Any]]:
    names = sorted(properties) if required else []
    return name, "Add a note.\nEditorTools.save()", {"type": "object", "properties": properties, "required": names}


def test_a_tool_becomes_a_function_with_bounds() -> None:
    given = tool(count={"type": "integer", "minimum": 1, "maximum": 9}, kind={"enum": ["a", "b"]})
    more = tool(
        "remove", required=False, tags={"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    )
    (add, remove), refused = taken([given, more])
    assert refused == {}
    assert (add.name, add.code, remove.name, remove.code) == ("add_note", "addNote", "remove", "remove")
    assert "\n" not in add.does
    count = add.params["count"].named("count")
    assert fit(count, 9) == 9
    with pytest.raises(Unfit, match="count"):
        fit(count, 10)
    assert remove.params["tags"].named("tags").default is None


def deep(levels: int) -> dict[str, Any]:
    """Arrays of arrays."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (tool(x={"type": "object"}), "x: object"),
        (tool(x={"$ref": "#/x"}), "x: None"),
        (tool(x={"type": "string", "pattern": "(a+)+"}), "x: string"),
        (tool(x={"anyOf": [{"type": "string"}, {"type": "integer"}]}), "x: of several"),
        (tool(x={"type": "array", "items": {"type": "object"}}), "x: object"),
        (tool(x={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}), "x: array"),
        (tool(x={"type": "integer", "exclusiveMinimum": 0}), "x: integer with exclusiveMinimum"),
        (tool(x={"type": "string", "minLength": 1}), "x: string with minLength"),
        (tool(x={"type": "integer", "enum": [1, 2]}), "x: integer with enum"),
        (tool(x={"type": "array"}), "items"),
        (tool(x=deep(2000)), ""),
        (tool(x=True), "x: no schema"),
        (tool(**{"import": {"type": "string"}}), "import can't be a name"),
        (tool("x"), "regex"),
        (tool(**{f"name{n}": {"type": "boolean"} for n in range(9)}), "length <= 6"),
        (tool(x={"enum": ["a\nb", "c"]}), "one line"),
        (tool(x={"type": "integer", "minimum": "a"}), "numbers"),
        (tool(x={"type": "string", "maxLength": float("inf")}), "infinity"),
        (("odd", "It does.", {"properties": ["x"]}), "items"),
    ],
)
def test_a_tool_outside_of_the_closed_set_is_refused_by_name(given: Any, why: str) -> None:
    functions, refused = taken([given])
    assert functions == []
    assert why in refused[given[0]]


def test_every_function_has_a_schema() -> None:
    every = [each for functions in TOOLS.values() for each in functions]
    assert len(every) == 103
    for function in every:
        made = schema(function)
        assert set(made["properties"]) == {param.name for param in function.params}
    merge = next(each for each in every if each.name == "set_zoom_level")
    assert schema(merge)["properties"]["zoom_percentage"] | {"description": ""} == {
        "description": "",
        "type": "integer",
        "minimum": 20,
        "maximum": 600,
    }
