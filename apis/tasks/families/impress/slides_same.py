"""Tasks on Impress that are never trained on: a slide shall have the title of another one. What that is has to be read.

Invariant: only the held-out split exists, its words are split by their hash, and the title stands in no instruction.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.impress import slides_oracle
from apis.tasks.families.impress.common import ORDINALS, PRESENTATION, PresentationGoal, slides, written
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "title": {
        TRAIN: (),
        HELD_OUT: (
            "Slide {n}, '{old}', should have the same title as slide {other}, write it there and save {file}",
            "Copy the title of slide {other} to the title of slide {n} in {file}",
            "The {nth} slide of {file} must be titled like the {other_nth} one",
        ),
    }
}


def goal(random: Random, split: str) -> PresentationGoal:
    """What an instance of `split` asks for."""
    (stem, _), start = slides(random, split, random.choice((2, 3)))
    slide, other = random.sample(range(1, len(start) + 1), 2)
    old, title = start[slide - 1][0], start[other - 1][0]
    return PresentationGoal(
        kind="title",
        instruction=random.choice(TEMPLATES["title"][split]).format(
            n=slide, nth=ORDINALS[slide - 1], other=other, other_nth=ORDINALS[other - 1], old=old, file=f"{stem}.odp"
        ),
        target=f"{stem}.odp",
        wanted=title,
        slides=start,
        finish=written(start, slide, 0, title),
        slide=slide,
    )


FAMILY = PRESENTATION.family("slides_same", TEMPLATES, goal, slides_oracle.ROUTES)
