"""What all functions of Impress share: the presentation in front, its slides and boxes, and what is said of them.

Invariant: a slide is counted from 1 and a box, any shape that stands on a slide by itself, from 0, in the order of the
office; one that there is not is refused with what there is, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import uno
from guest.office_base import Document, clipped
from guest.paths import wrong

BOX_CHARS = 500  # of a box's text in what is said of the slides
INFO_THINGS = 150  # slides and boxes that are told of, for each takes time
MAX_PARTS = 500  # cells of a table, or members of a group
KINDS = {
    "TitleTextShape": "title", "SubtitleShape": "subtitle", "OutlinerShape": "outline", "TextShape": "text",
    "NotesShape": "notes", "GraphicObjectShape": "image", "MediaShape": "media", "TableShape": "table",
    "GroupShape": "group", "OLE2Shape": "object", "ChartShape": "chart", "CalcShape": "object", "LineShape": "line",
    "ConnectorShape": "line", "DateTimeShape": "date", "FooterShape": "footer", "SlideNumberShape": "slide number",
}  # fmt: skip
TEXTLESS = {"image", "media", "table", "group", "object", "chart"}


def struct(kind: str, **values: Any) -> Any:
    """One of the office's structures, `kind` below com.sun.star."""
    made = uno.createUnoStruct(f"com.sun.star.{kind}")
    for name, value in values.items():
        setattr(made, name, value)
    return made


def kind_of(shape: Any) -> str:
    """What a box is, in a word."""
    return KINDS.get(shape.ShapeType.rpartition(".")[2], "shape")


def text_of(shape: Any) -> str:
    """A text box's text; none where only the office's own prompt shows."""
    return "" if getattr(shape, "IsEmptyPresentationObject", False) else str(shape.String)


def texts(shape: Any, kind: str = "") -> list[Any]:
    """What of a box holds text: itself, the cells of a table, the members of a group."""
    return [part for part, kind in parts(shape, kind) if kind not in TEXTLESS and hasattr(part, "createTextCursor")]


def parts(shape: Any, kind: str = "") -> list[tuple[Any, str]]:
    """A box with its kind, if that is known already; in place of a table its cells, of a group its members."""
    kind = kind or kind_of(shape)
    if kind == "table":
        rows, columns = shape.Model.RowCount, shape.Model.ColumnCount
        places = [(column, row) for row in range(rows) for column in range(columns)][:MAX_PARTS]
        return [(shape.Model.getCellByPosition(*place), "cell") for place in places]
    if kind == "group":
        members = (shape.getByIndex(at) for at in range(min(shape.Count, MAX_PARTS)))
        return [part for member in members for part in parts(member)][:MAX_PARTS]
    return [(shape, kind)]


def paragraphs(text: Any) -> Iterator[Any]:
    """The lines of a text, and in the same way the portions of a line."""
    listed = text.createEnumeration()
    while listed.hasMoreElements():
        yield listed.nextElement()


class Show(Document):
    """The presentation in front."""

    _kind = "presentation"

    def _count(self) -> int:
        return int(self._doc.DrawPages.Count)

    def _rest(self) -> None:
        """End the typing into a box: what was typed stays, and can't replace later what is changed now."""
        self._dispatch("SelectObject")

    def _slide(self, index: int, argument: str = "slide_index") -> Any:
        """The slide with that number."""
        count = self._count()
        if index > count:
            raise wrong(f"{argument}: there is no slide {index}; the slides are 1 to {count}")
        return self._doc.DrawPages.getByIndex(index - 1)

    def _shown(self) -> int:
        """The number of the slide that is shown; the first one's while no slide is."""
        page = self._view.CurrentPage
        if page is None or getattr(self._view, "IsMasterPageMode", False):
            return 1
        return int(page.Number)

    def _box(self, slide: int, box: int, argument: str = "slide_index") -> Any:
        """A box of a slide."""
        page = self._slide(slide, argument)
        if box >= page.Count:
            there = f"it has boxes 0 to {page.Count - 1}" if page.Count else "it has none"
            raise wrong(f"box_index: slide {slide} has no box {box}; {there}")
        self._rest()
        return page.getByIndex(box)

    def _text_box(self, slide: int, box: int, argument: str = "slide_index") -> Any:
        """A box that is one text."""
        shape = self._box(slide, box, argument)
        if kind_of(shape) in TEXTLESS or not hasattr(shape, "createTextCursor"):
            raise self._textless(slide, box)
        return shape

    def _texts(self, slide: int, box: int) -> list[Any]:
        """All texts of a box, one at least."""
        found = texts(self._box(slide, box))
        if not found:
            raise self._textless(slide, box)
        return found

    def _textless(self, slide: int, box: int) -> Exception:
        page = self._slide(slide)
        kinds = [kind_of(page.getByIndex(at)) for at in range(page.Count)]
        able = [str(at) for at, kind in enumerate(kinds) if kind not in TEXTLESS]
        there = f"boxes with text here: {', '.join(able[:30])}" if able else "this slide has no box with text"
        return wrong(f"box_index: box {box} of slide {slide} is a box of kind {kinds[box]}, which is no text; {there}")

    def _about(self, limit: int) -> str:
        """All slides, or those around the one that is shown, with the text of each box; at most `limit` characters."""
        count, shown = self._count(), self._shown()
        head = f"slides: {count}; current: {shown}"
        left, things = limit - len(head) - 10, INFO_THINGS  # room for marks where slides are left out
        told: dict[int, str] = {}
        for number in sorted(range(1, count + 1), key=lambda each: abs(each - shown)):
            lines = self._told(number, left, things)
            block = "\n".join(lines)
            things -= len(lines)
            if told and (len(block) >= left or things < 0):
                break
            told[number] = clipped(block, left)
            left -= len(told[number]) + 1
        first, last = (min(told), max(told)) if told else (1, 0)
        marks = ["..." if first > 1 else "", "..." if last < count else ""]
        said = [head, marks[0], *(told[number] for number in sorted(told)), marks[1]]
        return "\n".join(line for line in said if line)[:limit]

    def _told(self, number: int, limit: int, things: int) -> list[str]:
        """Lines of a slide and its boxes; no more than `things`, or than come to about `limit` characters."""
        page = self._doc.DrawPages.getByIndex(number - 1)
        lines, length = [f"Slide {number}:"], 0
        for at in range(page.Count):
            if length > limit or at >= things:
                lines.append("...")
                break
            shape = page.getByIndex(at)
            kind = kind_of(shape)
            said = " | ".join(text_of(text) for text in texts(shape, kind))
            text = clipped(said, BOX_CHARS).replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"- Box {at} ({kind})" + (f": {text}" if text else ""))
            length += len(lines[-1])
        return lines
