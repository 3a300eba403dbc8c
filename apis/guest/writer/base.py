"""What all functions of Writer share: the text in front, its paragraphs, the caret and places that match.

The paragraphs of the document's body are counted from 0, without those in tables. A cursor moves by characters as
Python counts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from com.sun.star.uno import RuntimeException as NoSelection
from guest import Refused
from guest.files import wrong
from guest.matching import Match, Unmatched, matched
from guest.office.base import Document, clipped
from guest.writer.changes import Piece, Span, deleted_in, live, paragraphs, part_of, parts, piece, selected

STEP = 30_000  # characters that a cursor goes at once
CALL_S, COUNT_S = 1.0, 0.06  # for finding the caret's paragraph, in a call and in an observation
TELL_S = 0.15  # for reading paragraphs in an observation
PARAGRAPH_CHARS = 500  # of a paragraph in an answer
SOME = 12  # places named in an answer


def plural(count: int, thing: str) -> str:
    """A count with its noun: 1 place, 2 places."""
    return f"{count} {thing}" + ("" if count == 1 else "s")


def one_line(text: str, limit: int = PARAGRAPH_CHARS) -> str:
    """A paragraph as one line of an answer."""
    return clipped(text[: limit + 1].replace("\n", "\\n"), limit)


def ahead(cursor: Any, count: int, expand: bool) -> None:
    """Move a cursor on by `count` characters."""
    while count > 0:
        cursor.goRight(min(count, STEP), expand)
        count -= STEP


def select_back(cursor: Any, count: int) -> None:
    """Select the `count` characters before a cursor's end."""
    cursor.collapseToEnd()
    while count > 0:
        cursor.goLeft(min(count, STEP), True)
        count -= STEP


def as_typed(text: str) -> str:
    """A new line begins a new paragraph, as the enter key does."""
    return text.replace("\n", "\r")


def rewrite(text: Any, cursor: Any, new: str) -> None:
    """Put `new` in the place of what a cursor selects, with the looks of its first character; \\n breaks a line.

    The office gives inserted text the looks of what is before it: so it is inserted behind that character, and the
    old text is taken away then.
    """
    if cursor.isCollapsed():
        text.insertString(cursor, new, False)
        return
    start, end = cursor.getStart(), cursor.getEnd()
    cursor.collapseToStart()
    cursor.goRight(1, False)
    rest = text.compareRegionStarts(cursor, end) > 0
    if new:
        text.insertString(cursor, new, False)
    if rest:
        cursor.gotoRange(end, True)
        cursor.String = ""
    cursor.gotoRange(start, False)
    cursor.goRight(1, True)
    cursor.String = ""


def _stepped_over(cursor: Any, string: str, start: int, end: int) -> bool:
    """Put a cursor at a paragraph's start over the characters from `start` up to `end`, step by step.

    False where a field's middle is in the way, or an object (a picture, a formula: a step without a character) within.
    """
    while len(cursor.String) < start and cursor.goRight(1, True):
        continue
    before = cursor.String
    cursor.collapseToEnd()
    while end > start and cursor.goRight(1, True) and not cursor.String:
        cursor.collapseToEnd()  # behind an object right before the match
    cursor.collapseToStart()
    length = 0
    while length < end - start and cursor.goRight(1, True):
        if len(cursor.String) == length:
            return False
        length = len(cursor.String)
    return bool(before == string[:start] and cursor.String == string[start:end])


