"""Files that scenes of real offices begin with: workbooks, a presentation and texts that no program here makes."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from apis.documents.odp import make_odp
from apis.documents.xlsx import make_xlsx

SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
)
ROW = "<table:table-row>{}</table:table-row>"
CELL = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
TABLE = (("Name", "Price", "Qty"), ("plum", 30, 4), ("fig", 5, 9), ("pear", 7, 2))
WIDE = (("", "", "Kind", "Year", "Sum"), ("", "", "a", 1, 10), ("", "", "b", 2, 20), ("", "", "a", 2, 30))
DOUBLED = (("Name", "Qty", "Qty"), ("plum", 1, 2))
MATRIX = (
    '<row r="7"><c r="E7"><f t="array" ref="E7:E8">B2:B3*2</f><v>60</v></c></row>'
    '<row r="8"><c r="E8"><v>10</v></c></row>'
    '<row r="11"><c r="E11"><f t="array" ref="E11:F11">B2:C2*2</f><v>60</v></c><c r="F11"><v>8</v></c></row>'
)
LOCKED = (
    f'<?xml version="1.0"?><office:document {SPACES} office:version="1.3"'
    ' office:mimetype="application/vnd.oasis.opendocument.spreadsheet"><office:body>'
    '<office:spreadsheet table:structure-protected="true">'
    + "".join(
        f'<table:table table:name="{name}">{ROW.format(CELL.format("a"))}</table:table>' for name in ("plain", "other")
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


PARTS = (
    '<draw:frame svg:x="1cm" svg:y="1cm" svg:width="8cm" svg:height="2cm"><table:table>'
    '<table:table-column table:number-columns-repeated="2"/><table:table-row><table:table-cell><text:p>A</text:p>'
    "</table:table-cell><table:table-cell><text:p>B</text:p></table:table-cell></table:table-row></table:table>"
    '</draw:frame><draw:g>{boxes}</draw:g><draw:line svg:x1="1cm" svg:y1="9cm" svg:x2="5cm" svg:y2="9cm"/>'
)
BOX = (
    '<draw:frame svg:x="{x}cm" svg:y="5cm" svg:width="3cm" svg:height="1cm"><draw:text-box><text:p>{text}</text:p>'
    "</draw:text-box></draw:frame>"
)


def with_parts() -> bytes:
    """A presentation of one slide, with more boxes below its title."""
    inside = PARTS.format(boxes=BOX.format(x=1, text="left") + BOX.format(x=5, text="right"))
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(make_odp([[("title", "Parts")]]))) as file, zipfile.ZipFile(out, "w") as made:
        for entry in file.infolist():
            data = file.read(entry)
            if entry.filename == "content.xml":
                before, end, after = data.rpartition(b"</draw:page>")
                data = before + inside.encode() + end + after
                table = b'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
                data = data.replace(b"<office:document-content ", b"<office:document-content " + table)
            made.writestr(entry, data)
    return out.getvalue()


MIME = "application/vnd.oasis.opendocument.text"
BODY = (
    '<table:table table:name="Fruit"><table:table-column table:number-columns-repeated="2"/>'
    + ROW.format(CELL.format("plum") + CELL.format("fig"))
    + ROW.format(CELL.format("pear") + CELL.format("fig"))
    + "</table:table>"
    "<text:p>fig and fig</text:p>"
    "<text:p>page <text:page-number>1</text:page-number> of fig<text:line-break/>broken</text:p>"
    "<text:p>\U0001f600 e\u0301 fig &lt;b&gt;</text:p>"
    "<text:p>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab</text:p>"
    "<text:p/>"
)


def odt(body: str) -> bytes:
    """A text document in the OpenDocument format."""
    kinds = 'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'
    entry = '<manifest:file-entry manifest:full-path="{}" manifest:media-type="{}"/>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", MIME)
        text = f"<office:body><office:text>{body}</office:text></office:body></office:document-content>"
        archive.writestr("content.xml", f'<office:document-content {SPACES} office:version="1.3">{text}')
        entries = entry.format("/", MIME) + entry.format("content.xml", "text/xml")
        archive.writestr("META-INF/manifest.xml", f"<manifest:manifest {kinds}>{entries}</manifest:manifest>")
    return file.getvalue()
