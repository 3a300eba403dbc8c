"""Writer's text under change tracking: what is deleted is still in the document, and none of it is read or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from guest.matching import Match
from guest.office.base import each

DELETED_MAX = 500  # places of deleted text

Span = tuple[int, int]  # first character and the one after the last


class Piece(NamedTuple):
    """A paragraph: the text it is in, its number there, and what a model knows it by."""

    text: Any
    number: int
    name: str
    string: str  # without what is deleted under change tracking
    whole: str  # with it
    deleted: tuple[Span, ...] = ()  # where that is in `whole`


class Place(NamedTuple):
    """A piece of a text."""

    text: Any
    start: Any
    end: Any


def deleted_in(document: Any) -> list[Place]:
    """The places of text that is deleted under change tracking, in their order."""
    places: list[Place] = []
    changes = document.Redlines
    if not changes.hasElements():
        return places
    for change in each(changes):
        if len(places) == DELETED_MAX:
            break
        if change.RedlineType == "Delete":
            start, end = change.RedlineStart, change.RedlineEnd
            text = start.getText()
            if text == end.getText() and text.compareRegionStarts(start, end) < 0:
                start, end = end, start  # the caret stood behind what the keyboard deleted
            places.append(Place(text, start, end))
    return places


def selected(document: Any, cursor: Any) -> str:
    """What a cursor selects, without what is deleted."""
    text, whole = cursor.getText(), str(cursor.String)
    start, end = cursor.getStart(), cursor.getEnd()
    spans: list[Span] = []
    for place in deleted_in(document):
        if place.text != text:
            continue
        if text.compareRegionStarts(place.start, end) <= 0 or text.compareRegionStarts(place.end, start) >= 0:
            continue
        before = text.compareRegionStarts(place.start, start) > 0
        beyond = text.compareRegionStarts(place.end, end) < 0
        first = 0 if before else _length(text, start, place.start)
        spans.append((first, len(whole) if beyond else _length(text, start, place.end)))
    return live(whole, tuple(spans))


def paragraphs(text: Any, deleted: list[Any]) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """The paragraphs of a text, without those in its tables, and where in them the places `deleted` stand."""
    cursor = text.createTextCursor()
    cursor.gotoStart(False)
    ours = [place for place in deleted if place.text == text]
    while True:
        start = cursor.getStart()
        cursor.gotoEndOfParagraph(True)
        spans = []
        while ours and text.compareRegionStarts(ours[0].start, cursor.getEnd()) > 0:  # it begins in this one
            begins = _length(text, start, ours[0].start) if text.compareRegionStarts(start, ours[0].start) >= 0 else 0
            goes_on = text.compareRegionStarts(ours[0].end, cursor.getEnd()) < 0
            spans.append((begins, len(cursor.String) if goes_on else _length(text, start, ours[0].end)))
            if goes_on:
                break
            ours.pop(0)
        yield cursor.String, tuple(spans)
        if not cursor.gotoNextParagraph(False):
            return


def _length(text: Any, start: Any, end: Any) -> int:
    cursor = text.createTextCursorByRange(start)
    cursor.gotoRange(end, True)
    return len(cursor.String)


def live(whole: str, deleted: tuple[Span, ...]) -> str:
    """A paragraph without what is deleted in it."""
    for first, last in reversed(deleted):
        whole = whole[:first] + whole[last:]
    return whole


def parts(first: int, last: int, deleted: tuple[Span, ...]) -> list[Span]:
    """Where the characters of a live text from `first` up to `last` stand in the whole one; never empty."""
    spans, gone = [], 0
    for begins, ends in deleted:
        here = begins - gone  # of the live text, where the deleted part is
        if first < here < last:
            spans.append((first + gone, begins))
            first = here
        elif here > first or (here == first == last):
            break
        gone += ends - begins
    return [*spans, (first + gone, last + gone)]


def piece(text: Any, number: int, name: str, whole: str, deleted: tuple[Span, ...]) -> Piece:
    """A paragraph with what it reads like."""
    return Piece(text, number, name, live(whole, deleted), whole, deleted)


def part_of(match: Match, spans: list[Span], first: int, last: int) -> Match:
    """The part of a match that is in the whole paragraph from `first` up to `last`."""
    if len(spans) == 1:
        return match
    start = match.start + sum(min(end, first) - min(begin, first) for begin, end in spans)
    rest = first != spans[0][0]
    new = "" if rest and match.new is not None else match.new
    return match._replace(start=start, end=start + last - first, new=new, rest=rest)
