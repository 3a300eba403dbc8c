"""The functions of LibreOffice Writer, as `apis/apps/writer.yaml` declares them. Looks and pages are here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from guest.files import home, to_write, wrong
from guest.office.base import RESULT_CHARS, each, enum, is_page_number, prop, props, struct
from guest.writer.base import Piece, TextDocument, character, one_line, plural, values
from guest.writer.text import Writing

ADJUST = {"left": "LEFT", "center": "CENTER", "right": "RIGHT", "justify": "BLOCK"}
MARKS = ("CharBackColor", "CharHighlight")  # the office's own background, and that of text from Word
NO_COLOUR = -1
STRUCK = 1  # com.sun.star.awt.FontStrikeout.SINGLE
PROPORTIONAL = 0  # com.sun.star.style.LineSpacingMode


class Marked(NamedTuple):
    """Text with a background colour."""

    piece: Piece
    start: int  # in the paragraph's characters
    colour: int
    string: str
    range: Any


def _numbers(indices: list[int] | None) -> str:
    if indices is None:
        return "all paragraphs"
    shown = ", ".join(map(str, indices[:20])) + (f" and {len(indices) - 20} more" if len(indices) > 20 else "")
    return f"paragraph{'' if len(indices) == 1 else 's'} {shown}"


def _joined(marked: Iterator[Marked]) -> list[Marked]:
    """Places of one colour; adjoining parts are one place."""
    places: list[Marked] = []
    for mark in marked:
        last = places[-1] if places else mark
        adjoins = mark.piece is last.piece and mark.start == last.start + len(last.string)
        if adjoins and mark.colour == last.colour:
            places[-1] = last._replace(string=last.string + mark.string)
        else:
            places.append(mark)
    return places


class Looks(TextDocument):
    """Appearance."""

    def set_color(self, *, pattern: str, color: int, paragraph_indices: list[int] | None) -> str:
        return self._set("set_color", f"now #{color:06x}", pattern, paragraph_indices, values(CharColor=color))

    def set_strikethrough(self, *, pattern: str, paragraph_indices: list[int] | None) -> str:
        given = values(CharStrikeout=STRUCK)
        return self._set("set_strikethrough", "struck through", pattern, paragraph_indices, given)

    def set_font_size(self, *, font_size: float, pattern: str, paragraph_indices: list[int] | None) -> str:
        given = character(Height=font_size)
        return self._set("set_font_size", f"now {font_size:g} points", pattern, paragraph_indices, given)

    def _set(self, name: str, done: str, pattern: str, indices: list[int] | None, given: Any) -> str:
        matches = self._each(pattern, indices)
        return self._change(name, done, matches, lambda piece, match, cursor: cursor.setPropertyValues(*given))

    def set_font(self, *, font_name: str, paragraph_indices: list[int] | None) -> str:
        self._set_whole("set_font", paragraph_indices, character(FontName=font_name))
        return f"{_numbers(paragraph_indices)}: font {font_name!r}{self._substitute(font_name)}"

    def set_line_spacing(self, *, spacing_value: float, paragraph_indices: list[int] | None) -> str:
        spacing = struct("style.LineSpacing", Mode=PROPORTIONAL, Height=round(100 * spacing_value))
        self._set_whole("set_line_spacing", paragraph_indices, values(ParaLineSpacing=spacing))
        return f"{_numbers(paragraph_indices)}: line spacing {spacing_value:g}"

    def set_paragraph_alignment(self, *, alignment: str, paragraph_indices: list[int] | None) -> str:
        adjust = enum("style.ParagraphAdjust", ADJUST[alignment])
        self._set_whole("set_paragraph_alignment", paragraph_indices, values(ParaAdjust=adjust))
        return f"{_numbers(paragraph_indices)}: aligned {alignment}"

    def _set_whole(self, name: str, indices: list[int] | None, given: Any) -> None:
        with self._one_step(name):
            for cursor in self._whole(indices):
                cursor.setPropertyValues(*given)

    def set_default_font(self, *, font_name: str, font_size: float | None) -> str:
        """Font of the default paragraph style, and what all styles without a font have."""
        names, given = character(FontName=font_name, **({} if font_size is None else {"Height": font_size}))
        styles = self._doc.StyleFamilies.getByName("ParagraphStyles")
        with self._one_step("set_default_font"):
            for owner in (self._doc.createInstance("com.sun.star.text.Defaults"), styles.getByName("Standard")):
                for name, value in zip(names, given, strict=True):
                    owner.setPropertyValue(name, value)
        size = "" if font_size is None else f", {font_size:g} points"
        return f"the default font is {font_name!r}{size}{self._substitute(font_name)}"

    def _substitute(self, font_name: str) -> str:
        """What to say of a font that is not installed."""
        return "" if self._has_font(font_name) else "; it is not installed here, so the screen shows a similar one"

    def find_highlighted_text(self, *, highlight_color: str) -> str:
        wanted = int(highlight_color[1:], 16)
        marked = _joined(self._marked(None))
        places = [f"{mark.piece.name}: {one_line(mark.string, 200)!r}" for mark in marked if mark.colour == wanted]
        if not places:
            others = sorted({f"#{mark.colour:06x}" for mark in marked})
            there = f"; the document has {', '.join(others[:20])}" if others else "; the document has no highlighting"
            return f"no text is highlighted in {highlight_color}{there}"
        lines, length = [f"{plural(len(places), 'place')} highlighted in {highlight_color}:"], 0
        for line in places:
            length += len(line) + 1
            if length > RESULT_CHARS - 100:
                lines.append(f"and {len(places) - len(lines) + 1} more")
                break
            lines.append(line)
        return "\n".join(lines)

    def remove_highlighting(self, *, paragraph_indices: list[int] | None) -> str:
        count = 0
        with self._one_step("remove_highlighting"):
            for mark in list(self._marked(paragraph_indices)):
                for name in MARKS:
                    mark.range.setPropertyToDefault(name)
                    if mark.range.getPropertyValue(name) != NO_COLOUR:  # the style has it
                        mark.range.setPropertyValue(name, NO_COLOUR)
                count += 1
        return f"{_numbers(paragraph_indices)}: highlighting taken from {plural(count, 'place')}"

    def _marked(self, indices: list[int] | None) -> Iterator[Marked]:
        """Text with a background, in its order and in parts of one look."""
        pieces = self._pieces(indices)
        for at, cursor in reversed(list(self._coloured(pieces))):
            start = 0
            for portion in each(next(each(cursor))):
                colours = [portion.getPropertyValue(name) for name in MARKS]
                colour = next((value for value in colours if value not in (None, NO_COLOUR)), None)
                gone = any(first <= start < last for first, last in pieces[at].deleted)
                if colour is not None and not gone and portion.TextPortionType == "Text" and portion.String:
                    yield Marked(pieces[at], start, colour, portion.String, portion)
                start += len(portion.String)

    def _coloured(self, pieces: list[Piece]) -> Iterator[tuple[int, Any]]:
        """The pieces with a background somewhere, and cursors over them, the last first."""
        for at, cursor in self._backwards(pieces):
            cursor.gotoEndOfParagraph(True)
            if any(value != NO_COLOUR for value in cursor.getPropertyValues(MARKS)):
                yield at, cursor


OURS = re.compile(r"(Page )?\d*( of \d*)?")  # a paragraph that is nothing but a page number
ARABIC = 4  # com.sun.star.style.NumberingType
QUALITY: dict[str, dict[str, Any]] = {
    "standard": {"Quality": 90, "ReduceImageResolution": True, "MaxImageResolution": 300},
    "high": {"Quality": 100, "ReduceImageResolution": False},
    "print": {"UseLosslessCompression": True, "ReduceImageResolution": False},
}


def _numbered(text: Any) -> Any:
    """The paragraph of a header or footer that has a page number; None where none has."""
    for paragraph in each(text):
        if hasattr(paragraph, "createEnumeration") and any(map(is_page_number, each(paragraph))):
            return paragraph
    return None


def _texts(style: Any, area: str) -> list[Any]:
    """The headers or footers of a page style: first and left pages may have their own."""
    ends = [
        "",
        *(["Left"] if not getattr(style, f"{area}IsShared") else []),
        *(["First"] if not style.FirstIsShared else []),
    ]
    return [getattr(style, f"{area}Text{end}") for end in ends]


class Pages(TextDocument):
    """Page numbers, page breaks, files."""

    def save(self) -> str:
        return self._save()

    def export_to_pdf(
        self, *, output_path: str | None, output_filename: str | None, include_comments: bool, quality: str
    ) -> str:
        target = self._target(output_path, output_filename)
        self._write(
            target,
            "output_path" if output_path is not None else "output_filename",
            "writer_pdf_Export",
            prop("FilterData", props(ExportNotes=include_comments, **QUALITY[quality])),
        )
        return f"wrote {target.removeprefix(home() + os.sep)}"

    def _target(self, output_path: str | None, output_filename: str | None) -> str:
        """The file that a folder, a file or neither means."""
        argument = "output_path" if output_path is not None else "output_filename"
        if output_path is not None and output_path.lower().endswith(".pdf"):
            if output_filename is not None:
                raise wrong("output_filename: leave it out, for output_path names the file already")
            return to_write(output_path, argument)
        if output_path is None or output_filename is None:
            own = self._path()
        name = output_filename or os.path.splitext(os.path.basename(own))[0] + ".pdf"
        folder = os.path.dirname(own) if output_path is None else output_path
        return to_write(os.path.join(folder, name), argument)

    def insert_page_break(self, *, position: str) -> str:
        """Begin a page at the caret or at the end."""
        caret = self._caret()
        if position == "at_cursor" and not self._in_body(caret):
            raise wrong(f"position: the caret is in {self._where(caret)}: put it into a paragraph of the body")
        text = self._doc.Text
        with self._one_step("insert_page_break"):
            cursor = text.createTextCursorByRange(caret) if position == "at_cursor" else text.createTextCursor()
            if position != "at_cursor":
                cursor.gotoEnd(False)
            cursor.String = "\r"
            cursor.collapseToEnd()
            cursor.BreakType = enum("style.BreakType", "PAGE_BEFORE")
            caret.gotoRange(cursor, False)
        return f"a new page begins with {self._where(caret)}; the caret is there"

    def add_page_numbers(self, *, position: str, start_number: int, format: str | None) -> str:  # noqa: A002 - published
        """Numbers in the header or footer of every page."""
        edge, _, side = position.partition("_")
        area = "Header" if edge == "top" else "Footer"
        styles = self._doc.StyleFamilies.getByName("PageStyles")
        used = [style for name in styles.ElementNames if (style := styles.getByName(name)).isInUse()]
        for text in (text for style in used if getattr(style, f"{area}IsOn") for text in _texts(style, area)):
            there = _numbered(text)
            if there is not None and OURS.fullmatch(there.String) is None:
                raise wrong(
                    f"position: the {area.lower()} says {one_line(there.String, 80)!r} already; take another place"
                )
        with self._one_step("add_page_numbers"):
            for style in used:
                setattr(style, f"{area}IsOn", True)
                for text in _texts(style, area):
                    self._number(text, side, format or "1")
            self._start_at(start_number)
        return f"{area.lower()}, {side}: page numbers like {format or '1'!r}; the first page is {start_number}"

    def _number(self, text: Any, side: str, form: str) -> None:
        """Write the number into a paragraph of its own, the one that has it already or a new one."""
        there = _numbered(text)
        cursor = text.createTextCursorByRange(there) if there is not None else text.createTextCursor()
        if there is not None:
            cursor.String = ""
        else:
            cursor.gotoEnd(False)
            if text.String:
                cursor.String = "\r"
                cursor.collapseToEnd()
        cursor.ParaAdjust = enum("style.ParagraphAdjust", side.upper())
        for part in form.replace("1", "\n#\n").replace("N", "\n*\n").split("\n"):
            if part in ("#", "*"):
                field = self._doc.createInstance(
                    f"com.sun.star.text.TextField.Page{'Number' if part == '#' else 'Count'}"
                )
                field.NumberingType = ARABIC
                if part == "#":
                    field.SubType = enum("text.PageNumberType", "CURRENT")
                text.insertTextContent(cursor, field, False)
            elif part:
                text.insertString(cursor, part, False)
            cursor.gotoEndOfParagraph(False)

    def _start_at(self, number: int) -> None:
        """Count the pages from `number` on; the first paragraph or table carries it."""
        first = self._doc.Text.createEnumeration().nextElement()
        if number == 1 and not first.PageNumberOffset:
            return
        if not first.PageDescName:
            first.PageDescName = self._doc.Text.createTextCursor().PageStyleName
        first.PageNumberOffset = number


class WriterTools(Writing, Looks, Pages):
    """All of them."""


TOOLS = WriterTools
