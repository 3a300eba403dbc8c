"""Whether a text document says what it should and looks so.

Invariant: strict. Every paragraph with text is compared, words and looks, so a task is solved only if no other one
changed. Paragraphs without text don't count, since no function of Writer takes them away. Indents, the space around
paragraphs and the document's styles are not compared.
"""

from __future__ import annotations

from typing import Any

from apis.tasks.verify.verify import FileView, Paragraph, TaskVerdict


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
