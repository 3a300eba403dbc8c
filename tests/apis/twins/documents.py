"""Twins of metrics of text documents' tables and looks."""

from __future__ import annotations

import io
import zipfile

from apis.documents.docx import make_docx
from apis.documents.zip import zipped
from apis.tasks.verify.verify import FileView
from tests.apis.twins.twin import Twin, file

_NAMES = " ".join(
    f'xmlns:{key}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for key, name in (
        ("office", "office"),
        ("manifest", "manifest"),
        ("text", "text"),
        ("style", "style"),
        ("fo", "xsl-fo-compatible"),
    )
)

ODT = "application/vnd.oasis.opendocument.text"


def stretch(text: str, looks: str = "") -> str:
    """A stretch of text with these looks."""
    return f'<w:r><w:rPr>{looks}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def para(*runs: str) -> str:
    """A paragraph of these runs."""
    return f"<w:p>{''.join(runs)}</w:p>"


def table(*rows: list[str]) -> str:
    """A table of rows of runs, one for each cell."""
    cells = ("".join(f"<w:tc>{para(one)}</w:tc>" for one in row) for row in rows)
    grid = "<w:gridCol/>" * len(rows[0])
    return f"<w:tbl><w:tblPr/><w:tblGrid>{grid}</w:tblGrid>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def docx(*blocks: str) -> FileView:
    """A text document (.docx) of these blocks."""
    archive = zipfile.ZipFile(io.BytesIO(make_docx(["x"])))
    parts = {name: archive.read(name).decode() for name in archive.namelist()}
    head, _, rest = parts["word/document.xml"].partition("<w:body>")
    parts["word/document.xml"] = f"{head}<w:body>{''.join(blocks)}{rest[rest.index('<w:sectPr') :]}"
    return file(zipped(parts))


def odt(body: str, color: str = "#ffff00") -> FileView:
    """A text document (.odt) of this body; its style T1 has the background `color`."""
    look = f'<style:style style:name="T1"><style:text-properties fo:background-color="{color}"/></style:style>'
    content = f"<office:automatic-styles>{look}</office:automatic-styles><office:body><office:text>{body}"
    whole = f"<office:document-content {_NAMES}>{content}</office:text></office:body></office:document-content>"
    entries = "".join(
        f'<manifest:file-entry manifest:full-path="{path}" manifest:media-type="{kind}"/>'
        for path, kind in (("/", ODT), ("content.xml", "text/xml"))
    )
    listed = f"<manifest:manifest {_NAMES}>{entries}</manifest:manifest>"
    return file(zipped({"mimetype": ODT, "content.xml": whole, "META-INF/manifest.xml": listed}))


TIMES, LOW, STRUCK = '<w:rFonts w:ascii="Times New Roman"/>', '<w:vertAlign w:val="subscript"/>', "<w:strike/>"
RED, BLUE = '<w:color w:val="FF0000"/>', '<w:color w:val="0000FF"/>'
BREAK = '<w:r><w:br w:type="page"/></w:r>'
GRID = table([stretch("a"), stretch("b")], [stretch("c"), stretch("d")])
COLORED = table([stretch("at", RED), stretch("by", BLUE)])
SAID = '<text:p>one <text:span text:style-name="T1">two</text:span> three</text:p>'
TWINS = [
    Twin(
        "compare_docx_tables",
        docx(para(stretch("x")), GRID),
        {},
        docx(para(stretch("y")), table([stretch(" a"), stretch("b")], [stretch("c"), stretch("d ")])),
        [
            docx(table([stretch("a"), stretch("b")], [stretch("c"), stretch("e")])),
            docx(table([stretch("a"), stretch("b"), stretch("c"), stretch("d")])),
            docx(GRID, GRID),
            docx(para(stretch("a"))),
        ],
    ),
    Twin(
        "compare_font_names",
        {"font_name": "Times New Roman"},
        {},
        docx(para(stretch("a", TIMES)), table([stretch("b")])),
        [
            docx(para(stretch("a", TIMES), stretch("b"))),
            docx(para(stretch("a", TIMES.replace("New", "Old")))),
            docx(para(stretch("a"))),
        ],
    ),
    Twin(
        "compare_subscript_contains",
        docx(para(stretch("H"), stretch("2", LOW), stretch("O"))),
        {},
        docx(para(stretch("H"), stretch("2", LOW), stretch("O"))),
        [
            docx(para(stretch("H"), stretch("2O", LOW))),
            docx(para(stretch("H", LOW), stretch("2O"))),
            docx(para(stretch("H2O"))),
        ],
    ),
    Twin(
        "evaluate_strike_through_last_paragraph",
        docx(para(stretch("a")), para(stretch("b c", STRUCK))),
        {},
        docx(para(stretch("a")), para(stretch("b ", STRUCK), stretch("c", f"<w:b/>{STRUCK}")), para()),
        [
            docx(para(stretch("a")), para(stretch("b", STRUCK), stretch(" c"))),
            docx(para(stretch("a", STRUCK)), para(stretch("b c"))),
            docx(para(stretch("a")), para(stretch("b d", STRUCK))),
            docx(para(stretch("a")), para(stretch("b c"))),
        ],
    ),
    Twin(
        "evaluate_colored_words_in_tables",
        docx(COLORED),
        {},
        docx(table([stretch("at", RED.replace("FF", "FC")), stretch("by", BLUE)])),
        [
            docx(table([stretch("at", RED), stretch("by", RED)])),
            docx(table([stretch("a", RED) + stretch("t"), stretch("by", BLUE)])),
            docx(table([stretch("at", RED), stretch("bye", BLUE)])),
            docx(table([stretch("at"), stretch("by")])),
        ],
    ),
    Twin(
        "contains_page_break",
        {"page_break_count": 2},
        {},
        docx(para(stretch("a"), BREAK), para(BREAK)),
        [docx(para(BREAK)), docx(para(BREAK, BREAK, BREAK)), docx(para(stretch("a"), "<w:r><w:br/></w:r>"))],
    ),
    Twin(
        "check_highlighted_words",
        odt("<text:p>one two three</text:p>"),
        {},
        odt("<text:p>one <text:span>two</text:span> three</text:p>"),
        [odt("<text:p>one two</text:p>"), odt("<text:p>one two four</text:p>"), odt(SAID)],
    ),
    Twin(
        "check_highlighted_words",
        odt('<text:p>one<text:s text:c="2"/>two</text:p>'),
        {},
        odt("<text:h>one<text:tab/>two</text:h>", "#00ff00"),
        [odt("<text:p>one</text:p><text:p>twos</text:p>"), odt("<text:p>onetwo</text:p>"), odt("<text:p/>")],
    ),
]
