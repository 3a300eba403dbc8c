"""Presentations of a hostile guest: what is read of good ones, and that every other file is refused by name."""

from __future__ import annotations

import contextlib
import io
import zipfile

import pytest
from hostile import packed
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.files.read_home import ReadRefusal
from apis.documents.read.bounds import Bounds, RefusedError
from apis.documents.read.parse import slide_show, styled_workbook
from tests.apis.twins.made_books import chart, pivot, styled
from tests.apis.twins.made_slides import Box, Page, make_pptx

PIECES = st.binary(max_size=4) | st.sampled_from([b"<a>", b"</a>", b"<!DOCTYPE a>", b"&x;", b"PK\x01\x02", b"\xff" * 4])
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
