"""Pairs of an expected and a left file, made by python-docx, python-pptx and openpyxl, with OfficeWorld's verdicts.

Invariant: what is known of a pair comes of the published rules alone, and none of its files is written by this program.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple

import docx
import openpyxl
import pptx
from docx.enum.text import WD_BREAK
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from openpyxl.styles import Font, PatternFill
from PIL import Image
from pptx.util import Inches, Pt

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
V = 'xmlns:v="urn:schemas-microsoft-com:vml"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
NOTES = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"


class Pair(NamedTuple):
    """What is expected and what was left, with the verdict on it."""

    name: str
    metric: str
    expected: bytes
    left: bytes
    right: bool
    options: dict[str, Any] = {}
    called: str = "left"


def saved(made: Any) -> bytes:
    """A document as its package writes it."""
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def picture(colour: str = "red") -> io.BytesIO:
    """A small PNG."""
    out = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(out, "PNG")
    out.seek(0)
    return out


Step = Callable[[Any], object]


def text(*parts: str | Step) -> bytes:
    """A docx: paragraphs by their texts, anything else by a step."""
    made = docx.Document()
    for part in parts:
        if isinstance(part, str):
            made.add_paragraph(part)
        else:
            part(made)
    return saved(made)


def styled(*runs: str, **looks: Any) -> Step:
    """A paragraph of runs that look so."""

    def made(document: Any) -> None:
        paragraph = document.add_paragraph()
        for said in runs:
            one = paragraph.add_run(said)
            for name, value in looks.items():
                setattr(one.font, name, value)

    return made


def table(*rows: list[str]) -> Step:
    """A table of texts, in a docx."""

    def made(document: Any) -> None:
        grid = document.add_table(len(rows), len(rows[0]))
        for at, row in enumerate(rows):
            for column, said in enumerate(row):
                grid.cell(at, column).text = said

    return made


def drawn(colour: str = "red", width: float = 1.0) -> Step:
    """A picture in a paragraph of its own."""
    return lambda document: document.add_picture(picture(colour), width=Inches(width))


def broken(kind: Any = WD_BREAK.PAGE) -> Step:
    """A break."""
    return lambda document: document.add_paragraph().add_run().add_break(kind)


def commented(said: str, author: str = "a") -> Step:
    """A paragraph with a comment."""

    def made(document: Any) -> None:
        document.add_comment(document.add_paragraph("note").runs, said, author)

    return made


def headed(said: str) -> Step:
    """A header."""

    def made(document: Any) -> None:
        document.sections[0].header.paragraphs[0].text = said

    return made


def xml(inside: str) -> Step:
    """A paragraph of raw markup, in front of the others."""
    return lambda document: document.element.body.insert(0, parse_xml(f"<w:p {W} {V} {R}>{inside}</w:p>"))


def run(said: str) -> str:
    """A run's markup."""
    return f'<w:r><w:t xml:space="preserve">{said}</w:t></w:r>'


def linked(said: str) -> str:
    """A link's markup."""
    return f"<w:hyperlink>{run(said)}</w:hyperlink>"


def inserted(said: str) -> str:
    """The markup of a text that was inserted while changes are recorded."""
    return f'<w:ins w:id="1" w:author="a">{run(said)}</w:ins>'


def deleted(said: str) -> str:
    """The markup of a text that was deleted while changes are recorded."""
    gone = f'<w:r><w:delText xml:space="preserve">{said}</w:delText></w:r>'
    return f'<w:del w:id="{len(said)}" w:author="a" w:date="2026-01-02T03:04:05Z">{gone}</w:del>'


def taken_away(said: str) -> str:
    """A run that was moved elsewhere under tracking."""
    return f'<w:moveFrom w:id="1" w:author="a">{run(said)}</w:moveFrom>'


def boxed(said: str) -> str:
    """The markup of a text box as old Word has it."""
    inside = f"<v:textbox><w:txbxContent><w:p>{run(said)}</w:p></w:txbxContent></v:textbox>"
    return f"<w:r><w:pict><v:rect>{inside}</v:rect></w:pict></w:r>"


def branched(said: str) -> str:
    """A text box as new Word has it: a shape, and for old programs the same text once more."""
    shape = f"<w:drawing><wps:txbx><w:txbxContent><w:p>{run(said)}</w:p></w:txbxContent></wps:txbx></w:drawing>"
    old = boxed(said).removeprefix("<w:r>").removesuffix("</w:r>")
    branches = f'<mc:Choice Requires="wps">{shape}</mc:Choice><mc:Fallback>{old}</mc:Fallback>'
    spaces = (
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
        ' xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
    )
    return f"<w:r><mc:AlternateContent {spaces}>{branches}</mc:AlternateContent></w:r>"


