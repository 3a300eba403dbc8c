"""Tasks on Calc: put the total of a column, as a formula, into the cell below it, and save.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value.
The totals belong to the split, too. A number typed in place of the formula is no solution.
"""

from __future__ import annotations

from random import Random

from apis.guest.addresses import address
from apis.tasks import numbers
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import WORKBOOK, WorkbookGoal, Write, fresh_word, table
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "total": {
        TRAIN: (
            "Put the total of '{column}' below it, with a formula, and save",
            "Add up the column '{column}' in {file}, the formula goes below the last number",
            "Below the numbers of '{column}', write a formula for their sum",
            "Sum the '{column}' of {file} with a formula in the cell under the column",
            "The total of '{column}' is missing under it, add it with a formula and save {file}",
            "Write the sum of '{column}' under its last number, as a formula",
        ),
        HELD_OUT: (
            "Add the total of '{column}' under its last number with a formula and save",
            "Sum the column '{column}' of {file}, with a formula below it",
            "A formula for the sum of '{column}' is missing below it in {file}, write it",
        ),
    }
}


def goal(random: Random, split: str) -> WorkbookGoal:
    """What an instance of `split` asks for."""
    columns, rows = random.choice((2, 3, 3)), random.choice((4, 5, 6))
    column = random.randint(1, columns - 1)
    while True:
        grid = table(random, split, columns, rows)
        total = sum(value for row in grid[1:] if isinstance(value := row[column], int))
        if numbers.split_of(total) == split:
            break
    stem = fresh_word(random, split, grid)[0]
    cells = f"{address(1, column)}:{address(rows - 1, column)}"
    return WorkbookGoal(
        kind="total",
        instruction=random.choice(TEMPLATES["total"][split]).format(column=grid[0][column], file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=str(total),
        grid=grid,
        writes=(Write(address(rows, column), f"=SUM({cells})", total, cells),),
        evidence=f"{grid[0][column]} {address(0, column)}, last {grid[-1][column]} {address(rows - 1, column)}",
    )


FAMILY = WORKBOOK.family("calc_sum", TEMPLATES, goal, calc_oracle.ROUTES)
