"""Tasks on Calc: give the sheet another name, and save.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Type, line
from apis.catalogue import call
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import WORKBOOK, WorkbookGoal, fresh_word, table
from apis.tasks.oracle import click, keys
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN

DIALOG = "Rename Sheet"
TEMPLATES = {
    "rename": {
        TRAIN: (
            "Rename the sheet '{old}' to '{new}' and save",
            "Give the sheet '{old}' of {file} the name '{new}'",
            "The sheet of {file} should be called '{new}'",
            "Change the name of the sheet '{old}' to '{new}'",
            "Call the sheet in {file} '{new}' and save it",
            "The sheet '{old}' has the wrong name, it should be '{new}'",
        ),
        HELD_OUT: (
            "Change the name of the sheet from '{old}' to '{new}' and save",
            "The sheet '{old}' of {file} should have the name '{new}'",
            "Rename the sheet in {file}, call it '{new}'",
        ),
    }
}


def goal(random: Random, split: str) -> WorkbookGoal:
    """What an instance of `split` asks for."""
    grid = table(random, split, random.choice((2, 3)), random.choice((3, 4)))
    stem, old, new = fresh_word(random, split, grid, 3)
    return WorkbookGoal(
        kind="rename",
        instruction=random.choice(TEMPLATES["rename"][split]).format(old=old, new=new, file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=new,
        grid=grid,
        sheet=old,
        renamed=new,
    )


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    goal = calc_oracle.goal_of(view)
    if view.title == DIALOG:
        field = view.field()
        if field is None:
            return keys("close this", "esc")
        return f"{field} text -> {goal.renamed}", Type(coordinates=field, text=goal.renamed, overwrite=True, enter=True)
    if _named(view):
        return calc_oracle.by_gui(view)
    entry = view.find("menu-item", lambda e: e.label.startswith(DIALOG))
    if entry is not None:
        return click(view, entry)
    menu = view.labelled("menu", "Sheet")
    if menu is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    return click(view, menu, f"rename to {goal.renamed}")


def by_tools(view: View) -> Move:
    """The next move with Calc's functions."""
    goal = calc_oracle.goal_of(view)
    if view.title == DIALOG:  # opened by the other route: while it is open the function would rename beneath it
        return by_gui(view)
    if _named(view) or calc_oracle.to_calc(view):
        return calc_oracle.by_tools(view)
    renamed = call("CalcTools", "rename_sheet", old_name=goal.sheet, new_name=goal.renamed)
    return f"sheet {goal.sheet} -> {goal.renamed}", renamed


def _named(view: View) -> bool:
    """Whether the new name was given in one of the two ways."""
    new = calc_oracle.goal_of(view).renamed
    by_tool = line(call("CalcTools", "rename_sheet", old_name=calc_oracle.goal_of(view).sheet, new_name=new))
    typed = [turn.line or "" for turn in view.history]
    return by_tool in typed or any(f"text={new!r}" in one and "enter=True" in one for one in typed)


FAMILY = WORKBOOK.family("calc_sheet", TEMPLATES, goal, {"gui": by_gui, "api": by_tools})
