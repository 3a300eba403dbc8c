"""The parsers of hostile files by kind: SQLite databases, workbooks, and what LibreOffice made of a document.

Invariant: for any bytes the answer is a bounded value or RefusedError. Where memory is bounded it may be MemoryError.
"""

from __future__ import annotations

import io
import math
import posixpath
import re
import sqlite3
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from apis.documents.read import office
from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Bounds, Budget, RefusedError
from apis.documents.read.markup import MarkupHandler, MarkupTree, walk
from apis.documents.zip import zipped
from apis.guest.addresses import ROWS

if TYPE_CHECKING:
    from openpyxl.styles.colors import Color

_TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_VALUE_BYTES = 1 << 20
_HEAD, _JOURNALS = b"SQLite format 3\0", slice(18, 20)  # the latter say whether changes go to a second file first
_COMPOUND = bytes.fromhex("d0cf11e0a1b11ae1")  # what an encrypted xlsx is wrapped into, and what old formats are
_MARKUP, _NAMING = (".xml", ".rels"), (".rels", "[Content_Types].xml")  # of which the latter name parts
_FORMULA, _RESULT = (
    re.compile(rb"<(?!xm:)(?:\w+:)?f[ />]"),  # xm:f is a place that a sparkline or a list of values comes from
    re.compile(rb"(?:</(?:\w+:)?f>|<(?:\w+:)?f[^>]*/>)\s*<(?:\w+:)?v>[^<]"),
)
_FIRST_DAY = datetime(1899, 12, 30)
_DAY, _MS = timedelta(days=1), timedelta(milliseconds=1)


