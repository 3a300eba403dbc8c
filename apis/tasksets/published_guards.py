"""What a result has to be besides, where a published metric gives its score to a wrong end as well.

A guard can only refuse: it returns what is wrong, "" for nothing. What it can't read it refuses. It runs where the
metric has run, so only what that environment has is imported. Paths are of files there; `None` is a missing file.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

KEPT = 0.8  # share of a start's words that have to be there still
FEW_WORDS = 5  # of which nothing can be said
NEAR = 0.02  # of a side's length, by which a shape that was not moved may differ
MIDDLE = 0.05  # of a picture's side: how far from its middle
BLUR, ALIKE = 3, 26  # points; and of 255, how far a colour of two blurred pages that show the same may differ
LOW_DOWN, FAR_RIGHT, HIGH_UP = 3_600_000, 4_320_000, 1_980_000  # EMU, where moved shapes have to be
_TEXTS = re.compile(r"word/document\.xml|ppt/slides/slide\d+\.xml|content\.xml")
_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZ", b"\xfd7"
# What an archive of this name begins with; a tar that is not packed begins with the name of its first file.
_PACKED = {
    "zip": b"PK", "gz": _GZIP, "tgz": _GZIP, "bz2": _BZIP2, "tbz2": _BZIP2, "xz": _XZ, "txz": _XZ, "tar": b"",
}  # fmt: skip
_OFF = re.compile(r'oor:path="[^"]*Common/Save/Document">\s*<prop oor:name="AutoSave"[^>]*>\s*<value>false')
_GAPS = ("tab", "br", "s", "line-break")
_VOWELS = "aeiou"
# Where a sentence ends: not behind a short word with a capital, as in "Mr. Smith", nor behind "e.g.".
_SENTENCES = re.compile(r"(?<!\b[A-Z])(?<!\b[A-Z][a-z])(?<!\b[A-Z][a-z]{2})(?<!\.[a-z])\.(?:\s|$)")
_DIVIDED = re.compile(r"(?:[A-Z][a-z]{0,2}\. )?\S+ \S+ \S+(?: *\t\s*| {2,})\S")  # "Mr." counts as a word, or does not
# Where a shape goes by this option: the side that changes, in which direction, and how far at least.
_MOVES = {
    "examine_title_bottom_position": ("top", 1, LOW_DOWN),
    "examine_table_bottom_position": ("top", 1, LOW_DOWN),
    "examine_right_position": ("left", 1, FAR_RIGHT),
    "examine_top_position": ("top", -1, HIGH_UP),
}
_SAME = {"TX1": "DK1", "TX2": "DK2", "BG1": "LT1", "BG2": "LT2"}  # names that a theme's colours have, too
Guard = Callable[[list[Any], dict[str, Any], Sequence[str]], str]  # arguments, options, the files at the start


def refused(metric: str, arguments: list[Any], options: dict[str, Any], starts: Sequence[str]) -> str:
    """Why a result that `metric` gave a score is none, "" where it is."""
    guard = GUARDS.get(metric)
    if guard is None:
        return ""
    try:
        return guard(arguments, options, starts)
    except Exception as error:  # noqa: BLE001 - what can't be read is refused
        return f"it can't be read ({type(error).__name__})"


def at_fault(metric: str, arguments: list[Any], options: dict[str, Any]) -> str:
    """Why no result can be right, by what is expected; "" where nothing says so."""
    compared = any(rule.get("type") in ("sheet_data", "sheet_fuzzy") for rule in options.get("rules", []))
    if metric != "compare_table" or not compared or len(arguments) < 2:
        return ""
    from openpyxl import load_workbook

    written, shown = (load_workbook(arguments[1], data_only=values) for values in (False, True))
    formulas = [
        (sheet, at) for sheet in written.worksheets for at, cell in sheet._cells.items() if cell.data_type == "f"
    ]
    if formulas and not any(shown[sheet.title].cell(*at).value is not None for sheet, at in formulas):
        return "what is expected was never calculated: no formula in it has a result"
    return ""


def _local(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def paragraphs(path: str) -> Iterator[str]:
    """The paragraphs of a docx, pptx or odf file, of tables and boxes too; codes of fields and places are no text."""
    from lxml import etree

    with zipfile.ZipFile(path) as archive:
        for name in filter(_TEXTS.fullmatch, archive.namelist()):
            root = etree.fromstring(archive.read(name), etree.XMLParser(resolve_entities=False))
            for element in root.iter():
                if _local(element) in _GAPS:
                    element.text = " "
                elif name != "content.xml" and _local(element) != "t":
                    element.text = ""
            yield from ("".join(element.itertext()) for element in root.iter() if _local(element) in ("p", "h"))


def words(path: str) -> Counter[str]:
    """How often a document says each word, in small letters."""
    return Counter(word for text in paragraphs(path) for word in re.findall(r"\w+", text.casefold()))


def _kept(arguments: list[Any], _: dict[str, Any], starts: Sequence[str]) -> str:
    """The words of a document that the task starts with, or of what is expected, are there still."""
    ending = str(arguments[0]).rpartition(".")[2]
    wanted = [one for one in arguments[1:2] if isinstance(one, str) and one.startswith("/")]
    others = [words(path) for path in (*wanted, *starts) if path.endswith((f".{ending}", "/gold"))]
    there = words(arguments[0])
    shares = [(there & other).total() / other.total() for other in others if other.total() >= FEW_WORDS]
    return "" if not shares or max(shares) >= KEPT else f"of the words {max(shares):.0%} are there still"


def _document(path: str) -> Any:
    from docx import Document

    return Document(path)


def _none_emptied(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    """As many paragraphs as in what is expected, empty ones at the end apart."""
    texts = [[paragraph.text.strip() for paragraph in _document(path).paragraphs] for path in arguments[:2]]
    there, wanted = (max((at for at, text in enumerate(each, 1) if text), default=0) for each in texts)
    return "" if there >= wanted else f"it has {there} paragraphs and not {wanted}"


def _runs(document: Any) -> Iterator[tuple[int, Any]]:
    for number, paragraph in enumerate(document.paragraphs):
        yield from ((number, run) for run in paragraph.runs)


def _same_runs(looked_at: Callable[[Any], object]) -> Guard:
    """The same texts look so, spaces apart; where none is expected to, nothing can be said."""

    def guard(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
        both = []
        for path in arguments[:2]:
            texts: dict[int, str] = {}
            for number, run in _runs(_document(path)):
                texts[number] = texts.get(number, "") + (run.text if looked_at(run) else "")
            both.append(["".join(text.split()) for text in texts.values() if text.strip()])
        return "" if both[0] == both[1] or not both[1] else "not the same texts look so"

    return guard


def _struck_through(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    from docx.oxml.ns import qn
    from docx.text.run import Run

    last = next((one for one in reversed(_document(arguments[0]).paragraphs) if one.text.strip()), None)
    runs = [] if last is None else [Run(run, last) for run in last._p.iter(qn("w:r"))]  # those of links, too
    struck = [run.font.strike or run.font.double_strike for run in runs if run.text.strip()]
    return "" if struck and all(struck) else "the last paragraph with text is not struck through"


def _colored_words(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    there, wanted = (
        [cell for table in _document(path).tables for row in table.rows for cell in row.cells] for path in arguments[:2]
    )
    if [cell.text.split() for cell in there] != [cell.text.split() for cell in wanted]:
        return "the words of tables are not the same"
    for run in (run for cell in there for paragraph in cell.paragraphs for run in paragraph.runs):
        if len({word[0].lower() in _VOWELS for word in run.text.split()}) > 1:
            return f"{run.text[:40]!r} has one colour"
    return ""


def _page_numbers(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    fields = [re.search(r"\bPAGE\b", one.footer._element.xml) for one in _document(arguments[0]).sections]
    return "" if all(fields) else "a footer has no field of page numbers"


def _apart(arguments: list[Any], options: dict[str, Any], starts: Sequence[str]) -> str:
    """Of each sentence a tab or a wide space divides the first three words from the others."""
    for paragraph in _document(arguments[0]).paragraphs:
        for sentence in (one.strip() for one in _SENTENCES.split(paragraph.text)):
            if len(sentence.split()) > 3 and not _DIVIDED.match(sentence):
                return f"nothing divides {sentence[:40]!r}"
    return _kept(arguments, options, starts)


def _no_yellow(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    texts, yellow = [], []
    for path in arguments[:2]:
        texts.append(" ".join(paragraphs(path)).split())
        with zipfile.ZipFile(path) as archive:
            yellow.append(archive.read("content.xml").count(b'background-color="#ffff00"'))
    if texts[0] != texts[1]:
        return "headings, tabs or spaces are not the same"
    return "" if yellow[0] <= yellow[1] else "something is yellow still"


def _pictures(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    """Each picture has the size and the pixels of the one that is expected, but for colours that can't be seen."""
    from PIL import Image

    sides = [one if isinstance(one, list) else [one] for one in arguments[:2]]
    for pair in zip_longest(*sides):
        one, other = (Image.open(path).convert("RGBA").convert("RGBa") for path in pair)
        if one.size != other.size or one.tobytes() != other.tobytes():
            return "a picture has another size or other pixels"
    return ""


