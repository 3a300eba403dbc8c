"""Office Open XML presentations (ECMA-376 part 1, PresentationML): slides, their shapes, and what was set on texts.

Invariant: of the archive only the parts that the presentation itself names are read, each at most once. Alternate
content is left out, as its two forms would count twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.markup import MarkupHandler, walk
from apis.documents.read.pptx_text import SlideText
from apis.documents.read.relations import Relations, related

_MAIN = ("http://schemas.openxmlformats.org", "http://purl.oclc.org/ooxml")
_PREFIXES = {
    f"{_MAIN[0]}/presentationml/2006/main": "p",
    f"{_MAIN[0]}/drawingml/2006/main": "a",
    f"{_MAIN[0]}/officeDocument/2006/relationships": "r",
    f"{_MAIN[0]}/package/2006/relationships": "",
    f"{_MAIN[1]}/presentationml/main": "p",
    f"{_MAIN[1]}/drawingml/main": "a",
    f"{_MAIN[1]}/officeDocument/relationships": "r",
}
_SHAPES = {
    "p:sp": "text", "p:pic": "picture", "p:graphicFrame": "frame", "p:cxnSp": "line", "p:grpSp": "group",
}  # fmt: skip
_TITLES, _FOOT = ("title", "ctrTitle"), ("dt", "ftr", "sldNum", "hdr")  # roles of placeholders
_FAR = 1 << 40  # EMU: no place is farther

Walk = Callable[[str, MarkupHandler], None]


class _Show(MarkupHandler):
    """The presentation's own part: the size of slides, and their relations in order."""

    def __init__(self) -> None:
        self.size = (0, 0)
        self.slides: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "p:sldSz":
            self.size = (_emu(attributes.get("cx")) or 0, _emu(attributes.get("cy")) or 0)
        elif name == "p:sldId":
            self.slides.append(attributes.get("r:id", ""))


def _emu(text: str | None) -> int | None:
    """A length in EMU (914,400 an inch), None for what is none."""
    digits = (text or "").removeprefix("-")
    if text is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
        return None
    return max(-_FAR, min(_FAR, int(text)))


class _Slide(MarkupHandler):
    """One slide, layout, master or page of notes."""

    def __init__(self, budget: Budget) -> None:
        self.shapes: list[dict[str, Any]] = []
        self.background: str | None = None  # None: what the master has
        self.hidden = False
        self._budget = budget
        self._open: list[dict[str, Any]] = []  # shapes that we are in, each a group but the last
        self._path: list[str] = []
        self._skipped = 0  # depth below alternate content
        self._text = SlideText(budget)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if self._skipped or name == "?:AlternateContent":
            self._skipped += 1
        elif name in _SHAPES:
            self._begin(_SHAPES[name])
        elif name == "p:sld":
            self.hidden = attributes.get("show") in ("0", "false")
        elif self._path[1:-1] == ["p:cSld", "p:bg", "p:bgPr"]:
            self.background = None if name == "a:noFill" else self.background or ""
        elif self._path[1:-2] == ["p:cSld", "p:bg", "p:bgPr"] and self._path[-2] == "a:solidFill":
            self.background = attributes.get("val", "")[:32].upper()
        elif self._open:
            self._in_shape(self._open[-1], name, attributes)

    def _begin(self, kind: str) -> None:
        self._budget.spend("cells")
        shape: dict[str, Any] = {"kind": kind, "paragraphs": [], "inside": [], "cells": [], "columns": 0}
        (self._open[-1]["inside"] if self._open else self.shapes).append(shape)
        self._open.append(shape)
        self._text.into(shape["paragraphs"])

    def _in_shape(self, shape: dict[str, Any], name: str, attributes: dict[str, str]) -> None:
        if name == "p:ph":
            shape["role"] = attributes.get("type", "obj")[:32]
            shape["idx"] = attributes.get("idx", "0")[:12]
        elif name in ("a:off", "a:ext") and self._path[-2] in ("a:xfrm", "p:xfrm"):
            keys = ("x", "y") if name == "a:off" else ("cx", "cy")
            shape.setdefault("place", {}).update({key: _emu(attributes.get(key)) or 0 for key in keys})
        elif name == "a:tbl":
            shape["kind"] = "table"
        elif name == "a:gridCol":
            shape["columns"] += 1
        elif name == "a:tc":
            self._budget.spend("cells")
            shape["cells"].append([])
            self._text.into(shape["cells"][-1])
        else:
            self._text.start(self._path, attributes)

    def text(self, data: str) -> None:
        if not self._skipped and self._open and self._path[-1] == "a:t":
            self._text.text(data)

    def end(self, name: str) -> None:
        self._path.pop()
        if self._skipped:
            self._skipped -= 1
        elif name in _SHAPES:
            self._open.pop()
            if self._open:
                self._text.into(self._open[-1]["paragraphs"])
        elif self._open:
            self._text.end(name)


