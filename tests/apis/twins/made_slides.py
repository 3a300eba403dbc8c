"""Makes small presentations (.pptx) whose every look and place is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from apis.documents.zip import zipped

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "application/vnd.openxmlformats-package"
_FORM = "application/vnd.openxmlformats-officedocument.presentationml"
_NAMES = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    f'xmlns:r="{_OFFICE}"'
)
_NAMED = '<p:cNvPr id="2" name="a"/>'
_TREE = f"<p:nvGrpSpPr>{_NAMED}<p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>"
_TABLE = "http://schemas.openxmlformats.org/drawingml/2006/table"


class SlideLine(NamedTuple):
    """A paragraph of one run; `looks` are attributes of the run, `layout` of the paragraph."""

    text: str
    looks: dict[str, str] = {}
    layout: dict[str, str] = {}
    color: str = ""
    bullet: str = ""
    font: str = ""


class Box(NamedTuple):
    """A shape at left, top, width, height in EMU; None: where its layout has it."""

    said: Sequence[SlideLine | str] = ()
    place: tuple[int, int, int, int] | None = (100_000, 200_000, 3_000_000, 900_000)
    role: str = ""
    kind: str = "sp"  # sp, pic, or a table of one column


class Page(NamedTuple):
    """A slide."""

    boxes: Sequence[Box]
    background: str = ""
    notes: str = ""


def _paragraph(said: SlideLine | str) -> str:
    one = SlideLine(said) if isinstance(said, str) else said
    color = f'<a:solidFill><a:srgbClr val="{one.color}"/></a:solidFill>' if one.color else ""
    bullet = f"<a:buChar char={quoteattr(one.bullet)}/>" if one.bullet else ""
    looks, layout = (
        "".join(f" {key}={quoteattr(value)}" for key, value in marks.items()) for marks in (one.looks, one.layout)
    )
    font = f"<a:latin typeface={quoteattr(one.font)}/>" if one.font else ""
    run = f"<a:r><a:rPr{looks}>{color}{font}</a:rPr><a:t>{escape(one.text)}</a:t></a:r>"
    return f"<a:p><a:pPr{layout}>{bullet}</a:pPr>{run if one.text else ''}</a:p>"


def _box(box: Box) -> str:
    role = f"<p:nvPr><p:ph type={quoteattr(box.role)}/></p:nvPr>" if box.role else "<p:nvPr/>"
    words = "".join(map(_paragraph, box.said))
    tag = "p:xfrm" if box.kind == "table" else "a:xfrm"
    place = ""
    if box.place:
        x, y, wide, high = box.place
        place = f'<{tag}><a:off x="{x}" y="{y}"/><a:ext cx="{wide}" cy="{high}"/></{tag}>'
    if box.kind == "table":
        cells = (f"<a:tc><a:txBody><a:bodyPr/>{_paragraph(one)}</a:txBody><a:tcPr/></a:tc>" for one in box.said)
        rows = "".join(f'<a:tr h="9">{cell}</a:tr>' for cell in cells)
        grid = f'<a:tbl><a:tblGrid><a:gridCol w="9"/></a:tblGrid>{rows}</a:tbl>'
        head = f"<p:nvGraphicFramePr>{_NAMED}<p:cNvGraphicFramePr/>{role}</p:nvGraphicFramePr>"
        shown = f'<a:graphic><a:graphicData uri="{_TABLE}">{grid}</a:graphicData></a:graphic>'
        return f"<p:graphicFrame>{head}{place}{shown}</p:graphicFrame>"
    shape = f'<p:spPr>{place}<a:prstGeom prst="rect"/></p:spPr>'
    if box.kind == "pic":
        head = f"<p:nvPicPr>{_NAMED}<p:cNvPicPr/>{role}</p:nvPicPr><p:blipFill/>"
        return f"<p:pic>{head}{shape}</p:pic>"
    head = f"<p:nvSpPr>{_NAMED}<p:cNvSpPr/>{role}</p:nvSpPr>"
    return f"<p:sp>{head}{shape}<p:txBody><a:bodyPr/>{words}</p:txBody></p:sp>"


def _part(tag: str, boxes: Sequence[Box], background: str = "") -> str:
    fill = f'<p:bgPr><a:solidFill><a:srgbClr val="{background}"/></a:solidFill></p:bgPr>' if background else ""
    ground = f"<p:bg>{fill}</p:bg>" if fill else ""
    tree = f"<p:spTree>{_TREE}{''.join(map(_box, boxes))}</p:spTree>"
    return f"<p:{tag} {_NAMES}><p:cSld>{ground}{tree}</p:cSld></p:{tag}>"


def _relations(*rows: tuple[str, str]) -> str:
    rels = "".join(
        f'<Relationship Id="r{n}" Type="{_OFFICE}/{kind}" Target="{target}"/>' for n, (kind, target) in enumerate(rows)
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{rels}</Relationships>'


def _types(names: Sequence[str]) -> str:
    """What each part is: without it no office opens the file."""
    kinds = {"presentation": "presentation.main", "notes": "notesSlide"}
    kinds |= {"layout": "slideLayout", "master": "slideMaster"}
    rows = ""
    for name in (name for name in names if not name.endswith(".rels")):
        stem = name.rpartition("/")[2].removesuffix(".xml").rstrip("0123456789")
        rows += f'<Override PartName="/{name}" ContentType="{_FORM}.{kinds.get(stem, stem)}+xml"/>'
    rels = f'<Default Extension="rels" ContentType="{_PACKAGE}.relationships+xml"/>'
    return f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{rels}{rows}</Types>'


def make_pptx(*pages: Page, size: tuple[int, int] = (9_144_000, 6_858_000), master: str = "") -> bytes:
    """A presentation of these slides; their common layout has a title, their master the background `master`."""
    ids = "".join(f'<p:sldId id="{256 + n}" r:id="r{n}"/>' for n in range(len(pages)))
    measure = f'<p:sldSz cx="{size[0]}" cy="{size[1]}"/>'
    parts = {
        "_rels/.rels": _relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {_NAMES}><p:sldIdLst>{ids}</p:sldIdLst>{measure}</p:presentation>",
        "ppt/_rels/presentation.xml.rels": _relations(*(("slide", f"slides/slide{n}.xml") for n in range(len(pages)))),
        "ppt/layout.xml": _part("sldLayout", [Box(place=(1000, 2000, 8_000_000, 1_000_000), role="title")]),
        "ppt/_rels/layout.xml.rels": _relations(("slideMaster", "master.xml")),
        "ppt/master.xml": _part("sldMaster", [], master),
    }
    for n, page in enumerate(pages):
        parts[f"ppt/slides/slide{n}.xml"] = _part("sld", page.boxes, page.background)
        parts[f"ppt/slides/_rels/slide{n}.xml.rels"] = _relations(
            ("slideLayout", "../layout.xml"), *([("notesSlide", f"../notes{n}.xml")] if page.notes else [])
        )
        if page.notes:
            parts[f"ppt/notes{n}.xml"] = _part("notes", [Box([page.notes], role="body")])
    return zipped({"[Content_Types].xml": _types(list(parts)), **parts})
