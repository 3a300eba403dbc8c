"""Workbooks for tests of a real Calc: with a matrix formula, protected, with doubled headers and others."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from apis.documents.xlsx import make_xlsx

TABLE = (("Name", "Price", "Qty"), ("plum", 30, 4), ("fig", 5, 9), ("pear", 7, 2))
WIDE = (("", "", "Kind", "Year", "Sum"), ("", "", "a", 1, 10), ("", "", "b", 2, 20), ("", "", "a", 2, 30))
DOUBLED = (("Name", "Qty", "Qty"), ("plum", 1, 2))
MATRIX = (
    '<row r="7"><c r="E7"><f t="array" ref="E7:E8">B2:B3*2</f><v>60</v></c></row>'
    '<row r="8"><c r="E8"><v>10</v></c></row>'
    '<row r="11"><c r="E11"><f t="array" ref="E11:F11">B2:C2*2</f><v>60</v></c><c r="F11"><v>8</v></c></row>'
)
SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
)
CELL = '<table:table-cell office:value-type="string"><text:p>a</text:p></table:table-cell>'
LOCKED = (
    f'<?xml version="1.0"?><office:document {SPACES} office:version="1.3"'
    ' office:mimetype="application/vnd.oasis.opendocument.spreadsheet"><office:body>'
    '<office:spreadsheet table:structure-protected="true">'
    + "".join(
        f'<table:table table:name="{name}"><table:table-row>{CELL}</table:table-row></table:table>'
        for name in ("plain", "other")
    )
    + "</office:spreadsheet></office:body></office:document>"
)


TWO = (("Name", "Qty", None, "note"), ("plum", 4), ("fig", 9), (None,), (None, "rest"), (None, 5))
PAIRS = ((45292, 0.5), (7, 0.25))
LOCK = '</sheetData><sheetProtection sheet="1" objects="1" scenarios="1"/>'


def workbook() -> bytes:
    """Sheets: plain, with a matrix formula, columns C to E, doubled headers, locked, to merge in, hidden ones, and some
    that do not begin in A1."""
    sheets: dict[str, Any] = {"plain": TABLE, "matrix": TABLE, "wide": WIDE, "doubled": DOUBLED, "locked": TABLE}
    sheets |= {"merged": TABLE, "secret": TABLE, "over": TABLE, "two": TWO, "pairs": PAIRS, "empty": [(None,)]}
    sheets |= {
        "right": [(None,) * 7 + row for row in TABLE],
        "below": [(None,)] * 8 + list(TABLE),
        "kept": TABLE,
        "broad": TABLE,
    }
    sheets["long"] = [tuple(f"{column} " + "x" * 98 for column in range(20))]
    before, made = zipfile.ZipFile(io.BytesIO(make_xlsx(sheets))), io.BytesIO()
    with zipfile.ZipFile(made, "w") as after:
        for name in before.namelist():
            text = re.sub('name="(secret|kept)"', r'\g<0> state="hidden"', before.read(name).decode())
            text = text.replace("</sheetData>", MATRIX + "</sheetData>") if name.endswith("sheet2.xml") else text
            after.writestr(name, text.replace("</sheetData>", LOCK) if name.endswith("sheet5.xml") else text)
    return made.getvalue()