def read(archive: Archive, budget: Budget) -> dict[str, Any]:
    """The presentation as `apis.tasks.verify.shows.SlideShow` has it. Raises RefusedError."""

    def parse(part: str, handler: MarkupHandler) -> None:
        walk(archive.pieces(part), handler, _PREFIXES, budget)

    def relations(part: str) -> Relations:
        return related(part, parse)

    main = related("", parse).of_kind("officeDocument")
    if main is None:
        raise RefusedError("not_a_workbook")
    show = _Show()
    parse(main, show)
    if not show.slides:
        raise RefusedError("not_a_workbook")
    parts = relations(main).parts
    kept: dict[str, _Slide] = {}
    named = [parts.get(name, ("", ""))[1] for name in show.slides]
    if len(set(named)) != len(named):
        raise RefusedError("not_a_workbook")
    slides = [_slide(part, parse, relations, kept, budget) for part in named]
    return {"slides": slides, "width": show.size[0], "height": show.size[1]}


def _part(part: str | None, parse: Walk, kept: dict[str, _Slide], budget: Budget) -> _Slide:
    """A part that several slides may have in common, read once."""
    if part is None:
        return _Slide(budget)
    if part not in kept:
        kept[part] = _Slide(budget)
        parse(part, kept[part])
    return kept[part]


def _slide(
    part: str, parse: Walk, relations: Callable[[str], Relations], kept: dict[str, _Slide], budget: Budget
) -> dict[str, Any]:
    slide = _Slide(budget)
    parse(part, slide)
    own = relations(part)
    at = own.of_kind("slideLayout")
    layout = _part(at, parse, kept, budget)
    master = _part(relations(at).of_kind("slideMaster") if at else None, parse, kept, budget)
    notes = _Slide(budget)
    if noted := own.of_kind("notesSlide"):
        parse(noted, notes)
    ground = master.background if slide.background is None else slide.background
    said = [shape["paragraphs"] for shape in notes.shapes if shape.get("role") == "body"]
    return {
        "shapes": [_shape(shape, layout.shapes, master.shapes) for shape in slide.shapes],
        "background": ground or "",
        "notes": "\n".join("".join(s["text"] for s in one["spans"]) for one in (said[0] if said else [])),
        "hidden": slide.hidden,
    }


def _shape(shape: dict[str, Any], layout: list[dict[str, Any]], master: list[dict[str, Any]]) -> dict[str, Any]:
    """A shape with its place: its own, its layout's or its master's."""
    role, place = shape.get("role", ""), shape.get("place")
    if role and not place:
        same = [one for one in layout if one.get("role") and one["idx"] == shape["idx"] and "place" in one]
        kind = _kind(role)
        alike = [one for one in master if "place" in one and one.get("role") and _kind(one["role"]) == kind]
        place = next((one["place"] for one in (*same, *alike)), None)
    four = [(place or {}).get(key, 0) for key in ("x", "y", "cx", "cy")]
    inside = [_shape(one, layout, master) for one in shape["inside"]]
    kept = {key: shape[key] for key in ("kind", "paragraphs", "cells", "columns")}
    return {**kept, "role": role, "place": four, "inside": inside}


def _kind(role: str) -> str:
    """The role of a master's placeholder that stands for `role`."""
    return "title" if role in _TITLES else role if role in _FOOT else "body"