class TextDocument(Document):
    """The text document in front. Methods without an underscore, in subclasses, are what a model can call."""

    _service, _sort = "com.sun.star.text.TextDocument", "text document"
    _reading = frozenset({"save", "export_to_pdf", "find_highlighted_text"})

    @contextmanager
    def _one_step(self, name: str) -> Iterator[None]:
        """What happens inside is undone by one ctrl+z and drawn once."""
        undo = self._doc.UndoManager
        undo.enterUndoContext(name)
        try:
            with self._drawn_once():
                yield
        finally:
            undo.leaveUndoContext()

    def _caret(self) -> Any:
        """The view's cursor. Raises Refused while there is none, or something else than text is selected."""
        if not hasattr(self._view, "getViewCursor"):
            raise wrong("the caret is not in the text, the print preview is open: close it first, with esc")
        caret = self._view.getViewCursor()
        try:
            caret.getText()
        except NoSelection as error:
            raise wrong("the caret is not in the text, an object or cells are selected: click into the text") from error
        return caret

    def _in_body(self, caret: Any) -> bool:
        return bool(caret.getText() == self._doc.Text)

    def _plain(self) -> bool:
        """Whether every new line in the body's text ends a paragraph, so that it can be had in one call."""
        if self._doc.TextTables.Count:
            return False
        search = self._doc.createSearchDescriptor()
        search.SearchRegularExpression = True
        search.SearchString = r"\n"  # a line break inside a paragraph
        return self._doc.findFirst(search) is None

    def _strings(self) -> list[str] | Iterator[str]:
        """The paragraphs of the body as they read, all at once where that can be had."""
        return (live(*each) for each in self._paragraphs()) if self._doc.Redlines.hasElements() else self._wholes()

    def _wholes(self) -> list[str] | Iterator[str]:
        body = self._doc.Text
        return body.String.split("\n") if self._plain() else (whole for whole, _ in paragraphs(body, []))

    def _paragraphs(self) -> Iterator[tuple[str, tuple[Span, ...]]]:
        """The whole paragraphs of the body, and where in them deleted text is."""
        if not self._doc.Redlines.hasElements():
            return ((whole, ()) for whole in self._wholes())
        return paragraphs(self._doc.Text, deleted_in(self._doc))

    def _number_of(self, caret: Any, limit_s: float) -> int | None:
        """The number of the paragraph at a place in the body; None where it takes too long to count."""
        text, start = self._doc.Text, caret.getStart()
        cursor = text.createTextCursorByRange(start)
        if self._plain():
            cursor.gotoStart(True)
            return int(cursor.String.count("\n"))
        until = time.monotonic() + limit_s
        cursor.gotoStart(False)
        number = 0
        while True:
            cursor.gotoEndOfParagraph(False)
            if text.compareRegionStarts(start, cursor) >= 0:
                return number
            number += 1
            if time.monotonic() > until or not cursor.gotoNextParagraph(False):
                return None

    def _where(self, caret: Any, limit_s: float = CALL_S) -> str:
        """What a model knows the caret's place by."""
        if self._in_body(caret):
            number = self._number_of(caret, limit_s)
            return "a paragraph far below" if number is None else f"paragraph {number}"
        table, cell = caret.getPropertyValue("TextTable"), caret.getPropertyValue("Cell")
        if table is not None and cell is not None:
            return f"table {table.Name!r} cell {cell.CellName}"
        return "a header, footer, note or frame"

    def _tables(self) -> Iterator[tuple[str, Any]]:
        """The texts of all cells, with their names."""
        tables = self._doc.TextTables
        for at in range(tables.Count):
            table = tables.getByIndex(at)
            for name in table.CellNames:
                yield f"table {table.Name!r} cell {name}", table.getCellByName(name)

    def _pieces(self, indices: list[int] | None) -> list[Piece]:
        """The paragraphs with these numbers; all of the body and of its tables for None. Raises Refused."""
        body = self._doc.Text
        pieces = [piece(body, at, f"paragraph {at}", *each) for at, each in enumerate(self._paragraphs())]
        if indices is not None:
            beyond = next((index for index in indices if index >= len(pieces)), None)
            if beyond is not None:
                there = f"there {'is' if len(pieces) == 1 else 'are'} {plural(len(pieces), 'paragraph')}"
                raise wrong(f"paragraph_indices: there is no paragraph {beyond}; {there}, counted from 0")
            return [pieces[index] for index in indices]
        deleted = deleted_in(self._doc)
        for name, cell in self._tables():
            pieces += [piece(cell, at, name, *each) for at, each in enumerate(paragraphs(cell, deleted))]
        return pieces

    def _whole(self, indices: list[int] | None) -> Iterator[Any]:
        """Cursors that together cover these paragraphs; all of the body and of its tables for None."""
        if indices is None:
            for text in (self._doc.Text, *(cell for _, cell in self._tables())):
                cursor = text.createTextCursor()
                cursor.gotoStart(False)
                cursor.gotoEnd(True)
                yield cursor
            return
        for _, cursor in self._backwards(self._pieces(indices)):
            cursor.gotoEndOfParagraph(True)
            yield cursor

    def _backwards(self, pieces: list[Piece]) -> Iterator[tuple[int, Any]]:
        """Each piece's place in the list, the last first, and a cursor at its start.

        What is changed at a piece moves none of those that are still to come. The cursor may be used up.
        """
        text, walk, number = None, None, 0
        for at in range(len(pieces) - 1, -1, -1):
            piece = pieces[at]
            if walk is None or piece.text is not text:
                text, number = piece.text, 0
                walk = text.createTextCursor()
                walk.gotoStart(False)
                while number < piece.number and walk.gotoNextParagraph(False):
                    number += 1
            while number > piece.number and walk.gotoPreviousParagraph(False):
                number -= 1
            walk.gotoStartOfParagraph(False)
            here = text.createTextCursorByRange(walk)
            if walk.gotoPreviousParagraph(False):  # what is inserted at the very start would take `walk` along
                number -= 1
            yield at, here

    def _each(self, pattern: str, indices: list[int] | None, replacement: str | None = None) -> Iterator[Any]:
        """Every match as `_over` gives it. Raises Refused where nothing matches."""
        if not pattern:
            raise wrong("pattern: write a regular expression, or the words to be found")
        pieces = self._pieces(indices)
        try:
            matches = matched(pattern, replacement, [piece.string for piece in pieces])
        except Unmatched as error:
            raise wrong(str(error)) from error
        if not matches:
            where = "in these paragraphs" if indices is not None else "in the document"
            raise wrong(f"pattern: {pattern[:60]!r} matches nothing {where}; small and capital letters differ")
        return self._over(pieces, matches)

    def _over(self, pieces: list[Piece], searched: list[Match]) -> Iterator[Any]:
        """Every match, the last first: its piece, itself, and a cursor over it.

        Matches in a part of a field are left out, for a field can't be changed in part; and those around an object, for
        it would go with what is replaced. A match that has deleted text within comes in parts, the last first: all but
        the first are a `rest`, which nothing takes the place of.
        """
        by_piece: dict[int, list[Match]] = {}
        for match in searched:
            by_piece.setdefault(match.at, []).append(match)
        places = [pieces[at] for at in by_piece]
        matches = list(by_piece.values())
        for at, start in self._backwards(places):
            here = places[at]
            cursor = here.text.createTextCursorByRange(start)
            ahead(cursor, len(here.whole), True)
            plain = cursor.String == here.whole  # a field is one step of a cursor but many characters, an image none
            for match in reversed(matches[at]):
                spans = parts(match.start, match.end, here.deleted)
                for first, last in reversed(spans):
                    cursor.gotoRange(start, False)
                    if plain:
                        ahead(cursor, first, False)
                        ahead(cursor, last - first, True)
                    if plain or _stepped_over(cursor, here.whole, first, last):
                        yield here, part_of(match, spans, first, last), cursor

    def _change(self, name: str, done: str, matches: Iterator[Any], change: Callable[[Piece, Match, Any], Any]) -> str:
        """Carry out `change` at each match, as one step; what was done where."""
        places = []
        with self._one_step(name):
            for piece, match, cursor in matches:
                change(piece, match, cursor)
                places += [] if match.rest else [piece]
        names = list(dict.fromkeys(piece.name for piece in reversed(places)))
        some = ", ".join(names[:SOME]) + (f" and {len(names) - SOME} more" if len(names) > SOME else "")
        return (
            f"{len(places)} match{'' if len(places) == 1 else 'es'} {done}: {some or 'none outside fields and objects'}"
        )

    def _about(self, limit: int) -> str:
        """The caret's place and the paragraphs, at most `limit` characters; of a long document the first ones."""
        try:
            caret, here = self._about_caret(self._caret())
        except Refused as refused:
            caret, here = str(refused), ""
        lines, length, more = [], len(caret) + len(here) + 600, False  # what follows below included
        until, strings = time.monotonic() + TELL_S, self._strings()
        for number, text in enumerate(strings):
            line = f"{number}: {one_line(text)}"
            length += len(line) + 1
            if length > limit or time.monotonic() > until:
                more = True
                break
            lines.append(line)
        count = f"{len(strings)}" if isinstance(strings, list) else f"{'more than ' if more else ''}{len(lines)}"
        names = [repr(clipped(name, 40)) for name in self._doc.TextTables.ElementNames[:10]]
        head = [
            f"paragraphs: {count}, counted from 0{self._kept()}",
            *([f"tables: {', '.join(names)}"] if names else []),
            caret,
        ]
        return "\n".join(["; ".join(head), *lines, *(["...", f"at the caret: {here}"] if more else [])])

    def _about_caret(self, caret: Any) -> tuple[str, str]:
        """The caret's place, and the text of its paragraph."""
        text = f"caret: {self._where(caret, COUNT_S)}"
        cursor = caret.getText().createTextCursorByRange(caret.getStart())
        cursor.gotoStartOfParagraph(True)
        text += f", after character {len(selected(self._doc, cursor))}"
        if not caret.isCollapsed():
            text += f"; selected: {one_line(selected(self._doc, caret), 100)!r}"
        cursor.gotoStartOfParagraph(False)
        cursor.gotoEndOfParagraph(True)
        return text, one_line(selected(self._doc, cursor), 300)


def values(**named: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Properties by name, as the office takes several at once."""
    return tuple(named), tuple(named.values())


def character(**named: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Properties of characters, e.g. Height=12.0, for Western, Asian and complex scripts alike."""
    return values(
        **{f"Char{key}{script}": value for key, value in named.items() for script in ("", "Asian", "Complex")}
    )
