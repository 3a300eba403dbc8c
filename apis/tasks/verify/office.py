"""The documents that tasks on the office want, made of their rules. `apis.documents.read.office` compares with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apis.documents.docx import Aligned, Run, make_docx
from apis.documents.odp import make_odp
from apis.documents.xlsx import Formula, Value, make_xlsx
from apis.guest.addresses import Place, place_of

_SIZE = "size "
_ALIGNED = {"justify": "both"}


def workbook(rules: dict[str, Any]) -> bytes:
    """A workbook of the sheets `expected`: {"name", "cells": {address: value}, "formulas": {address: range}} each.

    In the cells of `formulas` stands the sum of the range. Raises ValueError for an address that there is none of.
    """
    return make_xlsx({sheet["name"]: _rows(sheet["cells"], sheet.get("formulas", {})) for sheet in rules["expected"]})


def _rows(cells: Mapping[str, Any], formulas: Mapping[str, str]) -> list[list[Value]]:
    placed: dict[Place, Value] = {_place(name): _value(value) for name, value in cells.items()}
    placed |= {_place(name): Formula(f"SUM({cells})") for name, cells in formulas.items()}
    last = max((row for row, _ in placed), default=-1)
    rows: list[list[Value]] = []
    for row in range(last + 1):
        width = max((column for at, column in placed if at == row), default=-1)
        rows.append([placed.get((row, column)) for column in range(width + 1)])
    return rows


def _place(name: str) -> Place:
    place = place_of(name)
    if place is None:
        raise ValueError(f"{name!r} names no cell")
    return place


def _value(value: Any) -> Value:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text_document(rules: dict[str, Any]) -> bytes:
    """A text document of the paragraphs `expected`: {"text", "looks", "layout"} each.

    `looks` are "strike" and "size N" in points, `layout` is "center", "right" or "justify". Others raise ValueError.
    """
    return make_docx([_paragraph(one) for one in rules["expected"]])


def _paragraph(one: dict[str, Any]) -> Run | Aligned:
    looks, layout = one.get("looks", ()), one.get("layout", ())
    sizes = [float(look.removeprefix(_SIZE)) for look in looks if look.startswith(_SIZE)]
    if len(sizes) > 1 or len(layout) > 1 or any(look != "strike" and not look.startswith(_SIZE) for look in looks):
        raise ValueError(f"no text looks like {looks} and {layout}")
    run = Run(one["text"], strike="strike" in looks, size=sizes[0] if sizes else 0.0)
    return Aligned(run, _ALIGNED.get(layout[0], layout[0])) if layout else run


def presentation(rules: dict[str, Any]) -> bytes:
    """A presentation of the slides `expected`: {"boxes": [[kind, text], ...]} each."""
    return make_odp([[(kind, text) for kind, text in slide["boxes"]] for slide in rules["expected"]])
