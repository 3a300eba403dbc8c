"""Writer: every function works on a paragraph of its own, and what it did is read from the saved document.

Invariant: a paragraph begins with a word that only one case changes, so no case depends on another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from apis.apps.check.case import Case, Desk, Step, Table, pages, same, told, want
from apis.apps.check.docx import TextFile
from apis.apps.check.picture import png
from apis.documents.docx import Run, make_docx

TEXT_DOCUMENT, PDF = "Documents/paper.docx", "Documents/out.pdf"
PICTURE, BROKEN = "Pictures/red.png", "Pictures/broken.png"
PARAGRAPHS: tuple[str | tuple[Run, ...], ...] = (
    "Title of it",
    "caret stands here",
    "colour the pears and pears",
    (Run("swap one, "), Run("one", bold=True), Run(" & one")),
    "font of this",
    "spacing of this",
    (Run("unmark "), Run("marked", highlight="yellow"), Run(" words")),
    (Run("seek "), Run("green ", highlight="green"), Run("grün <b>", highlight="green", bold=True), Run(" words")),
    "strike out this word",
    "size of BIG words",
    "aligned text",
    "words of the old man's \u00fcber-coat",
    (Run("shout "), Run("qui", bold=True), Run("etly, stra\u00dfe")),
    "end",
)
AT = {(words if isinstance(words, str) else words[0].text).split()[0]: at for at, words in enumerate(PARAGRAPHS)}
Seen = Callable[[TextFile], None]


def _keys(*combinations: tuple[str, ...]) -> Step:
    """Move the caret as a user does."""

    async def press(desk: Desk) -> None:
        for keys in combinations:
            await desk.call("hotkey", keys=list(keys))
        await desk.call("settle", timeout_ms=5000)

    return press


AT_END = _keys(("ctrl", "End"))


def _case(
    function: str, right: Mapping[str, Any], says: str, wrong: Mapping[str, Any], refusal: str, **more: Any
) -> Case:
    return Case(function=function, right=right, says=says, wrong=wrong, refusal=refusal, **more)


def _only(paragraph: str, text: str, tag: str, value: str) -> Seen:
    """The text has the property and the paragraph's first word has not."""

    def look(document: TextFile) -> None:
        found = document.paragraph(paragraph)
        same(set(found.look(text, tag)), {value}, f"{tag} of {text!r}")
        same([each for each in found.look(paragraph, tag) if each == value], [], f"{tag} of {paragraph!r}")

    return look


def _written(document: TextFile) -> None:
    found = document.paragraph("caret")
    same(found.text, "caret stands here, so <b> &", "the paragraph with the caret")
    same(found.look("so <b> &", "b"), [""], "bold")
    same(found.look("so <b> &", "sz"), ["32"], "half points")
    same(found.look("caret", "b"), [None], "bold before")
    at = document.paragraphs.index(found)
    same(document.paragraphs[at + 1].text, "next", "the paragraph behind it")


def _swapped(document: TextFile) -> None:
    found = document.paragraph("swap")
    same(found.text, "swap ones, ones & ones", "text")
    same([found.look("swap", "b"), found.look("ones &", "b")], [[None], ["", None]], "bold of the second and third")


def _font(document: TextFile) -> None:
    same(set(document.paragraph("font").look("font of this", "rFonts@ascii")), {"DejaVu Sans"}, "font")
    want(
        "DejaVu Sans" not in document.paragraph("spacing").look("spacing", "rFonts@ascii"), "another has the font, too"
    )


def _unmarked(document: TextFile) -> None:
    found = document.paragraph("unmark").look("unmark marked words", "highlight")
    want(all(each in (None, "none") for each in found), f"highlights: {found}")
    want("green" in document.paragraph("seek").look("green", "highlight"), "another lost its highlight")


def _raised(document: TextFile) -> None:
    found = document.paragraph("shout")
    same(found.text, "shout QUIETLY, STRASSE", "text")
    same([found.look("QUI", "b"), found.look("ETLY", "b")], [[""], [None]], "bold")


