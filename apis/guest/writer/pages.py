"""Writer: pages and files.

Invariant: files are written below HOME only, and the document itself only in its own format.
"""

from __future__ import annotations

import os
import re
from typing import Any

from guest.office.base import enum, prop, props
from guest.paths import home, to_write, wrong
from guest.writer.base import TextDocument, one_line

OURS = re.compile(r"(Page )?\d*( of \d*)?")  # a paragraph that is nothing but a page number
ARABIC = 4  # com.sun.star.style.NumberingType
QUALITY: dict[str, dict[str, Any]] = {
    "standard": {"Quality": 90, "ReduceImageResolution": True, "MaxImageResolution": 300},
    "high": {"Quality": 100, "ReduceImageResolution": False},
    "print": {"UseLosslessCompression": True, "ReduceImageResolution": False},
}


def _numbered(text: Any) -> Any:
    """The paragraph of a header or footer that has a page number; None where none has."""
    paragraphs = text.createEnumeration()
    while paragraphs.hasMoreElements():
        paragraph = paragraphs.nextElement()
        portions = paragraph.createEnumeration() if hasattr(paragraph, "createEnumeration") else None
        while portions is not None and portions.hasMoreElements():
            portion = portions.nextElement()
            field = portion.TextField if portion.TextPortionType == "TextField" else None
            if field is not None and field.supportsService("com.sun.star.text.TextField.PageNumber"):
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
        """Write the document's file."""
        return self._save()

    def export_to_pdf(
        self, *, output_path: str | None, output_filename: str | None, include_comments: bool, quality: str
    ) -> str:
        """Write a PDF."""
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
