"""Impress: the text of boxes and how it looks.

Invariant: only what is asked for changes. The looks that a call gives hold for all scripts (western, Asian, complex)
alike.
"""

from __future__ import annotations

from typing import Any

from guest.impress.base import Show, kind_of, paragraphs, parts, text_of, texts
from guest.office.base import enum
from guest.paths import wrong

BOLD, REGULAR = 150.0, 100.0  # com.sun.star.awt.FontWeight
SINGLE, NONE = 1, 0  # com.sun.star.awt.FontUnderline and FontStrikeout
SCRIPTS = ("", "Asian", "Complex")
ADJUSTS = {"left": "LEFT", "center": "CENTER", "right": "RIGHT", "justify": "BLOCK"}
PLACEHOLDERS = {"title", "subtitle", "outline", "text", "notes", "date", "footer", "slide number", "table"}


def _all(text: Any) -> Any:
    """The whole of a text; an empty one itself, so that what is typed later looks so."""
    if not text.String:
        return text
    cursor = text.createTextCursor()
    cursor.gotoStart(False)
    cursor.gotoEnd(True)
    return cursor


def _look(part: Any, name: str, value: Any) -> None:
    """Set a property of characters that each script has its own of."""
    for script in SCRIPTS:
        setattr(part, name + script, value)


def _slant(italic: bool) -> Any:
    return enum("awt.FontSlant", "ITALIC" if italic else "NONE")


class Texts(Show):
    """Text."""

    def write_text(
        self,
        *,
        content: str,
        page_index: int,
        box_index: int,
        bold: bool,
        italic: bool,
        size: int | None,
        append: bool,
    ) -> str:
        """Replace a box's text, or add to it."""
        box = self._text_box(page_index, box_index, "page_index")
        if append and text_of(box):
            end = box.createTextCursor()
            end.gotoEnd(False)
            box.insertString(end, content, False)
            new = box.createTextCursor()
            new.gotoEnd(False)
            new.goLeft(len(content.encode("utf-16-le")) // 2, True)
        else:
            box.String = content
            new = _all(box)
        if bold:
            _look(new, "CharWeight", BOLD)
        if italic:
            _look(new, "CharPosture", _slant(True))
        if size is not None:
            _look(new, "CharHeight", float(size))
        done = "added to" if append else "written into"
        return f"{len(content)} characters {done} box {box_index} of slide {page_index}"

    def set_style(
        self, *, slide_index: int, box_index: int, bold: bool | None, italic: bool | None, underline: bool | None
    ) -> str:
        """Weight, slant, underline."""
        found, done = self._texts(slide_index, box_index), []
        for text in map(_all, found):
            if bold is not None:
                _look(text, "CharWeight", BOLD if bold else REGULAR)
            if italic is not None:
                _look(text, "CharPosture", _slant(italic))
            if underline is not None:
                text.CharUnderline = SINGLE if underline else NONE
        for word, given in (("bold", bold), ("italic", italic), ("underlined", underline)):
            if given is not None:
                done.append(word if given else f"not {word}")
        if not done:
            raise wrong("set_style: give bold, italic or underline")
        return f"box {box_index} of slide {slide_index}: {', '.join(done)}"

    def set_text_color(self, *, slide_index: int, box_index: int, color: str) -> str:
        """Colour of a box's text."""
        for text in self._texts(slide_index, box_index):
            _all(text).CharColor = int(color[1:], 16)
        return f"the text of box {box_index} of slide {slide_index} is {color}"

    def set_slide_font(self, *, slide_index: int, font_name: str) -> str:
        """Font of all text on a slide."""
        page = self._slide(slide_index)
        self._rest()
        boxes = [(f"slide_index: box {at} of slide {slide_index}", page.getByIndex(at)) for at in range(page.Count)]
        found = [text for name, box in boxes for text in texts(self._all_parts(box, name))]
        if not found:
            raise wrong(f"slide_index: slide {slide_index} has no box with text")
        for text in map(_all, found):
            _look(text, "CharFontName", font_name)
        window = self._view.Frame.ContainerWindow
        known = any(font.Name.lower() == font_name.lower() for font in window.getFontDescriptors())
        note = "" if known else "; this machine has no such font and shows another"
        return f"the {len(found)} texts of slide {slide_index} have the font {font_name}{note}"

    def set_text_strikethrough(self, *, slide_index: int, box_index: int, line_numbers: list[int], apply: bool) -> str:
        """Strike lines through."""
        lines = list(paragraphs(self._text_box(slide_index, box_index)))
        if line_numbers[-1] > len(lines):
            raise wrong(f"line_numbers: box {box_index} of slide {slide_index} has lines 1 to {len(lines)} only")
        for number in line_numbers:
            for portion in paragraphs(lines[number - 1]):
                portion.CharStrikeout = SINGLE if apply else NONE
        done = "struck through" if apply else "not struck through"
        return f"lines {', '.join(map(str, line_numbers))} of box {box_index} of slide {slide_index} are {done}"

    def set_textbox_alignment(self, *, slide_index: int, box_index: int, alignment: str) -> str:
        """Align lines."""
        for text in self._texts(slide_index, box_index):
            _all(text).ParaAdjust = enum("style.ParagraphAdjust", ADJUSTS[alignment])
        return f"box {box_index} of slide {slide_index} is aligned: {alignment}"

    def delete_content(self, *, slide_index: int, box_index: int) -> str:
        """Empty a box, or remove one without text."""
        box = self._box(slide_index, box_index)
        name = f"box {box_index} of slide {slide_index}"
        filled = [text for text in texts(self._all_parts(box, f"box_index: {name}")) if text_of(text)]
        for text in filled:
            text.String = ""
        if filled:
            return f"{name} is empty"
        if kind_of(box) in PLACEHOLDERS:
            return f"{name} is empty, as it was"
        page = self._slide(slide_index)
        kind = kind_of(box)
        page.remove(box)
        return f"{name} ({kind}) is removed; slide {slide_index} has {page.Count} boxes left"

    def set_slide_number_color(self, *, color: str) -> str:
        """Colour of slide numbers, where the slides' designs have them and where slides have their own."""
        self._rest()
        value, boxes = int(color[1:], 16), 0
        designs, slides = self._doc.MasterPages, self._doc.DrawPages
        pages = [(designs.getByIndex(at), "<number>") for at in range(designs.Count)]
        pages += [(slides.getByIndex(at), str(at + 1)) for at in range(slides.Count)]
        for page, shown in pages:
            for at in range(page.Count):
                boxes += _paint_numbers(page.getByIndex(at), value, shown)
        if not boxes:
            raise wrong("color: no slide has a slide number; the menu Insert > Slide Number makes them")
        visible = sum(slides.getByIndex(at).IsPageNumberVisible for at in range(slides.Count))
        return (
            f"slide numbers are {color} ({boxes} boxes; {visible} of {slides.Count} slides show that of their design)"
        )


def _paint_numbers(shape: Any, value: int, shown: str) -> int:
    """Colour the page numbers of a box, which show as that text; how many texts have one."""
    kind = kind_of(shape)
    if kind == "slide number":
        _all(shape).CharColor = value
        return 1
    found = 0
    for text in texts(parts(shape, kind)):
        if shown not in text.String:  # far quicker than to look at all portions
            continue
        fields = [portion for line in paragraphs(text) for portion in paragraphs(line) if _is_number(portion)]
        for portion in fields:
            portion.CharColor = value
        found += bool(fields)
    return found


def _is_number(portion: Any) -> bool:
    if portion.TextPortionType != "TextField":
        return False
    return bool(portion.TextField.supportsService("com.sun.star.text.TextField.PageNumber"))
