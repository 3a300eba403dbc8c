"""How to copy, delete or move a slide: by the buttons and the menu for slides, or by Impress's function for copies.

Deleting and moving have no function, so a mixed way does these by mouse and keyboard and saves by function.

Invariant: it looks at the slides before every step, so it never copies or deletes twice. The oracle undoes what went
wrong. It saves only when the slides are the wanted ones.
"""

from __future__ import annotations

from apis.apps.catalogue import call
from apis.tasks.families.impress.slides_oracle import SAVING, blocked, current, goal_of, shown, told
from apis.tasks.oracle import click, keys
from apis.tasks.view import Decide, Move, View

BUTTONS = {"copy": "Duplicate Slide", "delete": "Delete Slide"}
ENTRIES = {"start": "Slide to Start", "end": "Slide to End"}
MENU, SUBMENU = "Slide", "Move"


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