def noted(said: str, *, separators: bool = True) -> Step:
    """A paragraph with a footnote, and the part that holds it."""

    def made(document: Any) -> None:
        lines = f'<w:footnote w:id="-1" w:type="separator"><w:p>{run("line")}</w:p></w:footnote>' * separators
        body = f'<w:footnotes {W}>{lines}<w:footnote w:id="2"><w:p>{run(said)}</w:p></w:footnote></w:footnotes>'
        part = Part(PackURI("/word/footnotes.xml"), NOTES, body.encode(), document.part.package)
        document.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)
        xml(f'{run("see")}<w:r><w:footnoteReference w:id="2"/></w:r>')(document)

    return made


GRID = (["a", "b"], ["c", "d"])
TEXTS: list[tuple[str, bytes, bytes, bool]] = [
    ("same", text("one", "two"), text("one", "two"), True),
    ("bold", text("one"), text(styled("one", bold=True, size=Pt(30))), True),
    ("a heading", text("one"), text(lambda made: made.add_heading("one", 2)), True),
    ("one paragraph for two", text("one", "two"), text("onetwo"), True),
    ("runs for a run", text("one"), text(styled("o", "ne", italic=True)), True),
    ("empty paragraphs", text("one"), text("", "one", ""), True),
    ("a letter", text("one"), text("onE"), False),
    ("a blank", text("one"), text("one "), False),
    ("order", text("one", "two"), text("two", "one"), False),
    ("more", text("one"), text("one", "two"), False),
    ("a header", text("one"), text(headed("page"), "one"), True),
    ("blanks in a cell", text(table(*GRID)), text(table(["a ", " b"], ["c", "d"])), True),
    ("a cell", text(table(*GRID)), text(table(["a", "b"], ["c", "e"])), False),
    ("a table's shape", text(table(*GRID)), text(table(["a", "b", "c", "d"])), False),
    ("a table's place", text("one", table(*GRID)), text(table(*GRID), "one"), False),
    ("a table as text", text(table(["a", "b"])), text("a, b"), False),
    ("another picture", text("one", drawn("red")), text("one", drawn("blue", 2.0)), True),
    ("a second picture", text("one", drawn()), text("one", drawn(), drawn()), False),
    ("a picture's place", text("one", drawn(), "two"), text(drawn(), "one", "two"), False),
    ("a page break", text("one", broken(), "two"), text("one", broken(), "two"), True),
    ("a break of a line", text("one", broken(), "two"), text("one", broken(WD_BREAK.LINE), "two"), False),
    ("another author", text(commented("good")), text(commented("good", "b")), True),
    ("another comment", text(commented("good")), text(commented("bad")), False),
    ("a comment's text in the body", text(commented("good")), text("notegood"), False),
    ("a link", text(xml(linked("one"))), text("one"), True),
    ("recorded insertion", text("one"), text("one", xml(inserted("two"))), True),
    ("moved away under tracking", text("one"), text("one", xml(taken_away("two"))), True),
    ("a text box in two branches", text("one", xml(boxed("in"))), text("one", xml(branched("in"))), True),
    ("another text box in one branch", text("one", xml(boxed("in"))), text("one", xml(branched("out"))), False),
    ("a footnote", text(noted("source")), text(noted("source", separators=False)), True),
    ("another footnote", text(noted("source")), text(noted("sources")), False),
    ("a footnote in the body", text(noted("source")), text("seesource"), False),
    ("a text box", text("one", xml(boxed("in"))), text("one", xml(boxed(" in "))), True),
    ("no text box", text("one", xml(boxed("in"))), text("in", "one"), False),
]  # fmt: skip


def slides(*made: list[Step]) -> bytes:
    """A pptx of blank slides, each by its steps."""
    show = pptx.Presentation()
    for steps in made:
        slide = show.slides.add_slide(show.slide_layouts[6])
        for step in steps:
            step(slide)
    return saved(show)


def box(said: str, left: float = 1.0, **looks: Any) -> Step:
    """A text box; lines are paragraphs."""

    def made(slide: Any) -> None:
        frame = slide.shapes.add_textbox(Inches(left), Inches(1), Inches(2), Inches(1)).text_frame
        frame.text = said
        for name, value in looks.items():
            setattr(frame.paragraphs[0].runs[0].font, name, value)

    return made


