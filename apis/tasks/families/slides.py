"""Tasks on Impress: a slide's title, line or box, a copy of a slide, another's title, deleting or moving a slide.

Impress has no function for deleting or moving, so a mixed way does them by mouse and keyboard and saves by function.
"""

from __future__ import annotations

from random import Random

from apis.catalogue import call
from apis.tasks.families import kind_of, presentations, worded
from apis.tasks.families.presentations import (
    ORDINALS,
    OUTLINE,
    PRESENTATION,
    SAVING,
    TITLE,
    PresentationGoal,
    blocked,
    current,
    goal_of,
    listed,
    shown,
    slides,
    written,
)
from apis.tasks.oracle import click, keys
from apis.tasks.view import Decide, Move, View


def _slides_text(random: Random, split: str) -> PresentationGoal:
    kind = kind_of(random, "slides_text")
    (stem, new), start = slides(random, split, random.choice((2, 3)))
    slide = random.randint(1, len(start) if kind == "title" else 2)  # by mouse and keyboard the others take more steps
    box = {"title": 0, "line": 1}.get(kind, random.choice((0, 1)))
    lines = start[slide - 1][box].split("\n")
    at = random.randrange(len(lines))
    text = "" if kind == "clear" else "\n".join((*lines[:at], new, *lines[at + 1 :]))
    return PresentationGoal(
        kind=kind,
        instruction=worded(
            random,
            "slides_text",
            kind,
            split,
            n=slide,
            nth=ORDINALS[slide - 1],
            new=new,
            old=lines[at],
            file=f"{stem}.odp",
            box=(TITLE, OUTLINE)[box],
        ),
        target=f"{stem}.odp",
        wanted="" if kind == "clear" else new,
        slides=start,
        finish=written(start, slide, box, text),
        slide=slide,
    )


SLIDES_TEXT = PRESENTATION.family("slides_text", _slides_text, presentations.ROUTES)


def _slides_copy(random: Random, split: str) -> PresentationGoal:
    (stem, _), start = slides(random, split, random.choice((2, 3)))
    slide = random.randint(1, len(start))
    title = start[slide - 1][0]
    return PresentationGoal(
        kind="copy",
        instruction=worded(
            random, "slides_copy", "copy", split, n=slide, nth=ORDINALS[slide - 1], title=title, file=f"{stem}.odp"
        ),
        target=f"{stem}.odp",
        wanted=title,
        slides=start,
        finish=(*start[:slide], *start[slide - 1 :]),
        slide=slide,
    )


def _slides_same(random: Random, split: str) -> PresentationGoal:
    (stem, _), start = slides(random, split, random.choice((2, 3)))
    slide, other = random.sample(range(1, len(start) + 1), 2)
    old, title = start[slide - 1][0], start[other - 1][0]
    return PresentationGoal(
        kind="title",
        instruction=worded(
            random,
            "slides_same",
            "title",
            split,
            n=slide,
            nth=ORDINALS[slide - 1],
            other=other,
            other_nth=ORDINALS[other - 1],
            old=old,
            file=f"{stem}.odp",
        ),
        target=f"{stem}.odp",
        wanted=title,
        slides=start,
        finish=written(start, slide, 0, title),
        slide=slide,
    )


SLIDES_SAME = PRESENTATION.family("slides_same", _slides_same, presentations.ROUTES)


BUTTONS = {"copy": "Duplicate Slide", "delete": "Delete Slide"}
ENTRIES = {"start": "Slide to Start", "end": "Slide to End"}
MENU, SUBMENU = "Slide", "Move"


def _slides_order(random: Random, split: str) -> PresentationGoal:
    kind = kind_of(random, "slides_order")
    (stem, _), start = slides(random, split, random.choice((3, 4)))
    # By the menu a move takes three clicks, so only slides near the first are moved.
    slide = {"delete": random.randint(1, min(4, len(start))), "start": 2, "end": random.choice((1, 2))}[kind]
    moved, others = start[slide - 1], (*start[: slide - 1], *start[slide:])
    finish = {"delete": others, "start": (moved, *others), "end": (*others, moved)}[kind]
    return PresentationGoal(
        kind=kind,
        instruction=worded(
            random, "slides_order", kind, split, n=slide, nth=ORDINALS[slide - 1], title=moved[0], file=f"{stem}.odp"
        ),
        target=f"{stem}.odp",
        wanted=moved[0],
        slides=start,
        finish=finish,
        slide=slide,
    )


def _order_by_gui(view: View) -> Move:
    return _by_hand(view, lambda view: SAVING.by_gui(view, view.route.random() < 0.3))


def _by_hand_then_tool(view: View) -> Move:
    return _by_hand(view, SAVING.by_tool)


def _by_hand(view: View, finish: Decide) -> Move:
    goal = goal_of(view)
    if move := _in_menu(view, ENTRIES.get(goal.kind, "")):
        return move
    if move := blocked(view):
        return move
    if listed(view) == goal.finish:
        return finish(view)
    if listed(view) != goal.slides:
        return keys("not what is wanted -> undo", "ctrl", "z")
    if move := shown(view, goal.slide):
        return move
    if goal.kind in BUTTONS:
        name = view.find("push-button", lambda e: e.name == BUTTONS[goal.kind])
        return keys("look again", "esc") if name is None else click(view, name, f"{goal.kind} slide {goal.slide}")
    menu = view.find("menu", lambda e: e.name == MENU)
    return keys("look again", "esc") if menu is None else click(view, menu, f"{goal.wanted} to the {goal.kind}")


def _in_menu(view: View, entry: str) -> Move | None:
    goal = goal_of(view)
    if not entry or listed(view) != goal.slides or current(view) != goal.slide:
        return None
    if found := view.labelled("menu-item", entry):
        return click(view, found)
    below = view.find("menu", lambda e: e.name == SUBMENU)
    return click(view, below) if below and view.find("menu-item", lambda e: True) else None


def _order_by_tools(view: View) -> Move:
    goal = goal_of(view)
    if move := blocked(view):
        return move
    if listed(view) == goal.finish:
        return SAVING.by_tool(view)
    if listed(view) != goal.slides:
        return keys("not what is wanted -> undo", "ctrl", "z")
    return f"slide {goal.slide} -> copy", call("ImpressTools", "duplicate_slide", slide_index=goal.slide)


SLIDES_ORDER = PRESENTATION.family("slides_order", _slides_order, {"gui": _order_by_gui, "mixed": _by_hand_then_tool})
SLIDES_COPY = PRESENTATION.family("slides_copy", _slides_copy, {"gui": _order_by_gui, "api": _order_by_tools})

FAMILIES = (SLIDES_TEXT, SLIDES_COPY, SLIDES_ORDER, SLIDES_SAME)
