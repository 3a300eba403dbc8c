"""Whether a presentation says what it should.

Invariant: strict. Every box of every slide is compared, in order. Text written elsewhere, emptied, removed, hidden or
coloured slides fail a task; empty lines at a box's end don't. Where boxes stand and how text looks is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apis.tasks.verify.verify import FileView, Slide, TaskVerdict


def presentation_is(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The presentation's slides are `expected`, in this order, none hidden.

    Each is {"boxes": [[kind, text], ...], "background": colour}; without "background" it has none of its own.
    """
    if view.presentation is None:
        return TaskVerdict(False, view.reason or f"it is {view.kind}")
    slides, expected = view.presentation.slides, rules["expected"]
    if len(slides) != len(expected):
        return TaskVerdict(False, f"it has {len(slides)} slides where {len(expected)} are wanted")
    for number, (slide, wanted) in enumerate(zip(slides, expected, strict=True), 1):
        if trouble := _trouble(slide, wanted):
            return TaskVerdict(False, f"slide {number}: {trouble}")
    return TaskVerdict(True, "it says what it should")


def _trouble(slide: Slide, wanted: Mapping[str, Any]) -> str:
    if slide.hidden:
        return "it is hidden"
    if slide.background.lower() != wanted.get("background", ""):
        return "it has another background"
    return _other([(box.kind, box.text.rstrip("\n")) for box in slide.boxes], wanted["boxes"])


def _other(found: Sequence[tuple[str, str]], wanted: Sequence[Sequence[str]]) -> str:
    if [kind for kind, _ in found] != [kind for kind, _ in wanted]:
        return "it has other boxes"
    for (kind, text), (_, other) in zip(found, wanted, strict=True):
        if text != other:
            return f"its {kind} says something else"
    return ""
