"""Makes small workbooks (.xlsx, ECMA-376) for tasks to start with: the same cells always give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from apis.documents.zip import zipped
from apis.guest.addresses import address


@dataclass(frozen=True)
class Formula:
    """A cell that works out its value: `text` is what it says behind "="."""

    text: str


Value = str | int | float | Formula | None  # None: an empty cell
Rows = Sequence[Sequence[Value]]

COLUMNS = 26  # of a small sheet: verifiers know no column beyond Z
MIME = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PART = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def cells(rows: Rows) -> dict[str, str | float | bool]:
    """The cells that are not empty by their names, numbers as float: what a reader of the file would find."""
    return {
        address(at_row, at_column): value if isinstance(value, str) else float(value)
        for at_row, row in enumerate(rows)
        for at_column, value in enumerate(row)
        if value is not None and not isinstance(value, Formula)
    }


def make_xlsx(sheets: Mapping[str, Rows]) -> bytes:
    """A workbook with these sheets in this order. Raises ValueError without a sheet and beyond column Z."""
    if not sheets:
        raise ValueError("a workbook has at least one sheet")
    if any(len(row) > COLUMNS for rows in sheets.values() for row in rows):
        raise ValueError(f"column {COLUMNS} is none of a small sheet")
    numbers = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": _content_types(numbers),
        "_rels/.rels": _relationships({1: ("officeDocument", "xl/workbook.xml")}),
        "xl/workbook.xml": _workbook(sheets),
        "xl/_rels/workbook.xml.rels": _relationships({n: ("worksheet", f"worksheets/sheet{n}.xml") for n in numbers}),
    } | {f"xl/worksheets/sheet{n}.xml": _sheet(rows) for n, rows in zip(numbers, sheets.values(), strict=True)}
    return zipped({name: _HEAD + text for name, text in parts.items()})


def _content_types(numbers: range) -> str:
    kinds = {"/xl/workbook.xml": f"{_PART}.sheet.main+xml"}
    kinds |= {f"/xl/worksheets/sheet{n}.xml": f"{_PART}.worksheet+xml" for n in numbers}
    overrides = "".join(f'<Override PartName="{part}" ContentType="{kind}"/>' for part, kind in kinds.items())
    return (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f"{overrides}</Types>"
    )


def _relationships(targets: Mapping[int, tuple[str, str]]) -> str:
    rows = "".join(
        f'<Relationship Id="rId{n}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for n, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{rows}</Relationships>'


def _workbook(sheets: Mapping[str, Rows]) -> str:
    rows = "".join(f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="rId{n}"/>' for n, name in enumerate(sheets, 1))
    return f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{rows}</sheets></workbook>'


def _sheet(rows: Rows) -> str:
    lines = (
        f'<row r="{at + 1}">{"".join(_cell(address(at, column), value) for column, value in enumerate(row))}</row>'
        for at, row in enumerate(rows)
    )
    return f'<worksheet xmlns="{_MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def _cell(name: str, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, Formula):
        return f'<c r="{name}"><f>{escape(value.text)}</f></c>'
    if isinstance(value, str):
        return f'<c r="{name}" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    return f'<c r="{name}"><v>{value}</v></c>'
