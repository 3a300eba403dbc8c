"""Text documents for tests of a real Writer, in the OpenDocument format and in Word's."""

from __future__ import annotations

import io
import zipfile

SPACES = ("office", "text", "table")
NAMES = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in SPACES)
MIME = "application/vnd.oasis.opendocument.text"
ROW = "<table:table-row>{}</table:table-row>"
CELL = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
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


def odt(body: str, styles: str = "") -> bytes:
    """A text document in the OpenDocument format."""
    kinds = 'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'
    entry = '<manifest:file-entry manifest:full-path="{}" manifest:media-type="{}"/>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", MIME)
        text = f"<office:body><office:text>{body}</office:text></office:body></office:document-content>"
        archive.writestr("content.xml", f'<office:document-content {NAMES} office:version="1.3">{text}')
        entries = entry.format("/", MIME) + entry.format("content.xml", "text/xml")
        if styles:
            archive.writestr("styles.xml", styles)
            entries += entry.format("styles.xml", "text/xml")
        archive.writestr("META-INF/manifest.xml", f"<manifest:manifest {kinds}>{entries}</manifest:manifest>")
    return file.getvalue()


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def gone(text: str) -> str:
    run = f'<w:r><w:delText xml:space="preserve">{text}</w:delText></w:r>'
    return f'<w:del w:id="{len(text)}" w:author="a" w:date="2026-01-02T03:04:05Z">{run}</w:del>'


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def docx(*paragraphs: str) -> bytes:
    """A text document in Word's format, of paragraphs made of runs."""
    body = "".join(f"<w:p>{paragraph}</w:p>" for paragraph in paragraphs)
    target = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{OFFICE_TYPE}"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{PACKAGE}/relationships">'
            f'<Relationship Id="r1" Type="{target}" Target="word/document.xml"/></Relationships>',
        )
        archive.writestr("word/document.xml", f"<w:document {WORD}><w:body>{body}</w:body></w:document>")
    return file.getvalue()
