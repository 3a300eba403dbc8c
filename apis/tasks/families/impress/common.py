"""What families of slide tasks have in common: a few slides with a title and an outline, and what shall become of them.

Invariant: a task is judged on every box of its presentation, so whoever changes anything else has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from apis.documents.odp import MIME, make_odp
from apis.tasks.data_url import data_url
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Files, Templates, all_of, in_osworld_form, setup, words_of
from apis.tasks.goal import Goal
from apis.tasks.osworld import Download, DownloadParameters, Source, Task
from apis.tasks.verify.verify import Box, Deck, FileView, Slide
from apis.tasks.view import Decide
from apis.tasks.words import words

IMPRESS = "libreoffice_impress"
TITLE: Final = "title"
OUTLINE: Final = "outline"
KINDS = (TITLE, OUTLINE)  # of the boxes of every slide, in their order

Texts = tuple[str, str]  # of a slide's title and of its outline, lines parted by \n
ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class DeckGoal(Goal):
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


def of_slides(
    name: str,
    goal: Callable[[Random, str], DeckGoal],
    *,
    routes: Mapping[str, Decide],
    templates: Templates,
    trained: bool = True,
) -> Family:
    """A family that is done when the presentation's slides are its goal's `finish`."""

    def task(task_id: str, made: DeckGoal) -> Task:
        config = [_file_step(made), *setup(made, f"{DOCUMENTS}/{made.target}")]
        expected = [{"boxes": [list(pair) for pair in zip(KINDS, texts, strict=True)]} for texts in made.finish]
        rules: dict[str, object] = {"type": "rule", "rules": {"expected": expected}}
        return in_osworld_form(task_id, made, config, all_of(("deck_is", made.target, rules)), (IMPRESS,))

    return Family(name, IMPRESS, (IMPRESS,), goal, task, solved, routes, templates, trained, values_of, may=ITS_END)


def of_deck(goal: Goal) -> DeckGoal:
    """The goal as one on slides. Raises TypeError for another kind."""
    if not isinstance(goal, DeckGoal):
        raise TypeError(f"{goal.family} is no family of slides")
    return goal


def solved(goal: Goal) -> Files:
    """The files when it is done."""
    done = of_deck(goal).finish
    pages = [Slide(tuple(Box(kind, text) for kind, text in zip(KINDS, texts, strict=True))) for texts in done]
    return {f"Documents/{goal.target}": FileView("deck", deck=Deck(tuple(pages)))}


def values_of(goal: Goal) -> set[str]:
    """The words that an instance is made of."""
    made = of_deck(goal)
    texts = (text for texts in (*made.slides, *made.finish) for text in texts)
    return words_of(made) | {word for text in texts for word in text.split()}


def _file_step(made: DeckGoal) -> Download:
    data = make_odp([[(TITLE, title), (OUTLINE, outline)] for title, outline in made.slides])
    source = Source(url=data_url(data, MIME), path=f"{DOCUMENTS}/{made.target}")
    return Download(parameters=DownloadParameters(files=[source]))
