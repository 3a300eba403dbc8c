"""Tasks on Impress: delete a slide, or move one to another place, and save.

Impress has no function for either, so a mixed way does them by mouse and keyboard and saves by function.

Invariant: the two splits share no wording and, since words are split by their hash, no name and no value. The oracle
looks at the slides before every step, so it never copies or deletes twice. It undoes what went wrong, and saves only
when the slides are the wanted ones.
"""

from __future__ import annotations

from random import Random

from apis.catalogue import call
from apis.tasks.families.impress.common import ORDINALS, PRESENTATION, PresentationGoal, slides
from apis.tasks.families.impress.slides_oracle import SAVING, blocked, current, goal_of, shown, told
from apis.tasks.oracle import click, keys
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN

BUTTONS = {"copy": "Duplicate Slide", "delete": "Delete Slide"}
ENTRIES = {"start": "Slide to Start", "end": "Slide to End"}
MENU, SUBMENU = "Slide", "Move"
TEMPLATES = {
    "delete": {
        TRAIN: (
            "Delete slide {n} and save",
            "Delete the slide '{title}' from {file}",
            "The {nth} slide of {file} is not needed, remove it",
            "Remove slide {n}, then save {file}",
            "{file} should not have the slide '{title}'",
        ),
        HELD_OUT: ("Take slide {n} out of {file} and save", "The slide '{title}' must go, delete it and save"),
    },
    "start": {
        TRAIN: (
            "Move slide {n} to the start and save",
            "The slide '{title}' should be the first of {file}",
            "Put the {nth} slide in front of all others, then save {file}",
        ),
        HELD_OUT: ("Make '{title}' the first slide and save", "Slide {n} of {file} belongs to the beginning, move it"),
    },
    "end": {
        TRAIN: (
            "Move slide {n} to the end and save",
            "The slide '{title}' should be the last of {file}",
            "Put the {nth} slide behind all others, then save {file}",
        ),
        HELD_OUT: ("Make '{title}' the last slide and save", "Slide {n} of {file} must come last, move it"),
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


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    return _by_hand(view, lambda view: SAVING.by_gui(view, view.route.random() < 0.3))


def by_hand_then_tool(view: View) -> Move:
    """The next move with mouse and keyboard, or to save by function."""
    return _by_hand(view, SAVING.by_tool)


def _by_hand(view: View, finish: Decide) -> Move:
    goal = goal_of(view)
    if move := _in_menu(view, ENTRIES.get(goal.kind, "")):
        return move
    if move := blocked(view):
        return move
    if told(view) == goal.finish:
        return finish(view)
    if told(view) != goal.slides:
        return keys("not what is wanted -> undo", "ctrl", "z")
    if move := shown(view, goal.slide):
        return move
    if goal.kind in BUTTONS:
        name = view.find("push-button", lambda e: e.name == BUTTONS[goal.kind])
        return keys("look again", "esc") if name is None else click(view, name, f"{goal.kind} slide {goal.slide}")
    menu = view.find("menu", lambda e: e.name == MENU)
    return keys("look again", "esc") if menu is None else click(view, menu, f"{goal.wanted} to the {goal.kind}")


def _in_menu(view: View, entry: str) -> Move | None:
    """The next move in the open menu for slides; None where it is not open, or nothing is to be done there."""
    goal = goal_of(view)
    if not entry or told(view) != goal.slides or current(view) != goal.slide:
        return None
    if found := view.labelled("menu-item", entry):
        return click(view, found)
    below = view.find("menu", lambda e: e.name == SUBMENU)
    return click(view, below) if below and view.find("menu-item", lambda e: True) else None


def by_tools(view: View) -> Move:
    """The next move with Impress's functions."""
    goal = goal_of(view)
    if move := blocked(view):
        return move
    if told(view) == goal.finish:
        return SAVING.by_tool(view)
    if told(view) != goal.slides:
        return keys("not what is wanted -> undo", "ctrl", "z")
    return f"slide {goal.slide} -> copy", call("ImpressTools", "duplicate_slide", slide_index=goal.slide)


FAMILY = PRESENTATION.family("slides_order", TEMPLATES, goal, {"gui": by_gui, "mixed": by_hand_then_tool})
