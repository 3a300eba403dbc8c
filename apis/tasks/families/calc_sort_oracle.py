"""How to sort the rows of a table: go into the column, then press the button of the tool bar.

Invariant: the button is pressed only while the current cell lies in the right column and the rows are as they were;
in any other state it undoes.
"""

from __future__ import annotations

from apis.actions import Click, Hotkey
from apis.tasks.demonstrator import Move, View, click
from apis.tasks.families import calc_oracle
from apis.tasks.workbook import address

BUTTONS = {"up": "Sort Ascending", "down": "Sort Descending"}
_UNDO = Hotkey(keys=("ctrl", "z"))


def by_gui(view: View) -> Move:
    """The next move."""
    goal, now = calc_oracle.goal_of(view), calc_oracle.shown(view)
    named_first = view.route.random() < 0.3
    button = view.labelled("push-button", BUTTONS[goal.kind])
    if not now or button is None or not calc_oracle.wrong(view):
        return calc_oracle.by_gui(view)
    if not calc_oracle.untouched(view):
        return calc_oracle.by_gui(view) if view.did(_UNDO) else ("something else changed -> undo", _UNDO)
    column = address(0, goal.grid[0].index(goal.wanted))[0]
    current = view.find("table-cell", lambda e: "foc" in e.states and e.name in goal.start and e.name[0] == column)
    if current is not None:
        return click(view, button)
    cell = view.find("table-cell", lambda e: e.name == f"{column}{1 if named_first else 2}")
    if cell is None:
        return calc_oracle.by_gui(view)
    return f"{goal.wanted} {column}1 -> {cell} column {column}", Click(coordinates=cell)
