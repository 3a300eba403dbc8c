"""How to rename a sheet: by its menu and the dialog that it opens, or by Calc's function.

Invariant: it saves only after the name was confirmed. What a sheet is called is not among what a small model is shown,
so that is read from the steps taken.
"""

from __future__ import annotations

from apis.actions.gui import Type, line
from apis.apps.catalogue import call
from apis.tasks.families.calc import calc_oracle
from apis.tasks.oracles import Move, View, click, keys

DIALOG = "Rename Sheet"


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
