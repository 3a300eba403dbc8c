"""Tasks on Impress: copy a slide to the place behind it, and save.

Invariant: the two splits share no wording and, since words are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.impress import slides_order
from apis.tasks.families.impress.common import ORDINALS, PRESENTATION, PresentationGoal, slides
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "copy": {
        TRAIN: (
            "Duplicate slide {n} and save",
            "Duplicate the slide '{title}' of {file}",
            "{file} should have slide {n} twice in a row",
            "Make a copy of the {nth} slide right behind it, then save {file}",
            "The slide '{title}' is needed twice, duplicate it and save",
        ),
        HELD_OUT: (
            "Copy slide {n} of {file} to the place after it and save",
            "Put a second slide '{title}' behind the first one",
            "Double the {nth} slide of {file} and save it",
        ),
    }
}


def goal(random: Random, split: str) -> PresentationGoal:
    """What an instance of `split` asks for."""
    (stem, _), start = slides(random, split, random.choice((2, 3)))
    slide = random.randint(1, len(start))
    title = start[slide - 1][0]
    return PresentationGoal(
        kind="copy",
        instruction=random.choice(TEMPLATES["copy"][split]).format(
            n=slide, nth=ORDINALS[slide - 1], title=title, file=f"{stem}.odp"
        ),
        target=f"{stem}.odp",
        wanted=title,
        slides=start,
        finish=(*start[:slide], *start[slide - 1 :]),
        slide=slide,
    )


FAMILY = PRESENTATION.family("slides_copy", TEMPLATES, goal, {"gui": slides_order.by_gui, "api": slides_order.by_tools})
