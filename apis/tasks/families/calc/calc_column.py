"""Tasks on Calc that are never trained on: fill an empty column of a table with given values, and save.

Invariant: only the held-out split exists, and its words and numbers are split by their hash.
"""

from __future__ import annotations

from random import Random

from apis.guest.addresses import address
from apis.tasks.families import calc_column_oracle
from apis.tasks.families.calc.common import Cell, SheetGoal, fresh_numbers, fresh_word, of_sheets, put, table
from apis.tasks.words import HELD_OUT, TRAIN

NAME = "calc_column"
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


def goal(random: Random, split: str) -> SheetGoal:
    """What an instance of `split` asks for."""
    columns, rows = random.choice((2, 2, 3)), random.choice((3, 3, 4))
    grid = table(random, split, columns, rows)
    stem, name = fresh_word(random, split, grid, 2)
    values = fresh_numbers(random, split, grid, rows - 1)
    column: tuple[Cell, ...] = (name, *values)
    quoted = [f"'{value}'" for value in values]
    return SheetGoal(
        family=NAME,
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


FAMILY = of_sheets(
    NAME,
    goal,
    routes={"gui": calc_column_oracle.by_gui, "api": calc_column_oracle.by_tools},
    templates=TEMPLATES,
    trained=False,
)