def shape(said: str = "") -> Step:
    """A rectangle with words in it."""

    def made(slide: Any) -> None:
        slide.shapes.add_shape(1, 0, 0, Inches(1), Inches(1)).text_frame.text = said

    return made


def grouped(said: str) -> Step:
    """A text box in a group."""

    def made(slide: Any) -> None:
        slide.shapes.add_group_shape().shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = said

    return made


def shown(colour: str = "red", left: float = 1.0) -> Step:
    """A picture."""
    return lambda slide: slide.shapes.add_picture(picture(colour), Inches(left), 0, Inches(1))


def gridded(*rows: list[str]) -> Step:
    """A table of texts, on a slide."""

    def made(slide: Any) -> None:
        grid = slide.shapes.add_table(len(rows), len(rows[0]), 0, 0, Inches(4), Inches(2)).table
        for at, row in enumerate(rows):
            for column, said in enumerate(row):
                grid.cell(at, column).text = said

    return made


def spoken(said: str) -> Step:
    """Notes."""

    def made(slide: Any) -> None:
        slide.notes_slide.notes_text_frame.text = said

    return made


A, B = box("one"), box("two", 3)
SHOWS: list[tuple[str, bytes, bytes, bool]] = [
    ("same", slides([A, B]), slides([A, B]), True),
    ("bold", slides([A]), slides([box("one", bold=True, size=Pt(40))]), True),
    ("moved", slides([A]), slides([box("one", 5)]), True),
    ("order of boxes", slides([A, B]), slides([B, A]), True),
    ("notes", slides([A, spoken("say")]), slides([A, spoken("else")]), True),
    ("an empty box", slides([A]), slides([A, box(""), shape()]), True),
    ("blanks around", slides([A]), slides([box(" one ")]), True),
    ("lines for a line", slides([box("one two")]), slides([box("one \ntwo")]), True),
    ("a shape for a box", slides([A]), slides([shape("one")]), True),
    ("in a group", slides([A, B]), slides([A, grouped("two")]), True),
    ("a letter", slides([A]), slides([box("onE")]), False),
    ("a blank within", slides([box("one two")]), slides([box("one  two")]), False),
    ("two boxes for one", slides([box("one two")]), slides([A, B]), False),
    ("twice", slides([A]), slides([A, A]), False),
    ("less", slides([A, B]), slides([A]), False),
    ("another slide", slides([A], [B]), slides([A]), False),
    ("an empty slide", slides([A]), slides([A], []), False),
    ("order of slides", slides([A], [B]), slides([B], [A]), False),
    ("on the other slide", slides([A, B], []), slides([A], [B]), False),
    ("another picture", slides([A, shown()]), slides([shown("blue", 4), A]), True),
    ("a second picture", slides([A, shown()]), slides([A, shown(), shown()]), False),
    ("a table", slides([gridded(*GRID)]), slides([gridded(["a ", "b"], ["c", " d"])]), True),
    ("a cell", slides([gridded(*GRID)]), slides([gridded(["a", "b"], ["c", "e"])]), False),
    ("a table's shape", slides([gridded(*GRID)]), slides([gridded(["a", "b", "c", "d"])]), False),
    ("a table as boxes", slides([gridded(["one", "two"])]), slides([A, B]), False),
]


def book(
    rows: dict[str, Any],
    formats: dict[str, str] | None = None,
    looks: dict[str, Any] | None = None,
    **others: dict[str, Any],
) -> bytes:
    """An xlsx: cells of Sheet1, their formats and their looks; `others` are more sheets."""
    made = openpyxl.Workbook()
    made.active.title = "Sheet1"
    for name, cells in {"Sheet1": rows, **others}.items():
        sheet = made[name] if name in made.sheetnames else made.create_sheet(name)
        for place, value in cells.items():
            sheet[place] = value
    for place, code in (formats or {}).items():
        made.active[place].number_format = code
    for place, look in (looks or {}).items():
        setattr(made.active[place], "fill" if isinstance(look, PatternFill) else "font", look)
    return saved(made)


