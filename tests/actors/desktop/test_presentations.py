"""Presentations of a hostile guest: what is read of good ones, and that every other file is refused by name."""

from __future__ import annotations

import contextlib
import io
import zipfile
from typing import Any

import pytest
from hostile import ODF, ods, packed, xlsx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.desktop.files import fork as forked
from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal, as_wanted
from actors.desktop.pool.leased import view_of
from apis.documents.odp import make_odp
from apis.documents.read.bounds import Bounds, RefusedError
from apis.documents.read.odp import MIME
from apis.documents.read.parse import presentation, slide_show, styled_workbook
from apis.tasks.twins.made_books import chart, pivot, styled
from apis.tasks.twins.made_slides import Box, Page, make_pptx
from apis.tasks.verify.verify import GUEST_HOME, SlideBox, WantedFile

SMALL = Bounds(
    members=20, member_bytes=20_000, unpacked_bytes=40_000, ratio=50, ratio_from=5000, depth=12, elements=500,
    sheets=3, cells=20, cell_chars=200, chars=1000,
)  # fmt: skip
SPACES = " ".join(
    f'xmlns:{key}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for key, name in (("draw", "drawing"), ("presentation", "presentation"), ("svg", "svg-compatible"))
)
STYLES = (
    '<style:style style:name="dp1"><style:drawing-page-properties draw:fill="solid" draw:fill-color="#00ff00"/>'
    '</style:style><style:style style:name="dp2"><style:drawing-page-properties presentation:visibility="hidden"/>'
    "</style:style>"
)


def odp(pages: str, head: str = "") -> bytes:
    content = (
        f"{head}<office:document-content {ODF} {SPACES}><office:automatic-styles>{STYLES}</office:automatic-styles>"
        f"<office:body><office:presentation>{pages}</office:presentation></office:body></office:document-content>"
    )
    return packed({"mimetype": MIME, "content.xml": content})


def slides(data: bytes, bounds: Bounds | None = None) -> list[dict[str, Any]]:
    return list(presentation(data, bounds or Bounds())["slides"])


def test_what_tasks_start_with_is_read_as_it_was_made() -> None:
    made = make_odp([[("title", "plan"), ("outline", "one\ntwo & <three>")], [("title", ""), ("text", "note")]])
    assert slides(made) == [
        {
            "boxes": [{"kind": "title", "text": "plan"}, {"kind": "outline", "text": "one\ntwo & <three>"}],
            "background": "",
            "hidden": False,
        },
        {
            "boxes": [{"kind": "title", "text": ""}, {"kind": "frame", "text": "note"}],
            "background": "",
            "hidden": False,
        },
    ]


def test_boxes_backgrounds_and_hidden_slides() -> None:
    pages = (
        '<draw:page draw:style-name="dp1"><office:forms/><draw:frame presentation:class="outline"><draw:text-box>'
        "<text:list><text:list-item><text:p>a<text:s text:c='2'/>b<text:tab/></text:p></text:list-item></text:list>"
        "<text:p><text:span>c</text:span><text:line-break/>d</text:p></draw:text-box></draw:frame>"
        "<draw:g><draw:frame><draw:text-box><text:p>in</text:p></draw:text-box></draw:frame></draw:g>"
        "<draw:custom-shape><text:p/></draw:custom-shape><presentation:notes><draw:frame><draw:text-box>"
        "<text:p>said</text:p></draw:text-box></draw:frame></presentation:notes></draw:page>"
        '<draw:page draw:style-name="dp2"/>'
    )
    shown, hidden = slides(odp(pages))
    assert shown["boxes"] == [
        {"kind": "outline", "text": "a  b\t\nc\vd"},
        {"kind": "g", "text": "in"},
        {"kind": "custom-shape", "text": ""},
    ]
    assert (shown["background"], shown["hidden"]) == ("#00ff00", False)
    assert hidden == {"boxes": [], "background": "", "hidden": True}


PAGE = "<draw:page><draw:frame><text:p>{}</text:p></draw:frame></draw:page>"
BAD = {
    "no archive": (b"PK", "not_a_presentation"),
    "a workbook": (xlsx(""), "not_a_presentation"),
    "another kind of document": (ods(""), "not_a_presentation"),
    "no slide": (odp(""), "not_a_presentation"),
    "broken markup": (odp("<draw:page>"), "not_a_presentation"),
    "an entity": (odp(PAGE.format("&a;"), '<!DOCTYPE a [<!ENTITY a "b">]>'), "xml_entity"),
    "a bomb": (odp(" " * (33 << 20)), "zip_bomb"),
    "many boxes": (odp("<draw:page>" + "<draw:frame/>" * 60_000 + "</draw:page>"), "too_big"),
    "a long text": (odp(PAGE.format("<text:s text:c='32000'/>" * 2)), "too_big"),
    "too deep": (odp("<draw:page>" + "<draw:g>" * 99 + "</draw:g>" * 99 + "</draw:page>"), "too_big"),
    "locked": (
        packed({"mimetype": MIME, "META-INF/manifest.xml": "<manifest:encryption-data/>", "content.xml": ""}),
        "encrypted",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_hostile_file_is_refused_by_name(kind: str) -> None:
    data, wanted = BAD[kind]
    with pytest.raises(RefusedError) as refused:
        presentation(data, Bounds())
    assert str(refused.value) == ReadRefusal(wanted)


GOOD = odp(PAGE.format("x") * 2)
PIECES = st.binary(max_size=4) | st.sampled_from([b"<a>", b"</a>", b"<!DOCTYPE a>", b"&x;", b"PK\x01\x02", b"\xff" * 4])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    with_stored = packed({"mimetype": MIME, "content.xml": "<a>" + PAGE.format("y")}, zipfile.ZIP_STORED)
    data = bytearray(draw(st.sampled_from([GOOD, with_stored, make_odp([[("title", "t")]])])))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.sampled_from([0, 1, 30]))] = draw(PIECES)
    return bytes(data)


