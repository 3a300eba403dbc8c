"""Whether a text document or a presentation says what it should, and a text document looks so.

Invariant: strict. Every paragraph with text is compared, words and looks, and every box of every slide, in order. So a
task is solved only if no other one changed. Paragraphs without text don't count, since no function of Writer takes them
away, nor do empty lines at a box's end. Indents, the space around paragraphs, styles, where boxes stand and how their
text looks are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apis.tasks.verify.spans import Paragraph
from apis.tasks.verify.verify import FileView, Slide, TaskVerdict


def text_document_is(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The document's paragraphs are `expected`, in this order, and it has nothing else.

    Each is {"text", "looks", "layout"}: `looks` are the marks of all its text, `layout` those of the paragraph (the
    marks of `apis.tasks.verify.verify.Paragraph`); what is left out is empty.
    """
    if view.text_document is None:
        return TaskVerdict(False, view.reason or f"it is {view.kind}")
    if view.text_document.extras:
        return TaskVerdict(False, f"it has more than paragraphs: {', '.join(view.text_document.extras)}")
    found = [paragraph for paragraph in view.text_document.paragraphs if paragraph.text]
    expected = rules["expected"]
    if len(found) != len(expected):
        return TaskVerdict(False, f"it has {len(found)} paragraphs with text, not {len(expected)}")
    for number, (paragraph, wanted) in enumerate(zip(found, expected, strict=True), 1):
        trouble = _trouble(paragraph, wanted)
        if trouble:
            return TaskVerdict(False, f"paragraph {number} {trouble}")
    return TaskVerdict(True, "it says what it should")


def _trouble(paragraph: Paragraph, wanted: dict[str, Any]) -> str:
    if paragraph.text != wanted["text"]:
        return "says something else"
    looks = tuple(sorted(wanted.get("looks", ())))
    if any(span.marks != looks for span in paragraph.spans):
        return "looks different"
    return "" if paragraph.marks == tuple(sorted(wanted.get("layout", ()))) else "is laid out differently"


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
        if trouble := _slide_trouble(slide, wanted):
            return TaskVerdict(False, f"slide {number}: {trouble}")
    return TaskVerdict(True, "it says what it should")


def _slide_trouble(slide: Slide, wanted: Mapping[str, Any]) -> str:
    if slide.hidden:
        return "it is hidden"
    if slide.background.lower() != wanted.get("background", ""):
        return "it has another background"
    return _other_lines([(box.kind, box.text.rstrip("\n")) for box in slide.boxes], wanted["boxes"])


def _other_lines(found: Sequence[tuple[str, str]], wanted: Sequence[Sequence[str]]) -> str:
    if [kind for kind, _ in found] != [kind for kind, _ in wanted]:
        return "it has other boxes"
    for (kind, text), (_, other) in zip(found, wanted, strict=True):
        if text != other:
            return f"its {kind} says something else"
    return ""
