"""Tasks on Impress: give a slide another title, replace a line of its text, or empty a box, and save.

Invariant: the two splits share no wording and, since words are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.impress import slides_oracle
from apis.tasks.families.impress.common import ORDINALS, OUTLINE, PRESENTATION, TITLE, PresentationGoal, slides, written
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "title": {
        TRAIN: (
            "Set the title of slide {n} to '{new}' and save",
            "Slide {n} of {file} should have the title '{new}'",
            "Change the title of the {nth} slide to '{new}', then save {file}",
            "Call slide {n} '{new}' instead of '{old}' and save",
            "In {file}, the title '{old}' must be '{new}'",
        ),
        HELD_OUT: (
            "Give slide {n} the title '{new}' and save the slides",
            "The {nth} slide of {file} must be titled '{new}'",
            "Write '{new}' as the title of slide {n} in {file}",
        ),
    },
    "line": {
        TRAIN: (
            "On slide {n}, replace the line '{old}' by '{new}' and save",
            "The line '{old}' of slide {n} should be '{new}'",
            "Write '{new}' in place of '{old}' on the {nth} slide, then save {file}",
            "Change '{old}' to '{new}' in the text of slide {n} of {file}",
        ),
        HELD_OUT: (
            "In the text of slide {n}, put '{new}' where it says '{old}' and save it",
            "Slide {n} of {file} says '{old}', it must say '{new}'",
        ),
    },
    "clear": {
        TRAIN: (
            "Empty the {box} of slide {n} and save",
            "Remove the {box} text from the {nth} slide of {file}",
            "The {box} of slide {n} should be empty, save {file}",
            "Delete what the {box} of slide {n} says and save",
        ),
        HELD_OUT: (
            "Clear the {box} of slide {n} in {file}",
            "Nothing should stand in the {box} of the {nth} slide, save it",
        ),
    },
}


def goal(random: Random, split: str) -> PresentationGoal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    (stem, new), start = slides(random, split, random.choice((2, 3)))
    slide = random.randint(1, len(start) if kind == "title" else 2)  # by mouse and keyboard the others take more steps
    box = {"title": 0, "line": 1}.get(kind, random.choice((0, 1)))
    lines = start[slide - 1][box].split("\n")
    at = random.randrange(len(lines))
    text = "" if kind == "clear" else "\n".join((*lines[:at], new, *lines[at + 1 :]))
    return PresentationGoal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(
            n=slide, nth=ORDINALS[slide - 1], new=new, old=lines[at], file=f"{stem}.odp", box=(TITLE, OUTLINE)[box]
        ),
        target=f"{stem}.odp",
        wanted="" if kind == "clear" else new,
        slides=start,
        finish=written(start, slide, box, text),
        slide=slide,
    )


FAMILY = PRESENTATION.family("slides_text", TEMPLATES, goal, slides_oracle.ROUTES)