def _capitals(document: TextFile) -> None:
    same(document.paragraph("words of").text, "Words Of The Old Man's \u00dcber-Coat", "text")


def _aligned(document: TextFile) -> None:
    same(document.paragraph("aligned").properties.get("jc"), "both", "alignment")
    same(document.paragraph("font").properties.get("jc") in (None, "left", "start"), True, "alignment of another")


def _spaced(document: TextFile) -> None:
    found = document.paragraph("spacing").properties
    same((found.get("spacing@line"), found.get("spacing@lineRule")), ("360", "auto"), "spacing, 240 being a line")


def _default(document: TextFile) -> None:
    found = re.search(r"<w:rPrDefault>.*?</w:rPrDefault>", document.text("word/styles.xml"))
    text = found[0] if found else "no default"
    want('w:ascii="Liberation Sans"' in text and '<w:sz w:val="22"/>' in text, text)


def _formula(document: TextFile) -> None:
    want(any(each.has("oMath") for each in document.paragraphs), "there is no formula")
    body = document.text("word/document.xml")
    want("<m:f>" in body and "<m:rad>" in body, "the formula has no fraction or no root")


def _picture(document: TextFile) -> None:
    want(any(each.has("inline") for each in document.paragraphs), "there is no picture in the text")
    want(any(name.startswith("word/media/") for name in document.names), "the picture is not in the file")
    body = document.text("word/document.xml")
    want('cx="1143000" cy="571500"' in body, "no picture is 120 x 60 pixels large, in 1/914400 inch")


def _broken(document: TextFile) -> None:
    text = document.text("word/document.xml")
    want("w:pageBreakBefore" in text or 'w:br w:type="page"' in text, "there is no page break")


def _numbered(document: TextFile) -> None:
    found = [part for part in document.parts("word/footer") if "PAGE" in part]
    want(bool(found), "no footer has a page number")
    want("NUMPAGES" in found[0] and '<w:jc w:val="center"/>' in found[0], found[0][-400:])
    want('w:pgNumType w:start="3"' in document.text("word/document.xml"), "the first page is not 3")


async def _pdf(desk: Desk, _: str) -> None:
    want(pages(await desk.contents(PDF)) > 0, "out.pdf has no page")


async def _caret_moved(desk: Desk, _: str) -> None:
    info = await told(desk)
    want(f"caret: paragraph {AT['caret'] + 1}, after character 4" in info, info)


async def _changed(desk: Desk) -> None:
    """Have a text that no file holds yet."""
    await desk.tool("find_and_replace", pattern="(?<=of BIG )(words|worths)", replacement="worths")


async def _kept(desk: Desk, _: str) -> None:
    same(TextFile(await desk.contents(TEXT_DOCUMENT)).paragraph("size").text, "size of BIG worths", "the saved file")


