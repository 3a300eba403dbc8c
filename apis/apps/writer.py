"""The functions of LibreOffice Writer under their published names and parameters, and what a small model sees first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apis.functions.declaration import Function, Param, Tool
from apis.observation import Element

MAX_PARAGRAPH = 99_999
MAX_NUMBERS = 500  # of a list of paragraphs
MAX_PATTERN, MAX_TYPED = 200, 5000  # characters
ALIGNMENTS = ("left", "center", "right", "justify")
CASES = ("lowercase", "uppercase")
QUALITIES = ("standard", "high", "print")
BREAKS = ("at_cursor", "end_of_document")
NUMBER_PLACES = ("top_left", "top_center", "top_right", "bottom_left", "bottom_center", "bottom_right")
NUMBER_FORMS = ("1", "Page 1", "1 of N", "Page 1 of N")
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".svg", ".tif", ".tiff", ".webp")


def _function(name: str, description: str, *params: Param) -> Function:
    return Function("WriterTools", name, Tool, params, description)


def _optional(name: str, kind: str, published: str, limits: tuple[Any, ...] = (), *, meaning: str = "") -> Param:
    return Param(name, kind, f"Optional[{published}]", limits, None, meaning)


def _paragraphs() -> Param:
    limits = (MAX_PARAGRAPH, MAX_NUMBERS)
    return _optional(
        "paragraph_indices", "indices", "List", limits, meaning="numbers from 0 like [0, 2]; None: all, tables too"
    )


def _pattern() -> Param:
    meaning = "a regular expression like r'\\bword\\b', found inside paragraphs"
    return Param("pattern", "text", "str", (MAX_PATTERN,), meaning=meaning)


def _font() -> Param:
    return Param("font_name", "font", "str", meaning="like 'Liberation Serif'")


FUNCTIONS: tuple[Function, ...] = (
    _function("save", "Save the document to its own file, in the file's own format."),
    _function(
        "write_text",
        "Write at the caret, in place of what is selected; the caret then stands behind it.",
        Param("text", "text", "str", (MAX_TYPED,), meaning="'\\n' begins a new paragraph"),
        Param("bold", "boolean", "bool", (), False, "True for bold; False for the paragraph style's weight"),
        Param("italic", "boolean", "bool", (), False, "True for italic; False for the paragraph style's posture"),
        _optional("size", "number", "float", (1, 500), meaning="in points; None: as at the caret"),
    ),
    _function(
        "set_color",
        "Colour the text that matches.",
        _pattern(),
        Param("color", "rgb", "int", meaning="0xRRGGBB as a whole number"),
        _paragraphs(),
    ),
    _function(
        "find_and_replace",
        "Replace the text that matches; the rest keeps its looks.",
        _pattern(),
        Param("replacement", "text", "str", (MAX_TYPED,), meaning="r'\\1' is the first group, '\\n' a new paragraph"),
        _paragraphs(),
    ),
    _function("set_font", "Set the font of whole paragraphs.", _font(), _paragraphs()),
    _function(
        "set_line_spacing",
        "Set the line spacing of paragraphs.",
        Param("spacing_value", "number", "float", (0.5, 10), meaning="in lines: 1 single, 1.5, 2 double"),
        _paragraphs(),
    ),
    _function("remove_highlighting", "Take the background colour from text.", _paragraphs()),
    _function(
        "find_highlighted_text",
        "List the text that has a background colour.",
        Param("highlight_color", "colour", "str", meaning="like '#ffff00' or 'yellow'"),
    ),
    _function(
        "insert_formula_at_cursor",
        "Insert a formula at the caret.",
        Param("formula", "text", "str", (1000,), meaning="as LibreOffice Math writes it: 'a over b = sqrt 2'"),
    ),
    _function(
        "insert_image_at_cursor",
        "Insert an image at the caret, as one character of the text.",
        Param("image_path", "path", "str", IMAGES, meaning="an image file in your home folder"),
        _optional("width", "integer", "int", (1, 5000), meaning="in pixels of 1/96 inch; None: in proportion"),
        _optional("height", "integer", "int", (1, 5000), meaning="in pixels of 1/96 inch; None: in proportion"),
    ),
    _function("set_strikethrough", "Strike through the text that matches.", _pattern(), _paragraphs()),
    _function(
        "set_font_size",
        "Set the size of the text that matches.",
        Param("font_size", "number", "float", (1, 500), meaning="in points"),
        _pattern(),
        _paragraphs(),
    ),
    _function(
        "export_to_pdf",
        "Write the document as a PDF file.",
        _optional("output_path", "folder", "str", (".pdf",), meaning="folder, or .pdf file; None: beside the document"),
        _optional("output_filename", "file_name", "str", (".pdf",), meaning="like 'report.pdf'; None: as the document"),
        Param("include_comments", "boolean", "bool", (), False, "True to keep comments as notes"),
        Param("quality", "choice", "str", QUALITIES, "standard", f"of images: {', '.join(QUALITIES)}"),
    ),
    _function(
        "set_paragraph_alignment",
        "Align paragraphs.",
        Param("alignment", "choice", "str", ALIGNMENTS, meaning=f"one of {', '.join(ALIGNMENTS)}"),
        _paragraphs(),
    ),
    _function("capitalize_words", "Make the first letter of every word a capital; other letters stay.", _paragraphs()),
    _function(
        "set_default_font",
        "Set the document's default font; text with a font of its own keeps it.",
        _font(),
        _optional("font_size", "number", "float", (1, 500), meaning="in points; None: as it is"),
    ),
    _function(
        "add_page_numbers",
        "Put page numbers into the header or footer of every page.",
        Param("position", "choice", "str", NUMBER_PLACES, meaning=f"one of {', '.join(NUMBER_PLACES)}"),
        Param("start_number", "integer", "int", (1, 9999), 1, "number of the first page"),
        _optional("format", "choice", "str", NUMBER_FORMS, meaning=f"one of {', '.join(NUMBER_FORMS)}; None: 1"),
    ),
    _function(
        "insert_page_break",
        "Begin a new page, with the caret at its start.",
        Param("position", "choice", "str", BREAKS, "at_cursor", f"one of {', '.join(BREAKS)}"),
    ),
    _function(
        "change_text_case",
        "Write the text that matches in capitals or in small letters.",
        Param("case_type", "choice", "str", CASES, meaning=f"one of {', '.join(CASES)}"),
        _pattern(),
        _paragraphs(),
    ),
)


PARAGRAPHS = 24
BUTTONS = {  # kept of the tool bars
    "Save", "Bold", "Italic", "Underline", "Strikethrough", "Left", "Center", "Right", "Justified",
}  # fmt: skip
FIELDS = {"Paragraph Style", "Font Name", "Font Size"}


def ranked(elements: Sequence[Element]) -> list[Element]:
    """Open menus, paragraphs, other things, the fields of looks, menus, a few buttons of the tool bars."""
    paragraphs = nearest([element for element in elements if element.tag == "paragraph"])
    others = [
        element
        for element in elements
        if element.tag != "paragraph" and (element.name in BUTTONS | FIELDS or "bar" not in element.states)
    ]
    if paragraphs:
        others = [element for element in others if element.tag != "document-text"]
    return sorted([*paragraphs, *others], key=_rank)


def _rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return 0
    if element.tag == "paragraph":
        return 1
    if element.tag == "text" and element.name in FIELDS:
        return 3
    if "bar" in element.states:
        return 5
    return 4 if element.tag == "menu" else 2


def nearest(paragraphs: Sequence[Element]) -> list[Element]:
    """At most `PARAGRAPHS` of them, in their order, around the one with the caret or from the first on."""
    now = next((at for at, each in enumerate(paragraphs) if "foc" in each.states), 0)
    start = max(0, min(now - PARAGRAPHS // 2, len(paragraphs) - PARAGRAPHS))
    return list(paragraphs[start : start + PARAGRAPHS])
