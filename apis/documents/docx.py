"""Makes small text documents (.docx, ECMA-376) to start with: the same paragraphs always give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from apis.documents.zip import zipped

MIME = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELS = "application/vnd.openxmlformats-package.relationships+xml"


@dataclass(frozen=True)
class Run:
    """Text of one look; `highlight` is a name of the format's own, as "yellow"."""

    text: str
    highlight: str = ""
    bold: bool = False
    strike: bool = False
    size: float = 0.0  # points; 0: as the style has it


Words = str | Run | Sequence[Run]  # of a paragraph


@dataclass(frozen=True)
class Aligned:
    """A paragraph that is aligned by a word of the format's own, as "center" or "both"."""

    words: Words
    align: str


def make_docx(paragraphs: Sequence[Words | Aligned]) -> bytes:
    """A document with these paragraphs, on A4 paper. Raises ValueError without one."""
    if not paragraphs:
        raise ValueError("a document has at least one paragraph")
    body = "".join(_paragraph(words) for words in paragraphs)
    margins = " ".join(f'w:{side}="1134"' for side in ("top", "right", "bottom", "left"))  # 2 cm
    page = f'<w:sectPr><w:pgSz w:w="11906" w:h="16838"/><w:pgMar {margins}/></w:sectPr>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="{_RELS}"/>'
        f'<Override PartName="/word/document.xml" ContentType="{MIME}.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{_MAIN}"><w:body>{body}{page}</w:body></w:document>',
    }
    return zipped({name: _HEAD + text for name, text in parts.items()})


def _paragraph(paragraph: Words | Aligned) -> str:
    words, align = (paragraph.words, paragraph.align) if isinstance(paragraph, Aligned) else (paragraph, "")
    runs = [Run(words)] if isinstance(words, str) else [words] if isinstance(words, Run) else words
    laid = f"<w:pPr><w:jc w:val={quoteattr(align)}/></w:pPr>" if align else ""
    return f"<w:p>{laid}{''.join(_run(run) for run in runs if run.text)}</w:p>"


def _run(run: Run) -> str:
    looks = "<w:b/>" * run.bold + "<w:strike/>" * run.strike
    looks += f'<w:sz w:val="{round(2 * run.size)}"/>' if run.size else ""
    looks += f"<w:highlight w:val={quoteattr(run.highlight)}/>" if run.highlight else ""
    return f'<w:r><w:rPr>{looks}</w:rPr><w:t xml:space="preserve">{escape(run.text)}</w:t></w:r>'
