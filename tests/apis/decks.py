"""A presentation for tests of a real Impress: its slide has a table, a group and a line."""

from __future__ import annotations

import io
import zipfile

from apis.documents.odp import make_odp

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
