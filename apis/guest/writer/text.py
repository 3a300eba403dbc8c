"""Writer: writing, replacing, and what is inserted at the caret in the place of the selection."""

from __future__ import annotations

import os
import re
from typing import Any

from guest.files import image_size, refuse_large, there_in_home, wrong
from guest.matching import MOST, Match
from guest.office.base import each, enum, graphic
from guest.writer.base import Piece, TextDocument, as_typed, character, one_line, plural, rewrite, select_back

MATH = "078B7ABA-54FC-457F-8551-6147e776a997"  # class id of the office's formulas
INSIDE = r"[\w\u00ad\u0300-\u036f]"  # of a word: letters, digits, _, soft hyphens, accents
FIRST = re.compile(rf"(?<!{INSIDE})(?<!{INSIDE}['’])[^\W\d_]")  # a word's first sign, where that is a letter
MAX_PIXELS = 5000  # of a side, as of one that is given
MM100_PER_PIXEL = 2540 / 96
LOOKS = (
    "CharWeight", "CharPosture", "CharHeight", "CharFontName", "CharColor", "CharBackColor", "CharHighlight",
    "CharUnderline", "CharStrikeout", "CharStyleName",
)  # fmt: skip


def _in_parts(text: Any, cursor: Any) -> list[Any]:
    """Cursors over the parts of a selection that each have one look, the last first."""
    if None not in cursor.getPropertyValues(LOOKS):
        return [cursor]
    portions = (portion for paragraph in each(cursor) for portion in each(paragraph))
    shown = [portion for portion in portions if portion.TextPortionType == "Text" and portion.String]
    return [text.createTextCursorByRange(portion) for portion in reversed(shown)]


class Writing(TextDocument):
    """Text and what is in it."""

    def write_text(self, *, text: str, bold: bool, italic: bool, size: float | None) -> str:
        if not text:
            raise wrong("text: write at least one character")
        caret = self._caret()
        with self._one_step("write_text"):
            cursor = caret.getText().createTextCursorByRange(caret)
            cursor.String = as_typed(text)
            select_back(cursor, len(text))  # by itself it would select as many as the text has UTF-16 units
            italics = enum("awt.FontSlant", "ITALIC")
            for wanted, given in ((bold, character(Weight=150.0)), (italic, character(Posture=italics))):
                if wanted:
                    cursor.setPropertyValues(*given)
                else:
                    cursor.setPropertiesToDefault(given[0])
            if size is not None:
                cursor.setPropertyValues(*character(Height=size))
            caret.gotoRange(cursor.getEnd(), False)
        return f"wrote {plural(len(text), 'character')}; the caret is in {self._where(caret)}"

    def find_and_replace(self, *, pattern: str, replacement: str, paragraph_indices: list[int] | None) -> str:
        matches = self._each(pattern, paragraph_indices, replacement)
        return self._change(
            "find_and_replace", "replaced", matches,
            lambda piece, match, cursor: rewrite(piece.text, cursor, as_typed(match.new)),
        )  # fmt: skip

    def change_text_case(self, *, case_type: str, pattern: str, paragraph_indices: list[int] | None) -> str:
        changed = str.upper if case_type == "uppercase" else str.lower

        def change(piece: Piece, match: Match, cursor: Any) -> None:
            string = piece.string[match.start : match.end]
            for part in _in_parts(piece.text, cursor) if changed(string) != string else ():
                rewrite(piece.text, part, changed(part.String))

        return self._change("change_text_case", f"now {case_type}", self._each(pattern, paragraph_indices), change)

    def capitalize_words(self, *, paragraph_indices: list[int] | None) -> str:
        """A capital at the start of every word."""
        pieces = self._pieces(paragraph_indices)
        matches = [
            Match(at, first.start(), first.end(), first[0].upper())
            for at, piece in enumerate(pieces)
            for first in FIRST.finditer(piece.string)
            if first[0].upper() != first[0] and len(first[0].upper()) == 1
        ]
        if len(matches) > MOST:
            raise wrong(
                f"paragraph_indices: {len(matches)} words begin small, {MOST} are the most for one call: name some"
            )
        count = 0
        with self._one_step("capitalize_words"):
            for piece, match, cursor in self._over(pieces, matches):
                rewrite(piece.text, cursor, match.new)
                count += 1
        return f"{plural(count, 'word')} changed: every word there that begins with a letter has a capital"

    def insert_formula_at_cursor(self, *, formula: str) -> str:
        if not formula.strip():
            raise wrong("formula: write one like 'a over b = sqrt 2'")
        caret = self._caret()
        made = self._doc.createInstance("com.sun.star.text.TextEmbeddedObject")
        made.CLSID = MATH
        with self._one_step("insert_formula_at_cursor"):
            self._put(caret, made)
            model = made.getEmbeddedObject()
            if model is None:
                made.dispose()
                raise wrong("formula: this desktop's office has no LibreOffice Math")
            model.Formula = formula
        return f"inserted the formula {one_line(formula, 100)!r} in {self._where(caret)}"

    def insert_image_at_cursor(self, *, image_path: str, width: int | None, height: int | None) -> str:
        """Insert an image, not larger than the page unless it is asked for."""
        path = there_in_home(image_path, "image_path")
        name = os.path.basename(path)
        refuse_large(path, "image_path")
        size, unreadable = image_size(path), f"image_path: {name[:80]} is no image that can be read"
        if size is None:
            raise wrong(unreadable)
        caret = self._caret()
        wide, high = self._fitting(size) if width is None and height is None else size
        if width is not None:
            wide, high = width, height or max(1, round(width * size[1] / size[0]))
        elif height is not None:
            wide, high = max(1, round(height * size[0] / size[1])), height
        for given, argument, derived in ((width, "width", high), (height, "height", wide)):
            if given is not None and derived > MAX_PIXELS:
                raise wrong(f"{argument}: with {given} pixels the other side would have {derived}: give both")
        made = self._doc.createInstance("com.sun.star.text.TextGraphicObject")
        made.Graphic = graphic(path, unreadable)
        made.Width, made.Height = round(wide * MM100_PER_PIXEL), round(high * MM100_PER_PIXEL)
        with self._one_step("insert_image_at_cursor"):
            self._put(caret, made)
        return f"inserted {name[:80]}, {wide} x {high} pixels, in {self._where(caret)}"

    def _put(self, caret: Any, made: Any) -> None:
        """Insert an object as a character, and place the caret behind it."""
        made.AnchorType = enum("text.TextContentAnchorType", "AS_CHARACTER")
        text = caret.getText()
        cursor = text.createTextCursorByRange(caret)
        text.insertTextContent(cursor, made, True)
        caret.gotoRange(cursor, False)

    def _fitting(self, size: tuple[int, int]) -> tuple[int, int]:
        """A size in pixels, made smaller where the page's text area is narrower or lower."""
        styles = self._doc.StyleFamilies.getByName("PageStyles")
        style = styles.getByName(self._doc.Text.createTextCursor().PageStyleName)
        wide = (style.Width - style.LeftMargin - style.RightMargin) / MM100_PER_PIXEL
        high = (style.Height - style.TopMargin - style.BottomMargin) / MM100_PER_PIXEL
        part = min(1.0, wide / size[0], high / size[1])
        return max(1, int(size[0] * part)), max(1, int(size[1] * part))