CASES = (
    _case("find_highlighted_text", {"highlight_color": "#00ff00"}, "1 place highlighted in #00ff00:\nparagraph 7",
          {"highlight_color": "reddish"}, "highlight_color: write a colour"),
    _case("set_color", {"pattern": "pears", "color": 0xFF0000}, "2 matches now #ff0000: paragraph 2",
          {"pattern": "(pears", "color": 1}, "pattern: '(pears' is no regular expression: missing )",
          saved=_only("colour", "pears", "color", "FF0000")),
    _case("find_and_replace", {"pattern": "(one)", "replacement": r"\1s", "paragraph_indices": [AT["swap"]]},
          "3 matches replaced: paragraph 3", {"pattern": "one", "replacement": r"\1"},
          "replacement: invalid group reference 1", saved=_swapped,
          again=lambda n: {"pattern": r"\bend", "replacement": "end", "paragraph_indices": None}),
    _case("set_font", {"font_name": "DejaVu Sans", "paragraph_indices": [AT["font"]]}, "paragraph 4: font",
          {"font_name": ""}, "font_name: write one font's name", saved=_font),
    _case("set_line_spacing", {"spacing_value": 1.5, "paragraph_indices": [AT["spacing"]]},
          "paragraph 5: line spacing 1.5", {"spacing_value": 0}, "spacing_value: write a number from 0.5",
          saved=_spaced),
    _case("remove_highlighting", {"paragraph_indices": [AT["unmark"]]}, "paragraph 6: highlighting taken from 1 place",
          {"paragraph_indices": [999]}, "paragraph_indices: there is no paragraph 999; there are 14", saved=_unmarked),
    _case("set_strikethrough", {"pattern": "this word"}, "1 match struck through: paragraph 8",
          {"pattern": "zebra"}, "pattern: 'zebra' matches nothing in the document",
          saved=_only("strike", "this word", "strike", "")),
    _case("set_font_size", {"font_size": 20, "pattern": "B.G"}, "1 match now 20 points: paragraph 9",
          {"font_size": 0, "pattern": "BIG"}, "font_size: write a number from 1",
          saved=_only("size", "BIG", "sz", "40")),
    _case("set_paragraph_alignment", {"alignment": "justify", "paragraph_indices": [AT["aligned"]]},
          "paragraph 10: aligned justify", {"alignment": "middle"}, "alignment: write one of 'left'", saved=_aligned),
    _case("capitalize_words", {"paragraph_indices": [AT["words"]]}, "7 words changed", {"paragraph_indices": []},
          "paragraph_indices: write a list", saved=_capitals),
    _case("change_text_case", {"case_type": "uppercase", "pattern": "quietly.*"}, "1 match now uppercase: paragraph 12",
          {"case_type": "title", "pattern": "shout"}, "case_type: write one of 'lowercase'", saved=_raised,
          again=lambda n: {"case_type": ("lowercase", "uppercase")[n % 2], "pattern": "(?i)quietly.*"}),
    _case("set_default_font", {"font_name": "Liberation Sans", "font_size": 11},
          "the default font is 'Liberation Sans', 11 points", {"font_name": "Liberation Sans", "font_size": 1000},
          "font_size: write a number from 1", saved=_default),
    _case("write_text", {"text": ", so <b> &\nnext", "bold": True, "size": 16},
          "wrote 15 characters; the caret is in paragraph 2", {"text": ""}, "text: write at least one character",
          before=_keys(("ctrl", "Home"), ("Down",), ("End",)), effect=_caret_moved, saved=_written),
    _case("insert_formula_at_cursor", {"formula": "a over b = sqrt 2"}, "inserted the formula 'a over b = sqrt 2'",
          {"formula": " "}, "formula: write one like", before=AT_END, saved=_formula),
    _case("insert_image_at_cursor", {"image_path": f"~/{PICTURE}", "width": 120}, "inserted red.png, 120 x 60 pixels",
          {"image_path": f"~/{BROKEN}"}, "image_path: broken.png is no image", before=AT_END, saved=_picture),
    _case("insert_page_break", {}, "a new page begins with paragraph", {"position": "start"},
          "position: write one of 'at_cursor'", before=AT_END, saved=_broken),
    _case("add_page_numbers", {"position": "bottom_center", "start_number": 3, "format": "Page 1 of N"},
          "footer, center: page numbers like 'Page 1 of N'; the first page is 3", {"position": "left"},
          "position: write one of 'top_left'", saved=_numbered),
    _case("export_to_pdf", {"output_path": "~/Documents", "output_filename": "out"}, "wrote Documents/out.pdf",
          {"output_path": "/etc"}, "output_path: the folder lies outside the home folder", effect=_pdf, light=False),
    Case(function="save", before=_changed, says="saved paper.docx", effect=_kept),
)  # fmt: skip


def _files() -> Mapping[str, bytes]:
    return {TEXT_DOCUMENT: make_docx(PARAGRAPHS), PICTURE: png(40, 20, 0xFF0000), BROKEN: b"no picture"}


async def _read(desk: Desk) -> TextFile:
    await desk.tool("save")
    return TextFile(await desk.contents(TEXT_DOCUMENT))


TABLE = Table(
    app="libreoffice_writer",
    owner="WriterTools",
    cases=CASES,
    files=_files,
    opens=(f"{{home}}/{TEXT_DOCUMENT}",),
    title="paper.docx",
    read=_read,
)
