"""Tasks on Calc: change a column in the row of an item, and save. The instruction names both, but not the cell.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.guest.addresses import address
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import WORKBOOK, WorkbookGoal, fresh_numbers, fresh_word, put, table
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "change": {
        TRAIN: (
            "Change the '{column}' of '{item}' to '{value}' and save",
            "The '{column}' of '{item}' is wrong in {file}, it should be '{value}'",
            "For '{item}', set '{column}' to '{value}'",
            "Set the '{column}' of '{item}' to '{value}' in {file}",
            "In the row of '{item}', change '{column}' to '{value}' and save {file}",
            "'{item}' should have the '{column}' '{value}', change it",
        ),
        HELD_OUT: (
            "The '{column}' of '{item}' should be '{value}', change {file}",
            "Set '{column}' in the row of '{item}' to '{value}' and save",
            "In {file}, change '{column}' to '{value}' for '{item}'",
        ),
    }
}


def goal(random: Random, split: str) -> WorkbookGoal:
    """What an instance of `split` asks for."""
    columns, rows = random.choice((2, 3, 3, 4)), random.choice((3, 4, 5))
    grid = table(random, split, columns, rows)
    stem = fresh_word(random, split, grid)[0]
    value = fresh_numbers(random, split, grid)[0]
    row, column = random.randint(1, rows - 1), random.randint(1, columns - 1)
    item, named = grid[row][0], grid[0][column]
    return WorkbookGoal(
        kind="change",
        instruction=random.choice(TEMPLATES["change"][split]).format(
            item=item, column=named, value=value, file=f"{stem}.xlsx"
        ),
        target=f"{stem}.xlsx",
        wanted=str(value),
        grid=grid,
        writes=(put(address(row, column), value),),
        evidence=f"{item} {address(row, 0)}, {named} {address(0, column)}",
    )


FAMILY = WORKBOOK.family("calc_lookup", TEMPLATES, goal, calc_oracle.ROUTES)
