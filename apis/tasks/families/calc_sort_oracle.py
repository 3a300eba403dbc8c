"""How to sort the rows of a table: go into the column, then press the button; or write each column anew.

Invariant: the button is pressed only while the current cell lies in the right column and the rows are as they were;
in any other state the GUI's oracle undoes. By functions the column that is sorted by comes last, for until then the
other columns' values can be told from it.
"""

from __future__ import annotations

from apis.actions.gui import Click, Hotkey
from apis.apps.catalogue import call
from apis.guest.addresses import address, column_of
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import Cell, SheetGoal
from apis.tasks.oracles import Move, View, click

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
    column = _key(goal)
    current = view.find("table-cell", lambda e: "foc" in e.states and e.name in goal.start and e.name[0] == column)
    if current is not None:
        return click(view, button)
    cell = view.find("table-cell", lambda e: e.name == f"{column}{1 if named_first else 2}")
    if cell is None:
        return calc_oracle.by_gui(view)
    return f"{goal.wanted} {column}1 -> {cell} column {column}", Click(coordinates=cell)


def by_tools(view: View) -> Move:
    """The next move with Calc's functions: the function that sorts does so to one column only."""
    goal = calc_oracle.goal_of(view)
    letters = [write.cell[0] for write in calc_oracle.wrong(view) if write in goal.writes]
    if calc_oracle.obstacle(view) or not letters:
        return calc_oracle.by_tools(view)
    key = _key(goal)
    letter = next((each for each in letters if each != key), key)
    values, now = _column(goal, letter), calc_oracle.shown(view)
    there = [now.get(f"{letter}{row}", "") for row in range(2, len(goal.grid) + 1)]
    if letter == key and sorted(there) == sorted(map(str, values)):
        sort = call("CalcTools", "sort_column", column_name=key, ascending=goal.kind == "up", start_index=2)
        return f"{goal.wanted} {key}1 -> sort column {key}", sort
    fill = call("CalcTools", "set_column_values", column_name=letter, data=values, start_index=2)
    return f"{goal.wanted} {key}1 -> column {letter} in its order", fill


def mixed(view: View) -> Move:
    """The next move by either: the button while the rows are as they were, a change begun by functions by functions."""
    by_button = view.route.random() < 0.5
    finished = not calc_oracle.wrong(view)
    return by_gui(view) if by_button and (finished or calc_oracle.untouched(view)) else by_tools(view)


def _key(goal: SheetGoal) -> str:
    """The letter of the column that is sorted by."""
    return address(0, goal.grid[0].index(goal.wanted))[0]


def _column(goal: SheetGoal, letter: str) -> list[Cell]:
    """The values of a column below its name, in the end."""
    changed = {write.cell: write.value for write in goal.writes}
    at = column_of(letter)
    assert at is not None
    return [changed.get(address(row, at), values[at]) for row, values in enumerate(goal.grid) if row]
