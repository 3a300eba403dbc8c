"""Text documents of a hostile guest: what was set is read, other things are named, and bad files are refused."""

from __future__ import annotations

import zipfile
from typing import Any

import pytest
from hostile import packed, relations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.desktop.files import fork as forked
from actors.desktop.files.read_home import ReadRefusal
from apis.documents.docx import Run, make_docx
from apis.documents.read.bounds import Bounds, RefusedError
from apis.documents.read.parse import text_document

MAIN = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:v="urn:other"'
SMALL = Bounds(
    members=20, member_bytes=20_000, unpacked_bytes=40_000, ratio=50, ratio_from=5000, depth=12, elements=500,
    cells=50, cell_chars=200, chars=1000,
)  # fmt: skip


def docx(body: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    parts: dict[str, bytes | str] = {
        "_rels/.rels": relations(("a", "officeDocument", "word/document.xml")),
        "word/document.xml": f"<w:document {MAIN}><w:body>{body}</w:body></w:document>",
    }
    return packed(parts, method)


def only(body: str) -> dict[str, Any]:
    found = text_document(docx(f"<w:p>{body}</w:p>"), Bounds())
    (paragraph,) = found["paragraphs"]
    return dict(paragraph) | {"extras": found["extras"]}


def run(properties: str, text: str = "a") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def test_what_the_program_makes_is_read_back():
    data = make_docx(["one two", (Run("x ", bold=True), Run("y", highlight="yellow")), ""])
    assert text_document(data, Bounds()) == {
        "paragraphs": [
            {"spans": [{"text": "one two", "marks": []}], "marks": []},
            {"spans": [{"text": "x ", "marks": ["bold"]}, {"text": "y", "marks": ["highlight yellow"]}], "marks": []},
            {"spans": [], "marks": []},
        ],
        "extras": [],
        "tables": [],
        "page_breaks": 0,
    }


@pytest.mark.parametrize(
    ("properties", "marks"),
    [
        ('<w:b/><w:bCs/><w:i w:val="1"/>', ["bold", "italic"]),
        ('<w:b w:val="false"/><w:strike w:val="0"/><w:u w:val="none"/><w:color w:val="auto"/>', []),
        ('<w:u w:val="single"/><w:color w:val="FF0000"/>', ["color ff0000", "underline single"]),
        ('<w:sz w:val="25"/><w:szCs w:val="40"/>', ["size 12.5"]),
        ('<w:dstrike/><w:vanish/><w:rStyle w:val="x"/>', ["hidden", "strike twice", "style x"]),
        ('<w:rFonts w:ascii="A" w:cs="B"/><w:shd w:val="clear" w:fill="FFFF00"/>', ["font A", "shade ffff00"]),
        ('<w:lang w:val="en"/><w:rPrChange><w:rPr><w:b/></w:rPr></w:rPrChange>', []),
    ],
)
def test_marks_of_text(properties: str, marks: list[str]):
    assert only(run(properties))["spans"] == [{"text": "a", "marks": marks}]


@pytest.mark.parametrize(
    ("properties", "marks"),
    [
        ('<w:jc w:val="left"/><w:pStyle w:val="Normal"/>', []),
        ('<w:jc w:val="both"/>', ["justify"]),
        ('<w:jc w:val="center"/><w:rPr><w:b/></w:rPr>', ["center"]),
        ('<w:pStyle w:val="Heading1"/><w:jc w:val="end"/>', ["right", "style Heading1"]),
        ('<w:spacing w:line="480" w:lineRule="auto"/>', ["line 2"]),
        ('<w:spacing w:line="240"/><w:numPr><w:ilvl w:val="0"/></w:numPr><w:pageBreakBefore/>', ["list", "page break"]),
        ("<w:sectPr/>", ["section"]),
    ],
)
def test_marks_of_a_paragraph(properties: str, marks: list[str]):
    found = only(f"<w:pPr>{properties}</w:pPr>{run('')}")
    assert (found["marks"], found["spans"]) == (marks, [{"text": "a", "marks": []}])


def test_runs_of_one_look_are_one_span():
    body = run("<w:b/>", "a ") + run("<w:b/>", "b") + run("") + "<w:r><w:tab/><w:t>c</w:t><w:br/></w:r>"
    assert only(body)["spans"] == [{"text": "a b", "marks": ["bold"]}, {"text": "a\tc\n", "marks": []}]


@pytest.mark.parametrize(
    ("body", "extras"),
    [
        ("<w:bookmarkStart/><w:proofErr/>", []),
        (f"<w:ins>{run('')}</w:ins><w:del><w:r><w:delText>b</w:delText></w:r></w:del>", ["del", "delText", "ins"]),
        ('<w:r><w:br w:type="page"/><w:drawing/></w:r><v:shape/>', ["?:shape", "drawing", "page break"]),
    ],
)
def test_what_is_no_plain_text_is_named(body: str, extras: list[str]):
    assert only(body)["extras"] == extras


def test_tables_and_headers_are_named():
    table = f"<w:tbl><w:tr><w:tc><w:p>{run('')}</w:p></w:tc></w:tr></w:tbl><w:sectPr><w:headerReference/></w:sectPr>"
    found = text_document(docx(table), Bounds())
    assert found["extras"] == ["headerReference", "tbl", "tc", "tr"]
    assert [paragraph["spans"][0]["text"] for paragraph in found["paragraphs"]] == ["a"]


OLD = bytes.fromhex("d0cf11e0a1b11ae1")
DECLARED = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
KINDS = {  # each hostile kind, the refusal that it must get within small bounds, and the file
    "bomb": ("zip_bomb", docx("<w:p/>" + " " * 19_000)),
    "one long run": ("too_big", docx(f"<w:p>{run('', 'x' * 300)}</w:p>", zipfile.ZIP_STORED)),
    "many paragraphs": ("too_big", docx("<w:p/>" * 51, zipfile.ZIP_STORED)),
    "many elements": ("too_big", docx(f"<w:p>{'<w:r><w:t>x</w:t></w:r>' * 300}</w:p>", zipfile.ZIP_STORED)),
    "deep markup": ("too_big", docx("<w:p>" * 100 + "</w:p>" * 100, zipfile.ZIP_STORED)),
    "text outside of paragraphs": ("not_a_text_document", docx(run("") + "<w:p/>")),
    "no paragraph": ("not_a_text_document", docx("")),
    "no document": ("not_a_text_document", packed({"_rels/.rels": relations()})),
    "no archive": ("not_a_text_document", b"words"),
    "an old file": ("not_a_text_document", OLD),
    "an encrypted file": ("encrypted", OLD + "EncryptedPackage".encode("utf-16-le")),
    "entities": (
        "xml_entity",
        packed({"_rels/.rels": relations(("a", "officeDocument", "d.xml")), "d.xml": DECLARED}),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_document_is_refused_by_name(kind: str):
    wanted, data = KINDS[kind]
    with pytest.raises(RefusedError) as refused:
        text_document(data, SMALL)
    assert str(refused.value) == ReadRefusal(wanted)


def test_it_is_parsed_in_a_child_like_a_workbook():
    assert forked.parsed(docx(f"<w:p>{run('')}</w:p>"), Bounds(), "text_document").startswith(
        b'{"paragraphs": [{"spans"'
    )
    with pytest.raises(RefusedError, match="not_a_text_document"):
        forked.parsed(b"", Bounds(), "text_document")


NAMES = ("w:p", "w:r", "w:t", "w:rPr", "w:pPr", "w:sectPr", "w:b", "w:sz", "w:jc", "w:br", "w:tbl", "v:x")
VALUES = ("1", "center", "false", "٣", "9" * 70, "")


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Well-formed markup of the words that the reader knows, in any order."""
    depth, out = [], []
    for _ in range(draw(st.integers(0, 40))):
        move = draw(st.integers(0, 3))
        if move == 0 and depth:
            out.append(f"</{depth.pop()}>")
        elif move == 1:
            out.append(draw(st.text("ab ", max_size=9)))
        else:
            depth.append(draw(st.sampled_from(NAMES)))
            out.append(f'<{depth[-1]} w:val="{draw(st.sampled_from(VALUES))}">')
    return "".join(out) + "".join(f"</{name}>" for name in reversed(depth))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good document with some bytes replaced, put in or cut out."""
    data = bytearray(docx(f"<w:p>{run('<w:b/>')}</w:p>", zipfile.ZIP_STORED))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.sampled_from([0, 1, 30]))] = draw(st.binary(max_size=4))
    return bytes(data)


def attempt(data: bytes) -> tuple[dict[str, Any], str]:
    try:
        return text_document(data, SMALL), ""
    except RefusedError as refused:
        return {}, str(refused)


@pytest.mark.slow
@settings(max_examples=200, deadline=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | mutated() | bodies().map(docx))
def test_any_bytes_get_a_bounded_answer_or_a_refusal(data: bytes):
    found, refusal = attempt(data)
    if refusal:
        assert ReadRefusal(refusal)
        return
    spans = [span for paragraph in found["paragraphs"] for span in paragraph["spans"]]
    assert 1 <= len(found["paragraphs"]) <= SMALL.cells
    assert len(spans) <= SMALL.cells
    assert sum(len(span["text"]) for span in spans) <= SMALL.chars
    assert len(found["extras"]) <= 16
