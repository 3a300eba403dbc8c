"""How to fill a column: all its values in one go from its first cell downwards; what is then still wrong, cell by cell.

Invariant: that of the oracle for single cells, which has the last word.
"""

from __future__ import annotations

from apis.actions.gui import Type
from apis.apps.catalogue import call
from apis.tasks.families.calc import calc_oracle
from apis.tasks.oracles import Move, View


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard: Enter goes down to the next cell."""
    goal = calc_oracle.goal_of(view)
    first = view.find("table-cell", lambda e: e.name == goal.writes[0].cell)
    if first is None or calc_oracle.wrong(view) != list(goal.writes):
        return calc_oracle.by_gui(view)
    text = "\n".join(write.text for write in goal.writes)
    return f"{first} table-cell {goal.writes[0].cell} -> fill down", Type(coordinates=first, text=text, enter=True)


def by_tools(view: View) -> Move:
    """The next move with Calc's functions."""
    goal = calc_oracle.goal_of(view)
    if calc_oracle.wrong(view) != list(goal.writes):
        return calc_oracle.by_tools(view)
    data = [write.value for write in goal.writes]
    column = goal.writes[0].cell[0]
    filled = call("CalcTools", "set_column_values", column_name=column, data=data, start_index=1)
    return f"column {column} from row 1 -> fill", filled
