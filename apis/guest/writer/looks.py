"""Writer: how text and paragraphs look.

Invariant: nothing here changes a character of the text. Sizes are in points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from guest.office.base import RESULT_CHARS, enum
from guest.writer.base import Piece, TextDocument, character, one_line, plural, struct, values

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
    """Paragraphs as an answer names them."""
    if indices is None:
        return "all paragraphs"
    shown = ", ".join(map(str, indices[:20])) + (f" and {len(indices) - 20} more" if len(indices) > 20 else "")
    return f"paragraph{'' if len(indices) == 1 else 's'} {shown}"


def _joined(marked: Iterator[Marked]) -> list[Marked]:
    """Places of one colour; parts beside each other are one place."""
    places: list[Marked] = []
    for each in marked:
        last = places[-1] if places else each
        beside = each.piece is last.piece and each.start == last.start + len(last.string)
        if beside and each.colour == last.colour:
            places[-1] = last._replace(string=last.string + each.string)
        else:
            places.append(each)
    return places


class Looks(TextDocument):
    """Appearance."""

    def set_color(self, *, pattern: str, color: int, paragraph_indices: list[int] | None) -> str:
        """Colour matches."""
        return self._set("set_color", f"now #{color:06x}", pattern, paragraph_indices, values(CharColor=color))

    def set_strikethrough(self, *, pattern: str, paragraph_indices: list[int] | None) -> str:
        """Strike matches through."""
        given = values(CharStrikeout=STRUCK)
        return self._set("set_strikethrough", "struck through", pattern, paragraph_indices, given)

    def set_font_size(self, *, font_size: float, pattern: str, paragraph_indices: list[int] | None) -> str:
        """Size of matches."""
        given = character(Height=font_size)
        return self._set("set_font_size", f"now {font_size:g} points", pattern, paragraph_indices, given)

    def _set(self, name: str, done: str, pattern: str, indices: list[int] | None, given: Any) -> str:
        places = []
        with self._one_step(name):
            for piece, match, cursor in self._each(pattern, indices):
                cursor.setPropertyValues(*given)
                places += [] if match.rest else [piece]
        return self._told(done, places)

    def set_font(self, *, font_name: str, paragraph_indices: list[int] | None) -> str:
        """Font of whole paragraphs."""
        self._set_whole("set_font", paragraph_indices, character(FontName=font_name))
        return f"{_numbers(paragraph_indices)}: font {font_name!r}{self._substitute(font_name)}"

    def set_line_spacing(self, *, spacing_value: float, paragraph_indices: list[int] | None) -> str:
        """Line spacing in lines."""
        spacing = struct("style.LineSpacing")
        spacing.Mode, spacing.Height = PROPORTIONAL, round(100 * spacing_value)
        self._set_whole("set_line_spacing", paragraph_indices, values(ParaLineSpacing=spacing))
        return f"{_numbers(paragraph_indices)}: line spacing {spacing_value:g}"

    def set_paragraph_alignment(self, *, alignment: str, paragraph_indices: list[int] | None) -> str:
        """Alignment."""
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
        known = {each.Name.lower() for each in self._view.Frame.ContainerWindow.getFontDescriptors()}
        return "" if font_name.lower() in known else "; it is not installed here, so the screen shows a similar one"

    def find_highlighted_text(self, *, highlight_color: str) -> str:
        """Text with this background."""
        wanted = int(highlight_color[1:], 16)
        marked = _joined(self._marked(None))
        found = [f"{each.piece.name}: {one_line(each.string, 200)!r}" for each in marked if each.colour == wanted]
        if not found:
            others = sorted({f"#{each.colour:06x}" for each in marked})
            there = f"; the document has {', '.join(others[:20])}" if others else "; the document has no highlighting"
            return f"no text is highlighted in {highlight_color}{there}"
        lines, length = [f"{plural(len(found), 'place')} highlighted in {highlight_color}:"], 0
        for line in found:
            length += len(line) + 1
            if length > RESULT_CHARS - 100:
                lines.append(f"and {len(found) - len(lines) + 1} more")
                break
            lines.append(line)
        return "\n".join(lines)

    def remove_highlighting(self, *, paragraph_indices: list[int] | None) -> str:
        """No background any more."""
        count = 0
        with self._one_step("remove_highlighting"):
            for each in list(self._marked(paragraph_indices)):
                for name in MARKS:
                    each.range.setPropertyToDefault(name)
                    if each.range.getPropertyValue(name) != NO_COLOUR:  # the style has it
                        each.range.setPropertyValue(name, NO_COLOUR)
                count += 1
        return f"{_numbers(paragraph_indices)}: highlighting taken from {plural(count, 'place')}"

    def _marked(self, indices: list[int] | None) -> Iterator[Marked]:
        """Text with a background, in its order and in parts of one look."""
        pieces = self._pieces(indices)
        for at, cursor in reversed(list(self._coloured(pieces))):
            start = 0
            portions = cursor.createEnumeration().nextElement().createEnumeration()
            while portions.hasMoreElements():
                portion = portions.nextElement()
                colours = [portion.getPropertyValue(name) for name in MARKS]
                colour = next((each for each in colours if each not in (None, NO_COLOUR)), None)
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