DAY = datetime(2024, 3, 1, 8, 0)
SEEN = {"A1": "item", "B1": "price", "A2": "tea", "B2": 3.5, "A3": "milk", "B3": 2}
ON = {"answer_position": "B1:B3"}
YELLOW = PatternFill("solid", fgColor="FFFF00")
BOOKS: list[tuple[str, bytes, bytes, bool, dict[str, Any]]] = [
    ("same", book(SEEN), book(SEEN), True, ON),
    ("looks", book(SEEN), book(SEEN, looks={"B2": YELLOW, "B3": Font(bold=True)}), True, ON),
    ("elsewhere", book(SEEN), book(SEEN | {"A2": "coffee", "D9": 1}), True, ON),
    ("a cell", book(SEEN), book(SEEN | {"B3": 3}), False, ON),
    ("two digits", book(SEEN), book(SEEN | {"B2": 3.5049}), True, ON),
    ("beyond two digits", book(SEEN), book(SEEN | {"B2": 3.506}), False, ON),
    ("a number as text", book(SEEN), book(SEEN | {"B2": "3.50"}), True, ON),
    ("a comma for a point", book(SEEN), book(SEEN | {"B2": "3,5"}), False, ON),
    ("a currency", book(SEEN), book(SEEN, {"B2": '"$"#,##0.00'}), True, ON),
    ("an empty text", book(SEEN), book(SEEN | {"B4": ""}), True, {"answer_position": "B1:B4"}),
    ("more in the range", book(SEEN), book(SEEN | {"B4": 1}), False, {"answer_position": "B1:B4"}),
    ("zero for nothing", book(SEEN), book(SEEN | {"B4": 0}), False, {"answer_position": "B4"}),
    ("true for one", book({"A1": True}), book({"A1": 1}), True, {"answer_position": "A1"}),
    ("case", book(SEEN), book(SEEN | {"B1": "Price"}), False, ON),
    ("a formula without a result", book(SEEN), book(SEEN | {"B3": "=1+1"}), False, ON),
    ("the first sheet", book(SEEN, Other={"B2": 1}), book(SEEN, Other={"B2": 2}), True, ON),
    ("another sheet", book(SEEN, Other={"B2": 1}), book(SEEN, Other={"B2": 2}), False, {"answer_position": "Other!B2"}),
    ("a lost sheet", book(SEEN, Other={"B2": 1}), book(SEEN), False, {"answer_position": "'Other'!B2"}),
    ("a quote", book(SEEN, Other={"B2": 1}), book(SEEN, Other={"B2": 2}), False, {"answer_position": "Other'!B2:B3"}),
    (
        "a quote, right",
        book(SEEN, Other={"B2": 1}),
        book({}, Other={"B2": 1}),
        True,
        {"answer_position": "Other'!B2:B3"},
    ),
    ("the last range", book(SEEN), book(SEEN | {"B2": 9}), True, {"answer_position": "B2,B3"}),
    ("an hour of a day", book({"A1": DAY}), book({"A1": DAY.replace(hour=9)}), True, {"answer_position": "A1"}),
    ("past noon", book({"A1": DAY}), book({"A1": DAY.replace(hour=20)}), False, {"answer_position": "A1"}),
    ("another day", book({"A1": DAY}), book({"A1": DAY + timedelta(days=1)}), False, {"answer_position": "A1"}),
    ("a day's number", book({"A1": DAY.replace(hour=0)}), book({"A1": 45352}), True, {"answer_position": "A1"}),
    ("a day as text", book({"A1": DAY}), book({"A1": "2024-03-01"}), False, {"answer_position": "A1"}),
    ("seconds", book({"A1": time(8, 30, 1)}), book({"A1": time(8, 30, 59)}), True, {"answer_position": "A1"}),
    ("minutes", book({"A1": time(8, 30)}), book({"A1": time(8, 31)}), False, {"answer_position": "A1"}),
    ("a time as text", book({"A1": time(8, 30)}), book({"A1": "08:30"}), True, {"answer_position": "A1"}),
    (
        "a longer duration",
        book({"A1": timedelta(hours=30)}),
        book({"A1": timedelta(hours=31)}),
        False,
        {"answer_position": "A1"},
    ),
    ("an error", book({"A1": "#N/A"}), book({"A1": "#DIV/0!"}), False, {"answer_position": "A1"}),
]
CF = {"called": "1_CF_2_input.xlsx"}
PAIRS = [
    *(Pair(name, "simple_docx_compare", *rest) for name, *rest in TEXTS),
    *(Pair(name, "simple_pptx_compare", *rest) for name, *rest in SHOWS),
    *(Pair(name, "compare_spreadsheet", *rest) for name, *rest in BOOKS),
    Pair("a colour", "compare_spreadsheet", book(SEEN, looks={"B2": YELLOW}), book(SEEN), False, ON, **CF),
    Pair("the same colour", "compare_spreadsheet", *[book(SEEN, looks={"B2": YELLOW})] * 2, True, ON, **CF),
]  # fmt: skip
