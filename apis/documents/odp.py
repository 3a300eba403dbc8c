"""Makes small presentations (.odp, OpenDocument 1.3) to start with: the same slides always give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from xml.sax.saxutils import escape

from apis.documents.zip import zipped

MIME = "application/vnd.oasis.opendocument.presentation"
WIDTH_CM, HEIGHT_CM = 28.0, 15.75
Kind = Literal["title", "outline", "text"]
Box = tuple[Kind, str]  # what it is, and its lines, parted by \n
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMES = {
    "anim": "animation", "draw": "drawing", "fo": "xsl-fo-compatible", "manifest": "manifest", "office": "office",
    "presentation": "presentation", "style": "style", "svg": "svg-compatible", "text": "text",
}  # fmt: skip
_SPACES = " ".join(f'xmlns:{key}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for key, name in _NAMES.items())
_PLACES = {  # x, y, width and height in cm
    "title": (1.4, 0.6, 25.2, 2.6), "outline": (1.4, 3.7, 25.2, 7.0), "text": (2.0, 12.0, 9.0, 1.5),
    "page-number": (20.0, 14.4, 6.5, 1.0),
}  # fmt: skip


# A frame is a placeholder of its class only where its style is one of presentations.
_LOOKS = "".join(
    f'<style:style style:name="pr-{name}" style:family="presentation" style:parent-style-name="Default-{parent}"/>'
    for name, parent in (("title", "title"), ("outline", "outline1"), ("page-number", "backgroundobjects"))
)
_PLAIN = (
    '<style:style style:name="gr-text" style:family="graphic"><style:graphic-properties draw:fill="none" '
    'draw:stroke="none"/></style:style><style:style style:name="dp1" style:family="drawing-page">'
    '<style:drawing-page-properties presentation:display-page-number="true"/></style:style>'
)


def make_odp(slides: Sequence[Sequence[Box]]) -> bytes:
    """A presentation of these slides; boxes stand in their order. Raises ValueError without a slide."""
    if not slides:
        raise ValueError("a presentation has at least one slide")
    pages = "".join(_page(number, boxes) for number, boxes in enumerate(slides, 1))
    parts = {
        "mimetype": MIME,
        "META-INF/manifest.xml": f'{_HEAD}<manifest:manifest {_SPACES} manifest:version="1.3">{_entry("/", MIME)}'
        f"{_entry('content.xml', 'text/xml')}{_entry('styles.xml', 'text/xml')}</manifest:manifest>",
        "styles.xml": _styles(),
        "content.xml": f'{_HEAD}<office:document-content {_SPACES} office:version="1.3"><office:automatic-styles>'
        f"{_LOOKS}{_PLAIN}</office:automatic-styles><office:body>"
        f"<office:presentation>{pages}</office:presentation></office:body></office:document-content>",
    }
    return zipped(parts)


def _entry(path: str, kind: str) -> str:
    return f'<manifest:file-entry manifest:full-path="{path}" manifest:media-type="{kind}"/>'


def _styles() -> str:
    number = "<text:p><text:page-number>&lt;number&gt;</text:page-number></text:p>"
    frames = _frame("title", "") + _frame("outline", "") + _frame("page-number", number)
    return (
        f'{_HEAD}<office:document-styles {_SPACES} office:version="1.3"><office:automatic-styles>{_LOOKS}'
        f'<style:page-layout style:name="PM1"><style:page-layout-properties fo:page-width="{WIDTH_CM}cm" '
        f'fo:page-height="{HEIGHT_CM}cm" style:print-orientation="landscape" fo:margin="0cm"/></style:page-layout>'
        '</office:automatic-styles><office:master-styles><style:master-page style:name="Default" '
        f'style:page-layout-name="PM1">{frames}</style:master-page></office:master-styles></office:document-styles>'
    )


def _page(number: int, boxes: Sequence[Box]) -> str:
    frames = "".join(
        _frame(kind, "".join(f"<text:p>{escape(line)}</text:p>" for line in text.split("\n"))) for kind, text in boxes
    )
    name = f'draw:name="page{number}" draw:style-name="dp1" draw:master-page-name="Default"'
    return f"<draw:page {name}>{frames}</draw:page>"


def _frame(kind: str, inside: str) -> str:
    x, y, width, height = _PLACES[kind]
    role = f'presentation:class="{kind}" presentation:style-name="pr-{kind}" presentation:user-transformed="true"'
    if kind == "text":
        role = 'draw:style-name="gr-text"'
    return (
        f'<draw:frame {role} svg:x="{x}cm" svg:y="{y}cm" svg:width="{width}cm" '
        f'svg:height="{height}cm"><draw:text-box>{inside}</draw:text-box></draw:frame>'
    )