def database(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The tables of another program's SQLite file, as `apis.tasks.verify.verify.Database` has them.

    Nothing that the file's schema defines runs but its columns; what is no table is left out. What another file next
    to this one holds, as changes not yet written back, is not seen. Raises RefusedError.
    """
    budget = Budget(bounds)
    if not data.startswith(_HEAD):
        raise RefusedError("not_a_database")
    plain = bytearray(data)
    plain[_JOURNALS] = b"\1\1"
    opened = sqlite3.connect(":memory:")
    try:
        opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(len(plain), _VALUE_BYTES))
        opened.deserialize(bytes(plain))
        opened.text_factory = lambda text: text.decode("utf-8", "replace")
        opened.execute("PRAGMA trusted_schema = OFF")
        named = [name for name, sql in opened.execute(_TABLES) if not _virtual(sql)]
        return {"tables": {str(name): _table(opened, str(name), budget) for name in named}}
    except (sqlite3.Error, OverflowError, ValueError):  # the last of a column whose name is no UTF-8
        raise RefusedError("not_a_database") from None
    finally:
        opened.close()


def _virtual(sql: object) -> bool:
    return not isinstance(sql, str) or sql.split()[:2] != ["CREATE", "TABLE"]


def _table(opened: sqlite3.Connection, name: str, budget: Budget) -> dict[str, Any]:
    quoted = name.replace('"', '""')
    found = opened.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - a name can be no parameter, and it is quoted
    rows = []
    for row in found:
        budget.spend("elements", len(row) + 1)
        budget.spend("chars", sum(len(value) for value in row if isinstance(value, str)))
        rows.append([_plain(value) for value in row])
    return {"columns": [column[0] for column in found.description], "rows": rows}


def _plain(value: Any) -> str | int | float | None:
    if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    plain: str | int | float | None = value
    return plain


def workbook(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The workbook as `apis.tasks.verify.verify.Workbook` has it. Raises RefusedError.

    openpyxl never sees the file itself. It gets a new archive of XML parts alone, which were unpacked within bounds and
    have neither a document type nor an entity.
    """
    import openpyxl  # most files need none

    budget = Budget(bounds)
    if data.startswith(_COMPOUND):
        raise RefusedError("encrypted" if "EncryptedPackage".encode("utf-16-le") in data else "not_a_workbook")
    parts = _parts(Archive(data, budget), budget)
    package = zipped(parts)
    try:
        book = openpyxl.load_workbook(io.BytesIO(package), read_only=True, data_only=True, keep_links=False)
        if not 0 < len(book.worksheets) <= budget.bounds.sheets:
            raise RefusedError("too_big" if book.worksheets else "not_a_workbook")
        sheets = [_sheet(sheet, budget) for sheet in book.worksheets]
        return {"sheets": sheets, "calculated": _any(_RESULT, parts) or not _any(_FORMULA, parts)}
    except (RefusedError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - of a broken file openpyxl raises nearly every error there is
        raise RefusedError("not_a_workbook") from None


def _any(pattern: re.Pattern[bytes], parts: Mapping[str, bytes]) -> bool:
    return any(pattern.search(data) for name, data in parts.items() if "sheet" in name.lower())


def _parts(archive: Archive, budget: Budget) -> dict[str, bytes]:
    """The XML parts, also under the names by which others name them with other capitals. Raises RefusedError."""
    parts, named = {}, list[str]()
    for name in (each for each in archive.names if each.lower().endswith(_MARKUP)):
        parts[name] = archive.read(name, budget.bounds.member_bytes)
        tree = MarkupTree(budget)
        walk([parts[name]], tree if name.endswith(_NAMING) else MarkupHandler(), {}, budget)
        folder = posixpath.join("/", posixpath.dirname(posixpath.dirname(name)))
        for node in tree.root.below("?:Relationship", "?:Override"):
            target = node.attributes.get("Target") or node.attributes.get("PartName", "")
            named.append(posixpath.normpath(posixpath.join(folder, target)).lstrip("/"))
    spelled = {name.lower(): name for name in parts}
    if len(spelled) < len(parts):
        raise RefusedError("not_a_workbook")
    for name in named:
        folder, last = posixpath.split(name)
        for wanted in (name, posixpath.join(folder, "_rels", f"{last}.rels")):
            if wanted not in parts and wanted.lower() in spelled:
                parts[wanted] = parts[spelled[wanted.lower()]]
                budget.spend("unpacked_bytes", len(parts[wanted]))
    return parts


def _sheet(sheet: Any, budget: Budget) -> dict[str, Any]:
    """The cells that hold something or are filled, by their addresses."""
    sheet.reset_dimensions()  # what the sheet says of its own size
    found = {}
    for row in sheet.iter_rows(max_row=ROWS):
        budget.spend("places", len(row) + 1)
        for cell in row:
            if cell.value is None and not getattr(cell, "has_style", False):
                continue
            kind, value = _valued(cell.value)
            fill = _color(cell.fill.fgColor) if cell.fill.fill_type else ""
            if value is None and not fill:
                continue
            size = len(value) if isinstance(value, str) else 0
            budget.spend("cells")
            budget.spend("chars", size)
            if size > budget.bounds.cell_chars:
                raise RefusedError("too_big")
            found[cell.coordinate] = {"value": value, "kind": kind, "font": _color(cell.font.color), "fill": fill}
    return {"name": sheet.title, "cells": found}


def _valued(value: Any) -> tuple[str, str | float | bool | None]:
    """What kind of value it is, and the value in JSON: dates in days, spans in milliseconds."""
    if isinstance(value, datetime):
        return "date", (value - _FIRST_DAY) / _DAY
    if isinstance(value, date):
        return "date", float((value - _FIRST_DAY.date()).days)
    if isinstance(value, time):
        return "time", str(value)
    if isinstance(value, timedelta):
        return "span", value / _MS
    return "", value if isinstance(value, str | float | bool | None) else float(value)


def _color(color: Color | None) -> str:
    """A colour as "AARRGGBB", or the number that it has in the theme or the palette; "" for none."""
    if color is None:
        return ""
    return str(color.value) if color.type == "rgb" else f"{color.type} {color.value}"


PARSERS: dict[str, Callable[[bytes, Bounds], dict[str, Any]]] = {  # by the kinds of `apis.tasks.verify.verify.KINDS`
    "database": database,
    "workbook": workbook,
    "office": office.read,
}
PACKAGES = {"workbook": "openpyxl"}  # what a kind's parser loads: a process that forks may load it before