def _triangle(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    """What has the most common colour but that of the background is in the middle; a hole has none."""
    import numpy as np
    from PIL import Image

    pixels = np.asarray(Image.open(arguments[0]).convert("RGBA")).astype(np.uint32)
    colors = (pixels[..., 0] << 16) | (pixels[..., 1] << 8) | pixels[..., 2]
    hole = 1 << 24
    colors[pixels[..., 3] == 0] = hole
    named, counts = np.unique(colors, return_counts=True)
    others = [color for color in named[np.argsort(counts)][-2::-1] if color != hole]
    if not others:
        return "it has one colour"
    centre = np.argwhere(colors == others[0]).mean(axis=0) / colors.shape
    return "" if bool((abs(centre - 0.5) < MIDDLE).all()) else "the triangle is not in the middle"


def _around(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    """What is black in the picture that is expected is not green, too."""
    import numpy as np
    from PIL import Image

    there, wanted = (np.asarray(Image.open(path).convert("RGB")).astype(int) for path in arguments[:2])
    if there.shape != wanted.shape:
        return "it has another size"
    inside = there[(wanted == 0).all(axis=2)]
    green = (inside[:, 1] > inside[:, 0]) & (inside[:, 1] > inside[:, 2])
    return "" if not len(inside) or green.mean() < 0.5 else "more than the background is green"


def _opens(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    from PIL import Image, UnidentifiedImageError

    try:
        Image.open(arguments[0]).load()
    except UnidentifiedImageError:
        return "it is no picture"
    return ""


def _packed(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    """It is packed as its name says; where that says nothing, as what is expected."""
    heads = []
    for path in arguments[:2]:
        with open(path, "rb") as file:
            head = file.read(2)
        heads.append(head if head in _PACKED.values() else b"")
    wanted = _PACKED.get(str(arguments[0]).rpartition(".")[2].lower(), heads[1])
    return "" if heads[0] == wanted else "it is packed in another way than its name says"


def _shown(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    """Of PDFs without a text the pages look alike."""
    import pypdfium2

    sides = [one if isinstance(one, list) else [one] for one in arguments[:2]]
    for pair in zip_longest(*sides):
        there, wanted = (list(pypdfium2.PdfDocument(path)) for path in pair)
        if any(page.get_textpage().get_text_bounded().strip() for page in wanted):
            continue
        if len(there) != len(wanted):
            return f"it has {len(there)} pages and not {len(wanted)}"
        if not all(_look_alike(*pages) for pages in zip(there, wanted, strict=True)):
            return "a page without a text shows something else"
    return ""


def _look_alike(one: Any, other: Any) -> bool:
    """Whether two pages have one size and show the same, but for the edges that a compressed picture blurs."""
    from PIL import ImageChops, ImageFilter

    if any(abs(a - b) > 1 for a, b in zip(one.get_size(), other.get_size(), strict=True)):
        return False
    size = tuple(map(round, other.get_size()))
    shown = [page.render().to_pil().convert("RGB").resize(size) for page in (one, other)]
    blurred = [picture.filter(ImageFilter.GaussianBlur(BLUR)) for picture in shown]
    return max(ImageChops.difference(*blurred).tobytes()) < ALIKE


def _all_of_html(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    from lxml import html

    there, wanted = (html.parse(path).getroot() for path in arguments[:2])
    both = [("".join(root.itertext()).split(), len(list(root.iter()))) for root in (there, wanted)]
    return "" if both[0] == both[1] else "a page ends before the other"


def _all_of_book(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    both = []
    for path in arguments[:2]:
        with zipfile.ZipFile(path) as archive:
            both.append(sum(name.endswith((".html", "toc.ncx", "content.opf")) for name in archive.namelist()))
    return "" if both[0] == both[1] else f"it has {both[0]} parts and not {both[1]}"


def _saving(arguments: list[Any], _: dict[str, Any], __: Sequence[str]) -> str:
    with open(arguments[0], encoding="utf-8") as file:
        return "saving by itself is switched off" if _OFF.search(file.read()) else ""


def _upright(arguments: list[Any], options: dict[str, Any], starts: Sequence[str]) -> str:
    from pptx import Presentation

    show = Presentation(arguments[0])
    return _kept(arguments, options, starts) if show.slide_width and len(show.slides) else "it has no slide of a width"


def _shapes(there: Any, wanted: Any) -> Iterator[tuple[Any, Any]]:
    """The shapes at the same places of two slides or groups, and those of groups in both."""
    for one, other in zip(there, wanted, strict=False):
        yield one, other
        if hasattr(one, "shapes") and hasattr(other, "shapes"):
            yield from _shapes(one.shapes, other.shapes)


def _slides(arguments: list[Any], options: dict[str, Any], _: Sequence[str]) -> str:
    """Tables say the same, texts have the colours that are expected, and what was to be moved was."""
    from pptx import Presentation

    if arguments[0] is None:
        return "it is missing"
    pairs = list(zip(*(Presentation(path).slides for path in arguments[:2]), strict=False))
    shapes = [pair for one, other in pairs for pair in _shapes(one.shapes, other.shapes)]
    for there, wanted in shapes:
        if getattr(wanted, "text", "").strip() and not hasattr(there, "text"):
            return f"{wanted.text[:40]!r} is no text"
        if getattr(wanted, "has_table", False) and _cells(there) != _cells(wanted):
            return "a table says something else"
        if options.get("examine_color_rgb", True) and (trouble := _other_color(there, wanted)):
            return trouble
    for name, move in _MOVES.items():
        if options.get(name) and not any(_went(*pair, move) for pair in shapes):
            return "nothing was moved there"
    return ""


def _cells(shape: Any) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in shape.table.rows] if getattr(shape, "has_table", False) else []


def _went(there: Any, wanted: Any, move: tuple[str, int, int]) -> bool:
    side, sign, limit = move
    now, before = getattr(there, side), getattr(wanted, side)
    return now is not None and before is not None and now * sign > before * sign and now * sign >= limit * sign


def _other_color(there: Any, wanted: Any) -> str:
    """Of texts the one without the colour that is expected: of a theme, or where it has none of its own."""
    if not (there.has_text_frame and wanted.has_text_frame):
        return ""
    pairs = zip(there.text_frame.paragraphs, wanted.text_frame.paragraphs, strict=False)
    for run, right in (runs for pair in pairs for runs in zip(*(one.runs for one in pair), strict=False)):
        mine, asked = _color(run), _color(right)
        lacks = not mine and re.fullmatch(r"[0-9A-F]{6}", asked) and _bright(asked)
        other = mine != asked and mine.startswith("theme ") and asked.startswith("theme ")
        if right.text.strip() and (lacks or other):
            return f"{run.text[:40]!r} has another colour"
    return ""


def _bright(color: str) -> bool:
    """Whether it is no shade of grey."""
    parts = [int(color[at : at + 2], 16) for at in (0, 2, 4)]
    return max(parts) - min(parts) > 64


def _color(run: Any) -> str:
    """The colour of a stretch of text as its file has it, "" where it has none."""
    found = run._r.xpath("a:rPr/a:solidFill/*")
    if not found:
        return ""
    value = str(found[0].get("val", "")).upper()
    return f"theme {_SAME.get(value, value)}" if _local(found[0]) == "schemeClr" else value


def _sheets(arguments: list[Any], options: dict[str, Any], _: Sequence[str]) -> str:
    """Each sheet that a rule names is there; what is frozen is frozen; cells without a value have none in both."""
    from openpyxl import load_workbook

    books = [load_workbook(path, data_only=True) if path else None for path in (*arguments, None)[:2]]
    for rule in options.get("rules", []):
        sheets = [_sheet(str(rule[key]), *books) for key in ("sheet_idx", "sheet_idx0", "sheet_idx1") if key in rule]
        if None in sheets:
            return "a sheet is missing"
        if rule["type"] == "freeze" and len({_frozen(one) for one in sheets}) > 1:
            return "nothing is frozen, though it is split"
        if rule["type"] == "sheet_data" and (place := _blank_in_one(*sheets)):
            return f"{place} is blank in one alone"
    return ""


def _sheet(word: str, result: Any, expected: Any) -> Any:
    book = expected if word.startswith("E") else result
    name = word[1:] if word[:1] in ("R", "E") else f"I{word}"
    if book is None:
        return None
    if name.startswith("N"):
        return book[name[1:]] if name[1:] in book.sheetnames else None
    names, number = book.sheetnames, int(name[1:])
    return book[names[number]] if number < len(names) else None


def _frozen(sheet: Any) -> bool:
    pane = sheet.sheet_view.pane
    return pane is not None and pane.state in ("frozen", "frozenSplit")


def _blank_in_one(one: Any, other: Any) -> str:
    """The first cell with a value in one sheet alone, as NA, which the metric reads as none; an error is none, too."""
    both = [{at for at, cell in each._cells.items() if cell.value not in (None, "")} for each in (one, other)]
    differ = min(
        (at for at in both[0] ^ both[1] if "e" not in (one.cell(*at).data_type, other.cell(*at).data_type)),
        default=None,
    )
    return str(one.cell(*differ).coordinate) if differ else ""


FEATURES = (  # these look at one feature of a document alone
    "check_image_stretch_and_center", "check_page_number_colors", "check_slide_numbers_color", "check_strikethrough",
    "check_tabstops", "check_transition", "compare_contains_image", "compare_docx_images", "compare_docx_tables",
    "compare_font_names", "compare_highlighted_text", "compare_references", "contains_page_break",
    "evaluate_conversion", "evaluate_presentation_fill_to_rgb_distance", "evaluate_spacing", "is_first_line_centered",
)  # fmt: skip
OF_START = {*FEATURES, "check_slide_orientation_Portrait", "evaluate_alignment"}  # these compare with the start, too
GUARDS: dict[str, Guard] = dict.fromkeys(FEATURES, _kept) | {
    "check_auto_saving_time": _saving,
    "check_green_background": _around,
    "check_highlighted_words": _no_yellow,
    "check_image_file_size": _opens,
    "check_italic_font_size_14": _same_runs(lambda run: run.italic),
    "check_slide_orientation_Portrait": _upright,
    "check_triangle_position": _triangle,
    "compare_archive": _packed,
    "compare_epub": _all_of_book,
    "compare_htmls": _all_of_html,
    "compare_image_list": _pictures,
    "compare_init_lines": _none_emptied,
    "compare_pdfs": _shown,
    "compare_pptx_files": _slides,
    "compare_subscript_contains": _same_runs(lambda run: run.font.subscript),
    "compare_table": _sheets,
    "evaluate_alignment": _apart,
    "evaluate_colored_words_in_tables": _colored_words,
    "evaluate_strike_through_last_paragraph": _struck_through,
    "has_page_numbers_in_footers": _page_numbers,
}
