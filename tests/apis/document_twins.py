"""Twins of metrics of text documents' tables and looks."""

from __future__ import annotations

import io
import zipfile

from apis.documents.docx import make_docx
from apis.documents.zip import zipped
from apis.tasks.verify.verify import FileView
from tests.apis.metric_twins import Twin, file

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


def run(text: str, looks: str = "") -> str:
    return f'<w:r><w:rPr>{looks}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def para(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def table(*rows: list[str]) -> str:
    cells = ("".join(f"<w:tc>{para(one)}</w:tc>" for one in row) for row in rows)
    grid = "<w:gridCol/>" * len(rows[0])
    return f"<w:tbl><w:tblPr/><w:tblGrid>{grid}</w:tblGrid>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def docx(*blocks: str) -> FileView:
    archive = zipfile.ZipFile(io.BytesIO(make_docx(["x"])))
    parts = {name: archive.read(name).decode() for name in archive.namelist()}
    head, _, rest = parts["word/document.xml"].partition("<w:body>")
    parts["word/document.xml"] = f"{head}<w:body>{''.join(blocks)}{rest[rest.index('<w:sectPr') :]}"
    return file(zipped(parts))


def odt(body: str, color: str = "#ffff00") -> FileView:
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
GRID = table([run("a"), run("b")], [run("c"), run("d")])
COLORED = table([run("at", RED), run("by", BLUE)])
SAID = '<text:p>one <text:span text:style-name="T1">two</text:span> three</text:p>'
TWINS = [
    Twin(
        "compare_docx_tables",
        docx(para(run("x")), GRID),
        {},
        docx(para(run("y")), table([run(" a"), run("b")], [run("c"), run("d ")])),
        [
            docx(table([run("a"), run("b")], [run("c"), run("e")])),
            docx(table([run("a"), run("b"), run("c"), run("d")])),
            docx(GRID, GRID),
            docx(para(run("a"))),
        ],
    ),
    Twin(
        "compare_font_names",
        {"font_name": "Times New Roman"},
        {},
        docx(para(run("a", TIMES)), table([run("b")])),
        [
            docx(para(run("a", TIMES), run("b"))),
            docx(para(run("a", TIMES.replace("New", "Old")))),
            docx(para(run("a"))),
        ],
    ),
    Twin(
        "compare_subscript_contains",
        docx(para(run("H"), run("2", LOW), run("O"))),
        {},
        docx(para(run("H"), run("2", LOW), run("O"))),
        [docx(para(run("H"), run("2O", LOW))), docx(para(run("H", LOW), run("2O"))), docx(para(run("H2O")))],
    ),
    Twin(
        "evaluate_strike_through_last_paragraph",
        docx(para(run("a")), para(run("b c", STRUCK))),
        {},
        docx(para(run("a")), para(run("b ", STRUCK), run("c", f"<w:b/>{STRUCK}")), para()),
        [
            docx(para(run("a")), para(run("b", STRUCK), run(" c"))),
            docx(para(run("a", STRUCK)), para(run("b c"))),
            docx(para(run("a")), para(run("b d", STRUCK))),
            docx(para(run("a")), para(run("b c"))),
        ],
    ),
    Twin(
        "evaluate_colored_words_in_tables",
        docx(COLORED),
        {},
        docx(table([run("at", RED.replace("FF", "FC")), run("by", BLUE)])),
        [
            docx(table([run("at", RED), run("by", RED)])),
            docx(table([run("a", RED) + run("t"), run("by", BLUE)])),
            docx(table([run("at", RED), run("bye", BLUE)])),
            docx(table([run("at"), run("by")])),
        ],
    ),
    Twin(
        "contains_page_break",
        {"page_break_count": 2},
        {},
        docx(para(run("a"), BREAK), para(BREAK)),
        [docx(para(BREAK)), docx(para(BREAK, BREAK, BREAK)), docx(para(run("a"), "<w:r><w:br/></w:r>"))],
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
