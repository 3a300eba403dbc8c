"""Whether a workbook says what it should.

Invariant: strict. Every cell of every sheet is compared, so a task is solved only if no other cell changed. Numbers are
compared as numbers and text as text: "42" in quotes is not 42. A formula counts only where a task asks for it, and only
with the number that `formula` works out from its cells. No stored result is believed. Looks, charts, merged cells and
hidden rows are not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from apis.tasks.verify.formula import FormulaError, evaluate
from apis.tasks.verify.sheets import Sheet
from apis.tasks.verify.verify import FileView, TaskVerdict

TOLERANCE = 1e-9  # relative, of a number: what a file's decimal form may lose
_PLACE = r"\$?([A-Z]{1,3})\$?([1-9][0-9]{0,6})"
_TEXT = re.compile(r'"[^"]*"')
_REFERENCE = re.compile(rf"(?<![A-Za-z0-9_]){_PLACE}(?::\.?{_PLACE})?(?![A-Za-z0-9_(])")
_MOST_CELLS = 10_000  # of all ranges of a formula that are expanded
_SUBTOTAL = re.compile(r"\bSUBTOTAL\((?:9|109)[;,]")  # its first argument says that it is a sum
_NAME = re.compile(r"'[^']*'|[A-Za-z_][A-Za-z0-9_.]*")  # of a sheet or a function
_DIGIT = re.compile(r"[0-9]")


def workbook_is(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The workbook's sheets are `expected`, in this order, none hidden, and with nothing else in them.

    Each is {"name", "cells": {address: value}, "formulas": {address: range}}. A formula stands exactly in the cells of
    `formulas`; together its references name exactly the cells of the range, it holds no number itself, and its value is
    the one in `cells`.
    """
    if view.kind != "workbook" or view.workbook is None:
        return TaskVerdict(False, view.reason or f"it is {view.kind}")
    expected = rules["expected"]
    names = [sheet.name for sheet in view.workbook.sheets]
    if names != [wanted["name"] for wanted in expected]:
        return TaskVerdict(False, f"it has other sheets: {len(names)} where {len(expected)} are wanted, or other names")
    for sheet, wanted in zip(view.workbook.sheets, expected, strict=True):
        trouble = next(_troubles(sheet, wanted["cells"], wanted.get("formulas", {})), None)
        if trouble:
            return TaskVerdict(False, f"sheet {expected.index(wanted) + 1}: {trouble}")
    return TaskVerdict(True, "it says what it should")


def _troubles(sheet: Sheet, wanted: Mapping[str, Any], formulas: Mapping[str, str]) -> Iterator[str]:
    if sheet.hidden:
        yield "it is hidden"
    for place in sorted(wanted.keys() | sheet.cells.keys() | sheet.formulas.keys()):
        if place not in wanted:
            yield f"{place} should be empty"
        elif place not in sheet.cells:
            yield f"{place} is empty"
        elif not same(sheet.cells[place], wanted[place]):
            yield f"{place} says something else"
        elif place in formulas and place not in sheet.formulas:
            yield f"{place} has no formula"
        elif place not in formulas and place in sheet.formulas:
            yield f"{place} has a formula"
        elif place in formulas and references(sheet.formulas[place]) != references(formulas[place]):
            yield f"the formula in {place} refers to other cells"
        elif place in formulas and holds_number(sheet.formulas[place]):
            yield f"the formula in {place} holds a number itself"
        elif place in formulas and (trouble := _worked_out(sheet, place, wanted[place])):
            yield f"the formula in {place} {trouble}"


def _worked_out(sheet: Sheet, place: str, wanted: str | float | bool) -> str:
    """What is wrong with what the formula in `place` comes to, whatever the file says that it came to."""
    others = {name: value for name, value in sheet.cells.items() if name != place}
    try:
        found = evaluate(sheet.formulas[place], others, sheet.name)
    except FormulaError as error:
        return f"can't be worked out: {error}"
    return "" if same(found, wanted) else "comes to something else than the file says"


def same(found: str | float | bool, wanted: str | float | bool) -> bool:
    """Equal in kind and value; whole numbers and floats are of one kind."""
    if isinstance(found, bool) or isinstance(wanted, bool) or isinstance(found, str) or isinstance(wanted, str):
        return type(found) is type(wanted) and found == wanted
    return abs(found - wanted) <= TOLERANCE * max(abs(found), abs(wanted))


def references(formula: str) -> set[tuple[str, int]]:
    """Column and row of each cell that `formula` refers to; of ranges too large, or too many, only the ends."""
    cells, expanded = set[tuple[str, int]](), 0
    for found in _REFERENCE.finditer(_TEXT.sub("", formula)):
        first, top, last, bottom = found.groups()
        if last is None:
            cells.add((first, int(top)))
            continue
        columns = _columns(first, last)
        rows = range(min(int(top), int(bottom)), max(int(top), int(bottom)) + 1)
        if not columns or expanded + len(columns) * len(rows) > _MOST_CELLS:
            cells |= {(first, int(top)), (last, int(bottom))}
        else:
            expanded += len(columns) * len(rows)
            cells |= {(column, row) for column in columns for row in rows}
    return cells


def holds_number(formula: str) -> bool:
    """Whether a digit stands in it, in a text too, beside references and names, as in `=10+0*SUM(B2:B3)`."""
    rest = _REFERENCE.sub("", _SUBTOTAL.sub("(", formula))
    return bool(_DIGIT.search(_NAME.sub("", rest)))


def _columns(first: str, last: str) -> list[str]:
    """The columns between two; nothing beyond Z, where tasks have none."""
    if len(first) > 1 or len(last) > 1:
        return []
    low, high = sorted((ord(first), ord(last)))
    return [chr(letter) for letter in range(low, high + 1)]
