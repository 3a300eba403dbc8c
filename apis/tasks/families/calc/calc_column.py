"""Tasks on Calc that are never trained on: fill an empty column of a table with given values, and save.

Invariant: only the held-out split exists, and its words and numbers are split by their hash.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Type
from apis.catalogue import call
from apis.guest.addresses import address
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import WORKBOOK, Cell, WorkbookGoal, fresh_numbers, fresh_word, put, table
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "fill": {
        TRAIN: (),
        HELD_OUT: (
            "Fill column {letter}: the name '{name}' on top, below it {values}, and save",
            "Below '{name}' in column {letter} of {file} there should stand {values}, fill in the column with its name",
            "Add the column '{name}' as column {letter} of {file}, with the values {values}",
        ),
    }
}


def goal(random: Random, split: str) -> WorkbookGoal:
    """What an instance of `split` asks for."""
    columns, rows = random.choice((2, 2, 3)), random.choice((3, 3, 4))
    grid = table(random, split, columns, rows)
    stem, name = fresh_word(random, split, grid, 2)
    values = fresh_numbers(random, split, grid, rows - 1)
    column: tuple[Cell, ...] = (name, *values)
    quoted = [f"'{value}'" for value in values]
    return WorkbookGoal(
        kind="fill",
        instruction=random.choice(TEMPLATES["fill"][split]).format(
            letter=address(0, columns)[0],
            name=name,
            values=f"{', '.join(quoted[:-1])} and {quoted[-1]}",
            file=f"{stem}.xlsx",
        ),
        target=f"{stem}.xlsx",
        wanted=name,
        grid=grid,
        writes=tuple(put(address(row, columns), value) for row, value in enumerate(column)),
    )


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


FAMILY = WORKBOOK.family("calc_column", TEMPLATES, goal, {"gui": by_gui, "api": by_tools})
