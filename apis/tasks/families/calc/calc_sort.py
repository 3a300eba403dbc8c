"""Tasks on Calc: sort the rows of a table by one of its columns, and save.

The published function that sorts a column leaves the others as they are: by functions those are written anew.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value;
at the start the rows are never in the order that is asked for.
"""

from __future__ import annotations

from random import Random

from apis.guest.addresses import address
from apis.tasks.families import calc_sort_oracle
from apis.tasks.families.calc.common import SheetGoal, fresh_word, of_sheets, put, table
from apis.tasks.words import HELD_OUT, TRAIN

NAME = "calc_sort"
TEMPLATES = {
    "up": {
        TRAIN: (
            "Sort the rows by '{column}', the smallest on top, and save",
            "Sort {file} by '{column}', ascending",
            "Put the rows of {file} in ascending order of '{column}'",
            "The rows of {file} should begin with the smallest '{column}', sort them",
            "Order the rows by '{column}' from small to large and save {file}",
            "Rows with a smaller '{column}' should come first, sort {file}",
        ),
        HELD_OUT: (
            "Sort the rows of {file} by '{column}', the smallest first",
            "Put the rows in ascending order of '{column}' and save {file}",
            "Order {file} by '{column}' from small to large",
        ),
    },
    "down": {
        TRAIN: (
            "Sort the rows by '{column}', the largest on top, and save",
            "Sort {file} by '{column}', descending",
            "Put the rows of {file} in descending order of '{column}'",
            "The rows of {file} should begin with the largest '{column}', sort them",
            "Order the rows by '{column}' from large to small and save {file}",
            "Rows with a larger '{column}' should come first, sort {file}",
        ),
        HELD_OUT: (
            "Sort the rows of {file} by '{column}', the largest first",
            "Put the rows in descending order of '{column}' and save {file}",
            "Order {file} by '{column}' from large to small",
        ),
    },
}


def goal(random: Random, split: str) -> SheetGoal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    columns, rows = random.choice((2, 3, 3)), random.choice((4, 5, 6))
    column = random.randint(1, columns - 1)
    while True:
        grid = table(random, split, columns, rows)
        ordered = sorted(grid[1:], key=lambda row: row[column], reverse=kind == "down")
        if ordered != list(grid[1:]):
            break
    stem = fresh_word(random, split, grid)[0]
    changed = tuple(
        put(address(row, at), value)
        for row, values in enumerate(ordered, 1)
        for at, value in enumerate(values)
        if grid[row][at] != value
    )
    return SheetGoal(
        family=NAME,
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(column=grid[0][column], file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=str(grid[0][column]),
        grid=grid,
        writes=changed,
    )


FAMILY = of_sheets(
    NAME,
    goal,
    routes={"gui": calc_sort_oracle.by_gui, "api": calc_sort_oracle.by_tools, "mixed": calc_sort_oracle.mixed},
    templates=TEMPLATES,
)