@pytest.mark.slow
@settings(max_examples=150, deadline=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=100) | mutated())
def test_any_bytes_get_a_bounded_answer_or_a_refusal(data: bytes) -> None:
    refusal = ""
    try:
        found = slides(data, SMALL)
    except RefusedError as refused:
        refusal = str(refused)
    if refusal:
        assert ReadRefusal(refusal)
        return
    assert 1 <= len(found) + sum(len(slide["boxes"]) for slide in found) <= SMALL.cells
    assert all(len(box["text"]) <= SMALL.cell_chars for slide in found for box in slide["boxes"])


async def test_the_worker_reads_them_without_rights_and_refuses_the_others() -> None:
    wanted = [WantedFile("a.odp", "presentation"), WantedFile("b.odp", "presentation"), WantedFile("c.odp")]
    given_files = [FileSeen(path=want.path, data=data) for want, data in zip(wanted, (GOOD, b"x", b"y"), strict=True)]
    read, refused, raw = (view_of(one, GUEST_HOME) for one in await as_wanted(wanted, given_files, ReadLimits()))
    assert read.presentation is not None
    assert [slide.boxes for slide in read.presentation.slides] == [(SlideBox("frame", "x"),)] * 2
    assert (refused.kind, refused.reason) == ("refused", "not_a_presentation")
    assert raw.data == b"y"
    assert b'"text": "x"' in forked.parsed(GOOD, Bounds(), "presentation")


SHOW = make_pptx(Page([Box(["one"], role="title"), Box(["a"], kind="table")], "FF0000", "noted"))
_RELS = "ppt/_rels/presentation.xml.rels"


@pytest.mark.parametrize(
    ("part", "old", "new", "wanted"),
    [
        ("ppt/slides/slide0.xml", "<a:t>one", "<a:t>" + "x" * 40_000, "too_big"),
        ("ppt/slides/slide0.xml", "<p:spTree>", "<p:spTree>" + "<p:grpSp>" * 99 + "</p:grpSp>" * 99, "too_big"),
        ("ppt/slides/slide0.xml", "<p:spTree>", "<p:spTree>" + "<p:sp/>" * 60_000, "too_big"),
        ("ppt/slides/slide0.xml", "<p:sld ", "<!DOCTYPE a [<!ENTITY x 'y'>]><p:sld ", "xml_entity"),
        ("ppt/presentation.xml", "<p:sldIdLst>", "<p:sldIdLst><p:sldId r:id='r0'/>", "not_a_presentation"),
        ("ppt/presentation.xml", "r:id", "r:other", "not_a_presentation"),
        (_RELS, "slides/slide0.xml", "../../../etc/passwd", "not_a_presentation"),
    ],
)
@pytest.mark.slow
def test_a_hostile_slide_show_is_refused_by_name(part: str, old: str, new: str, wanted: str) -> None:
    archive = zipfile.ZipFile(io.BytesIO(SHOW))
    parts: dict[str, bytes | str] = {name: archive.read(name).decode() for name in archive.namelist()}
    parts[part] = str(parts[part]).replace(old, new, 1)
    with pytest.raises(RefusedError) as refused:
        slide_show(packed(parts), Bounds())
    assert str(refused.value) == ReadRefusal(wanted)
    assert len(slide_show(SHOW, Bounds())["slides"]) == 1


@given(st.integers(0, len(SHOW) - 1), PIECES)
def test_a_damaged_slide_show_is_read_or_refused(at: int, piece: bytes) -> None:
    with contextlib.suppress(RefusedError):
        slide_show(SHOW[:at] + piece + SHOW[at + len(piece) :], Bounds())


BOOK = styled({"Sheet1": [["a"], [1]]}, marked="A1", charts=(chart(),), pivots=(pivot(),))


@given(st.integers(0, len(BOOK) - 1), PIECES)
def test_a_damaged_styled_workbook_is_read_or_refused(at: int, piece: bytes) -> None:
    with contextlib.suppress(RefusedError):
        styled_workbook(BOOK[:at] + piece + BOOK[at + len(piece) :], Bounds())
