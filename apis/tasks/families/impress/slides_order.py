"""Tasks on Impress: delete a slide, or move one to another place, and save.

Invariant: the two splits share no wording and, since words are split by their hash, no name and no value. Impress
has no function for either, so they are done by mouse and keyboard; only saving has one.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.impress import slides_pages_oracle
from apis.tasks.families.impress.common import ORDINALS, PRESENTATION, PresentationGoal, slides
from apis.tasks.words import HELD_OUT, TRAIN

NAME = "slides_order"
TEMPLATES = {
    "delete": {
        TRAIN: (
            "Delete slide {n} and save",
            "Delete the slide '{title}' from {file}",
            "The {nth} slide of {file} is not needed, remove it",
            "Remove slide {n}, then save {file}",
            "{file} should not have the slide '{title}'",
        ),
        HELD_OUT: (
            "Take slide {n} out of {file} and save",
            "The slide '{title}' must go, delete it and save",
        ),
    },
    "start": {
        TRAIN: (
            "Move slide {n} to the start and save",
            "The slide '{title}' should be the first of {file}",
            "Put the {nth} slide in front of all others, then save {file}",
        ),
        HELD_OUT: (
            "Make '{title}' the first slide and save",
            "Slide {n} of {file} belongs to the beginning, move it",
        ),
    },
    "end": {
        TRAIN: (
            "Move slide {n} to the end and save",
            "The slide '{title}' should be the last of {file}",
            "Put the {nth} slide behind all others, then save {file}",
        ),
        HELD_OUT: (
            "Make '{title}' the last slide and save",
            "Slide {n} of {file} must come last, move it",
        ),
    },
}


def goal(random: Random, split: str) -> PresentationGoal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    (stem, _), start = slides(random, split, random.choice((3, 4)))
    # By the menu a move takes three clicks, so only slides near the first are moved.
    slide = {"delete": random.randint(1, min(4, len(start))), "start": 2, "end": random.choice((1, 2))}[kind]
    moved, others = start[slide - 1], (*start[: slide - 1], *start[slide:])
    finish = {"delete": others, "start": (moved, *others), "end": (*others, moved)}[kind]
    return PresentationGoal(
        family=NAME,
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(
            n=slide, nth=ORDINALS[slide - 1], title=moved[0], file=f"{stem}.odp"
        ),
        target=f"{stem}.odp",
        wanted=moved[0],
        slides=start,
        finish=finish,
        slide=slide,
    )


FAMILY = PRESENTATION.family(
    NAME,
    goal,
    routes={"gui": slides_pages_oracle.by_gui, "mixed": slides_pages_oracle.by_hand_then_tool},
    templates=TEMPLATES,
)
