"""OfficeWorld's three metrics, by its published rules: what is said counts, and neither looks nor places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from apis.documents.read import contents
from apis.documents.read.bounds import Bounds, Budget, RefusedError
from apis.guest import addresses
from apis.guest.addresses import Place
from apis.tasks.metrics.metric import (
    DOCUMENT_MAX,
    SOLVED,
    Declared,
    Options,
    Score,
    UnreadableResult,
    Value,
    data,
    document,
    gold,
    is_,
)
from apis.tasks.verify.verify import FileView, Sheet, SheetCell, Workbook

KIND = "workbook"
COLOURED = "CF"  # in a result's name: its colours count
_EMPTY = SheetCell()
Cell = str | float | tuple[str, float] | None
Read = Callable[[bytes, Budget], Any]


def _read(value: Value, read: Read) -> Any:
    """What `read` finds in a file. Raises UnreadableResult."""
    try:
        return read(data(value, DOCUMENT_MAX), Budget(Bounds()))
    except RefusedError as error:
        raise UnreadableResult(f"it can't be read: {error}") from None


def _expected(value: Value, read: Read) -> Any:
    """The same of the task's file. Raises LookupError."""
    try:
        return _read(value, read)
    except UnreadableResult as error:
        raise LookupError(f"what is expected: {error}") from None


def simple_docx_compare(result: Value, expected: Value, _: Options) -> Score:
    """The bodies say the same in one order, paragraphs' ends left out; so do tables, text boxes, notes and comments."""
    wanted, there = _expected(expected, contents.text_document), _read(result, contents.text_document)
    differ = next((part for part in there.__struct_fields__ if getattr(there, part) != getattr(wanted, part)), "")
    return is_(not differ, "the documents say the same", f"of its {differ} something differs")


def simple_pptx_compare(result: Value, expected: Value, _: Options) -> Score:
    """Slide by slide the texts of boxes and tables, and the number of pictures, agree in whatever order."""
    wanted, there = _expected(expected, contents.slides), _read(result, contents.slides)
    if len(there) != len(wanted):
        return Score(0.0, f"it has {len(there)} slides and not {len(wanted)}")
    differ = next(
        (at for at, pair in enumerate(zip(there, wanted, strict=True), 1) if _said(pair[0]) != _said(pair[1])), 0
    )
    return is_(not differ, "the presentations say the same", f"slide {differ} differs")


def _said(slide: contents.SlideWords) -> tuple[list[str], int, int, int]:
    return sorted([*slide.boxes, *slide.tables]), len(slide.boxes), len(slide.tables), slide.pictures


def compare_spreadsheet(result: Value, expected: Value, options: Options) -> Score:
    """The cells of `answer_position` agree, numbers to two digits; of several ranges the last one counts."""
    name, first, last = position(options)
    there, wanted = document(result, KIND), gold(expected, KIND)
    name = name or wanted.sheets[0].name
    one, other = _sheet(there, name), _sheet(wanted, name)
    if other is None:
        raise LookupError(f"what is expected has no sheet {name!r}")
    if not wanted.calculated:
        raise LookupError("what is expected was never calculated: no formula in it has a result")
    if one is None:
        return Score(0.0, f"it has no sheet {name[:40]!r}")
    coloured = isinstance(result, FileView) and COLOURED in result.name
    for place in sorted(one.cells.keys() | other.cells.keys()):
        at = addresses.place_of(place)
        if at is None or not (first[0] <= at[0] <= last[0] and first[1] <= at[1] <= last[1]):
            continue
        mine, right = one.cells.get(place, _EMPTY), other.cells.get(place, _EMPTY)
        values = _compared(mine), _compared(right)
        if type(values[0]) is not type(values[1]) or values[0] != values[1]:
            return Score(0.0, f"{place} is another")
        if coloured and (mine.font, mine.fill) != (right.font, right.fill):
            return Score(0.0, f"{place} has another colour")
    return Score(SOLVED, "the cells agree")


def _sheet(book: Workbook, name: str) -> Sheet | None:
    return next((sheet for sheet in book.sheets if sheet.name == name), None)


def position(options: Options) -> tuple[str, Place, Place]:
    """The sheet ("" is the first), and the first and last cell that count. Raises LookupError."""
    said = str(options.get("answer_position", "")).rpartition(",")[2].strip()
    name, _, cells = said.rpartition("!")
    cells = cells.strip("'").replace("$", "")
    found = addresses.range_of(cells if ":" in cells else f"{cells}:{cells}")
    if found is None:
        raise LookupError(f"answer_position {said!r}")
    rows, columns = zip(*found, strict=True)
    return name.strip("'"), (min(rows), min(columns)), (max(rows), max(columns))


def _lacks(options: Options) -> str:
    try:
        position(options)
    except LookupError as error:
        return str(error.args[0])
    return ""


def _compared(cell: SheetCell) -> Cell:
    """A cell as the rules see it: numbers to two digits, dates in whole days, times without their seconds."""
    value = cell.value
    if isinstance(value, str):
        return value[:-3] if cell.kind == "time" else _said_number(value)
    if value is None:
        return None
    if cell.kind == "span":
        return cell.kind, value
    return float(round(value)) if cell.kind == "date" else round(float(value), 2)


def _said_number(text: str) -> Cell:
    try:
        value = round(float(text), 2)
    except ValueError:
        return text or None
    return text if math.isnan(value) else value


DECLARED = (
    Declared("simple_docx_compare", simple_docx_compare),
    Declared("simple_pptx_compare", simple_pptx_compare),
    Declared("compare_spreadsheet", compare_spreadsheet, reads=KIND, lacks=_lacks),
)
