"""OfficeWorld's three metrics, by its published rules: what is said counts, and neither looks nor places.

Invariant: all or nothing. Both sides are read by one reader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

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
from apis.tasks.verify.looks import SheetLooks, StyledWorkbook
from apis.tasks.verify.sheets import Sheet
from apis.tasks.verify.verify import FileView

KIND = "styled_workbook"
COLOURED = "CF"  # in a result's name: its colours count
_COLOURS = ("font_color", "bgcolor")
_DAY_MS = 86_400_000
_UNSAID = re.compile(r'"[^"]*"|\\.|_.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)  # of a format: no date is meant
_DATES = re.compile("[dmhys]", re.IGNORECASE)
_SPAN = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
Cell = str | float | timedelta | None
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


class _Side(NamedTuple):
    """The sheet whose cells count, in one of the workbooks."""

    sheet: Sheet
    looks: SheetLooks

    def look(self, place: str, name: str) -> str | float | bool | None:
        """One look of a cell."""
        return self.looks.looks.get(place, self.looks.plain).get(name)

    def cell(self, place: str) -> Cell:
        """A cell as the rules see it: a number or a date to its bound, a text that is a number as one."""
        value = self.sheet.cells.get(place, "")
        if isinstance(value, str):
            return _said_number(value)
        code = _UNSAID.sub("", str(self.look(place, "format") or "")).partition(";")[0]
        if isinstance(value, bool) or not _DATES.search(code):
            return round(float(value), 2)
        return timedelta(milliseconds=round(value * _DAY_MS)) if _SPAN.search(code) else _date(value)


def compare_spreadsheet(result: Value, expected: Value, options: Options) -> Score:
    """The cells of `answer_position` agree, numbers to two digits; of several ranges the last one counts."""
    name, first, last = position(options)
    books: list[StyledWorkbook] = [document(result, KIND), gold(expected, KIND)]
    name = name or books[1].sheets[0].name
    one, other = (_side(book, name) for book in books)
    if other is None:
        raise LookupError(f"what is expected has no sheet {name!r}")
    if one is None:
        return Score(0.0, f"it is no xlsx with a sheet {name[:40]!r}")
    looks = _COLOURS if isinstance(result, FileView) and COLOURED in result.name else ()
    for place in sorted({place for side in (one, other) for place in (*side.sheet.cells, *side.looks.looks)}):
        at = addresses.place_of(place)
        if at is None or not (first[0] <= at[0] <= last[0] and first[1] <= at[1] <= last[1]):
            continue
        cells = one.cell(place), other.cell(place)
        if type(cells[0]) is not type(cells[1]) or cells[0] != cells[1]:
            return Score(0.0, f"{place} is another")
        if any(one.look(place, look) != other.look(place, look) for look in looks):
            return Score(0.0, f"{place} has another colour")
    return Score(SOLVED, "the cells agree")


def _side(book: StyledWorkbook, name: str) -> _Side | None:
    """The sheet of this name; None where there is none, or where the file is no xlsx."""
    return next((_Side(*pair) for pair in zip(book.sheets, book.looks, strict=False) if pair[0].name == name), None)


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


def _said_number(text: str) -> Cell:
    try:
        value = round(float(text), 2)
    except ValueError:
        return text or None
    return text if math.isnan(value) else value


def _date(value: float) -> Cell:
    """A date in whole days since 1899-12-30, a time of day in hours and minutes."""
    days, of_day = divmod(round(value * _DAY_MS), _DAY_MS)
    if 0 <= value < 1 and not days:
        minutes, ms = divmod(of_day, 60_000)
        shown = f"{minutes // 60:02d}:{minutes % 60:02d}"
        return f"{shown}:{ms // 1000:02d}.{ms % 1000:03d}" if ms % 1000 else shown
    return float(round(days + (0 < value < 60) + of_day / _DAY_MS))


DECLARED = (
    Declared("simple_docx_compare", simple_docx_compare),
    Declared("simple_pptx_compare", simple_pptx_compare),
    Declared("compare_spreadsheet", compare_spreadsheet, reads=KIND, lacks=_lacks),
)
