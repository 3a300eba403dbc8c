"""What all functions of Impress share: the presentation in front, its slides and boxes, and what is said of them.

Slides are counted from 1. Boxes, the shapes that are on a slide by themselves, are counted from 0 in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from com.sun.star.accessibility.AccessibleRole import DOCUMENT_PRESENTATION, PARAGRAPH
from com.sun.star.accessibility.AccessibleStateType import SELECTED
from com.sun.star.beans import UnknownPropertyException as Unknown
from com.sun.star.uno import Exception as UnoError
from guest.files import wrong
from guest.office.base import Document, clipped

DEPTH = 4  # of the slide's view below the window
MOST = 150  # boxes, or parts of one, for each takes time


def selected_lines(window: Any) -> list[list[str]]:
    """The paragraphs of each part of the one box that is selected."""
    try:
        shown = _slide(window.getAccessibleContext())
        boxes = _below(shown, MOST) if shown is not None else ()
        selected = [box for box in boxes if box.getAccessibleStateSet().contains(SELECTED)]
        return list(_parts(selected[0])) if len(selected) == 1 else []
    except UnoError:  # it lags behind what was removed just now
        return []


def _slide(context: Any) -> Any:
    for _ in range(DEPTH):
        if context is None or context.getAccessibleRole() == DOCUMENT_PRESENTATION:
            return context
        context = next(_below(context, 1), None)
    return None


def _parts(context: Any) -> Iterator[list[str]]:
    """A box itself, or else in their order the cells of a table or the members of a group."""
    below = list(_below(context, MOST))
    lines = [str(each.getText()) for each in below if each.getAccessibleRole() == PARAGRAPH]
    if lines or not below:
        yield lines
    else:
        for each in below:
            yield from _parts(each)


def _below(context: Any, most: int) -> Iterator[Any]:
    for at in range(min(context.getAccessibleChildCount(), most)):
        child = context.getAccessibleChild(at)
        if child is not None:
            yield child.getAccessibleContext()


BOX_CHARS = 500  # of a box's text in what is said of the slides
INFO_THINGS = 150  # slides and boxes that are listed, for each takes time
MAX_PARTS = 500  # cells of a table, or members of a group, that are listed or changed at once
KINDS = {
    "TitleTextShape": "title", "SubtitleShape": "subtitle", "OutlinerShape": "outline", "TextShape": "text",
    "NotesShape": "notes", "GraphicObjectShape": "image", "MediaShape": "media", "TableShape": "table",
    "GroupShape": "group", "OLE2Shape": "object", "ChartShape": "chart", "CalcShape": "object", "LineShape": "line",
    "ConnectorShape": "line", "DateTimeShape": "date", "FooterShape": "footer", "SlideNumberShape": "slide number",
}  # fmt: skip
TEXTLESS = {"image", "media", "table", "group", "object", "chart"}


def kind_of(shape: Any) -> str:
    """What a box is, in a word."""
    return KINDS.get(shape.ShapeType.rpartition(".")[2], "shape")


def text_of(shape: Any) -> str:
    """A text box's text; none where only the office's own prompt shows."""
    return "" if getattr(shape, "IsEmptyPresentationObject", False) else str(shape.String)


def texts(candidates: Iterable[tuple[Any, str]]) -> list[Any]:
    """Those parts that hold text."""
    return [part for part, kind in candidates if kind not in TEXTLESS and hasattr(part, "createTextCursor")]


def parts(shape: Any, kind: str = "") -> Iterator[tuple[Any, str]]:
    """A box with its kind, if that is known already; in place of a table its cells, of a group its members."""
    kind = kind or kind_of(shape)
    if kind == "table":
        cells = shape.Model
        for row in range(cells.RowCount):
            for column in range(cells.ColumnCount):
                yield cells.getCellByPosition(column, row), "cell"
    elif kind == "group":
        for at in range(shape.Count):
            yield from parts(shape.getByIndex(at))
    else:
        yield shape, kind


def count_of(shape: Any) -> int:
    """How many parts a box has."""
    kind = kind_of(shape)
    if kind == "table":
        return int(shape.Model.RowCount * shape.Model.ColumnCount)
    return sum(count_of(shape.getByIndex(at)) for at in range(shape.Count)) if kind == "group" else 1


def around(shape: Any) -> tuple[int, int, int, int]:
    """Left, top, width and height of the smallest upright rectangle around a box, however it is turned."""
    if hasattr(shape, "FrameRect"):
        rectangle = shape.FrameRect
        return rectangle.X, rectangle.Y, rectangle.Width - 1, rectangle.Height - 1  # the office counts both edges
    at, size = shape.Position, shape.Size  # of tables and media, which can't be turned
    return at.X, at.Y, size.Width, size.Height


class Show(Document):
    """The presentation in front."""

    _service = "com.sun.star.presentation.PresentationDocument"
    _kind = "presentation"
    _reading = frozenset(
        {
            "save", "save_as", "export_to_image", "configure_auto_save", "configure_display_settings", "go_to_slide",
            "get_slide_count",
        }
    )  # fmt: skip

    def _count(self) -> int:
        return int(self._doc.DrawPages.Count)

    def _rest(self) -> None:
        """End the typing into a box: what was typed stays, and can't replace later what is changed now."""
        self._dispatch("SelectObject")

    def _slide(self, index: int, argument: str = "slide_index") -> Any:
        count = self._count()
        if index > count:
            raise wrong(f"{argument}: there is no slide {index}; the slides are 1 to {count}")
        return self._doc.DrawPages.getByIndex(index - 1)

    def _shown(self) -> int:
        """The number of the slide that is shown; the first one's while no slide is."""
        page = self._view.getCurrentPage()
        return 1 if page is None or self._of_view("IsMasterPageMode") else int(page.Number)

    def _of_view(self, name: str) -> Any:
        """A property of the view; None in the slide sorter and the outline, which announce it but don't have it."""
        try:
            return self._view.getPropertyValue(name)
        except Unknown:
            return None

    def _box(self, slide: int, box: int, argument: str = "slide_index") -> Any:
        page = self._slide(slide, argument)
        self._rest()  # first: it removes a box that was drawn and left empty
        if box >= page.Count:
            there = f"it has boxes 0 to {page.Count - 1}" if page.Count else "it has none"
            raise wrong(f"box_index: slide {slide} has no box {box}; {there}")
        return page.getByIndex(box)

    def _text_box(self, slide: int, box: int, argument: str = "slide_index") -> Any:
        shape = self._box(slide, box, argument)
        if kind_of(shape) in TEXTLESS or not hasattr(shape, "createTextCursor"):
            raise self._textless(slide, box)
        return shape

    def _parts(self, slide: int, box: int) -> list[tuple[Any, str]]:
        """All parts of a box, to be changed."""
        return self._all_parts(self._box(slide, box), f"box_index: box {box} of slide {slide}")

    def _all_parts(self, shape: Any, name: str) -> list[tuple[Any, str]]:
        """As above, of the box that a refusal calls by that name."""
        count = count_of(shape)
        if count > MAX_PARTS:
            raise wrong(f"{name} has {count} parts, and at most {MAX_PARTS} are changed at once")
        return list(parts(shape))

    def _texts(self, slide: int, box: int) -> list[Any]:
        """All texts of a box, one at least."""
        holders = texts(self._parts(slide, box))
        if not holders:
            raise self._textless(slide, box)
        return holders

    def _textless(self, slide: int, box: int) -> Exception:
        page = self._slide(slide)
        kinds = [kind_of(page.getByIndex(at)) for at in range(page.Count)]
        able = [str(at) for at, kind in enumerate(kinds) if kind not in TEXTLESS]
        there = f"boxes with text here: {', '.join(able[:30])}" if able else "this slide has no box with text"
        return wrong(f"box_index: box {box} of slide {slide} is a box of kind {kinds[box]}, which is no text; {there}")

    def _about(self, limit: int) -> str:
        """All slides, or those around the one that is shown, with the text of each box; at most `limit` characters."""
        count, shown, emptied = self._count(), self._shown(), self._emptied()
        head = f"slides: {count}; current: {shown}"
        left, things = limit - len(head) - 10, INFO_THINGS  # room for marks where slides are left out
        blocks: dict[int, str] = {}
        for number in sorted(range(1, count + 1), key=lambda each: abs(each - shown)):
            lines = self._told(number, left, things, emptied)
            block = "\n".join(lines)
            things -= len(lines)
            if blocks and (len(block) >= left or things < 0):
                break
            blocks[number] = clipped(block, left)
            left -= len(blocks[number]) + 1
        first, last = (min(blocks), max(blocks)) if blocks else (1, 0)
        marks = ["..." if first > 1 else "", "..." if last < count else ""]
        listed = [head, marks[0], *(blocks[number] for number in sorted(blocks)), marks[1]]
        return "\n".join(line for line in listed if line)[:limit]

    def _emptied(self) -> Any:
        """The text that was emptied by keys and has the caret: its box tells the old one until the caret leaves it."""
        chosen = self._view.getSelection()
        if getattr(chosen, "Count", 0) != 1:  # no boxes: selected text, slides or nothing
            return None
        shown_lines = selected_lines(self._view.Frame.ComponentWindow)
        own = list(islice(parts(chosen.getByIndex(0)), len(shown_lines) + 1))
        for (part, _), lines in zip(own, shown_lines, strict=True) if len(own) == len(shown_lines) else ():
            if lines == [""] and "" not in part.String.split("\n"):  # both can't be true
                return part
        return None

    def _told(self, number: int, limit: int, things: int, emptied: Any) -> list[str]:
        """Lines of a slide and its boxes; no more than `things`, or than come to about `limit` characters."""
        page = self._doc.DrawPages.getByIndex(number - 1)
        lines, length = [f"Slide {number}:"], 0
        for at in range(page.Count):
            if length > limit or at >= things:
                lines.append("...")
                break
            shape = page.getByIndex(at)
            kind = kind_of(shape)
            holders = texts(islice(parts(shape, kind), MAX_PARTS))
            content = " | ".join("" if text == emptied else text_of(text) for text in holders)
            text = clipped(content, BOX_CHARS).replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"- Box {at} ({kind})" + (f": {text}" if text else ""))
            length += len(lines[-1])
        return lines
