"""What families of text documents have in common: a few short paragraphs, and what shall become of them.

Invariant: a task is judged on every paragraph of its document, words and looks. Any other change fails it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from apis.documents.docx import MIME, make_docx
from apis.tasks.families.calc.common import WORKBOOK, WorkbookGoal
from apis.tasks.families.document import DocumentKind
from apis.tasks.goal import Goal
from apis.tasks.verify import office
from apis.tasks.words import words

WRITER = "libreoffice_writer"


@dataclass(frozen=True)
class Line:
    """A paragraph with text; `looks` and `layout` are marks of `apis.tasks.verify.verify.Paragraph`."""

    text: str
    looks: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextDocumentGoal(Goal):
    """What an instance asks for; `target` is the document's file."""

    start: tuple[str, ...] = ()  # its paragraphs, plain; "" is an empty one
    finish: tuple[Line, ...] = ()  # those with text in the end
    workbooks: tuple[WorkbookGoal, ...] = ()  # workbooks beside it, judged by their own goals

    @property
    def before(self) -> list[str]:
        """The paragraphs with text at the start."""
        return [text for text in self.start if text]

    @property
    def after(self) -> list[str]:
        """Those in the end."""
        return [line.text for line in self.finish]


def plain(texts: Sequence[str]) -> tuple[Line, ...]:
    """Paragraphs that look like any other."""
    return tuple(Line(text) for text in texts)


def drawn(random: Random, split: str, sizes: Sequence[int], others: int = 0) -> tuple[list[str], list[str]]:
    """Paragraphs of so many words each, and other words; none of all these words is a part of another."""
    while True:
        found = words(random, split, sum(sizes) + others)
        if not any(one in other for one in found for other in found if one != other):
            break
    left = iter(found)
    return [" ".join(next(left) for _ in range(size)) for size in sizes], list(left)


TEXT_DOCUMENT = DocumentKind(
    app=WRITER,
    goals=TextDocumentGoal,
    mime=MIME,
    check="paper_is",
    data=lambda made: make_docx(made.start),
    expected=lambda made: [
        {"text": line.text, "looks": [*line.looks], "layout": [*line.layout]} for line in made.finish
    ],
    wanted=office.text_document,
    # Capitals are made of small letters.
    values=lambda made: {word.lower() for text in (*made.before, *made.after) for word in text.split()},
    beside=lambda made: [(WORKBOOK, workbook) for workbook in made.workbooks],
)
