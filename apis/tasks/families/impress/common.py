"""What families of presentations have in common: a few slides with a title and an outline, and what becomes of them.

Invariant: a task is judged on every box of its presentation. Any other change fails it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from apis.documents.odp import MIME, make_odp
from apis.tasks.families.document import DocumentKind
from apis.tasks.goal import Goal
from apis.tasks.verify import office
from apis.tasks.words import words

IMPRESS = "libreoffice_impress"
TITLE: Final = "title"
OUTLINE: Final = "outline"
KINDS = (TITLE, OUTLINE)  # of the boxes of every slide, in their order

Texts = tuple[str, str]  # of a slide's title and of its outline, lines parted by \n
ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class PresentationGoal(Goal):
    """What an instance asks for; `target` is the presentation's file."""

    slides: tuple[Texts, ...] = ()
    finish: tuple[Texts, ...] = ()
    slide: int = 1  # the one the task is about, from 1


def slides(random: Random, split: str, count: int) -> tuple[list[str], tuple[Texts, ...]]:
    """Two words to use, and `count` slides of words none of which begins another."""
    lines = [random.choice((1, 2)) for _ in range(count)]
    drawn = words(random, split, 2 + count + sum(lines))
    spare, drawn = drawn[:2], drawn[2:]
    made = []
    for wide in lines:
        title, *outline = (drawn.pop() for _ in range(1 + wide))
        made.append((title, "\n".join(outline)))
    return spare, tuple(made)


def written(goal_slides: tuple[Texts, ...], slide: int, box: int, text: str) -> tuple[Texts, ...]:
    """The slides with another text in one box; `slide` counts from 1."""
    title, outline = goal_slides[slide - 1]
    new = (text, outline) if box == 0 else (title, text)
    return (*goal_slides[: slide - 1], new, *goal_slides[slide:])


PRESENTATION = DocumentKind(
    app=IMPRESS,
    goals=PresentationGoal,
    mime=MIME,
    check="deck_is",
    data=lambda made: make_odp([[(TITLE, title), (OUTLINE, outline)] for title, outline in made.slides]),
    expected=lambda made: [{"boxes": [list(pair) for pair in zip(KINDS, texts, strict=True)]} for texts in made.finish],
    wanted=office.presentation,
    values=lambda made: {word for texts in (*made.slides, *made.finish) for text in texts for word in text.split()},
)
