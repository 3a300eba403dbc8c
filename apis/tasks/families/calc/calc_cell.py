"""Tasks on Calc: put a number or a word into a cell that is named, and save.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.guest.addresses import address
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import WORKBOOK, Cell, WorkbookGoal, fresh_numbers, fresh_word, put, table
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "number": {
        TRAIN: (
            "Set cell {cell} to '{value}' and save",
            "Type '{value}' into {cell} and save the sheet",
            "Cell {cell} of {file} should say '{value}'",
            "Write '{value}' in cell {cell} of {file}",
            "Put the value '{value}' into {cell}, then save {file}",
            "In {file}, {cell} must be '{value}'",
        ),
        HELD_OUT: (
            "Write the value '{value}' into cell {cell} and save",
            "Cell {cell} must say '{value}' in {file}",
            "Put '{value}' in {cell} of {file} and save it",
        ),
    },
    "word": {
        TRAIN: (
            "Set the text of cell {cell} to '{value}' and save",
            "Type the word '{value}' into {cell} and save the sheet",
            "The text in cell {cell} of {file} should be '{value}'",
            "Write the word '{value}' in cell {cell} of {file}",
            "Put the word '{value}' into {cell}, then save {file}",
            "In {file}, {cell} must say '{value}'",
        ),
        HELD_OUT: (
            "Write the text '{value}' into cell {cell} and save",
            "The word in {cell} must be '{value}', change {file}",
            "Put the text '{value}' in {cell} of {file} and save it",
        ),
    },
}


def goal(random: Random, split: str) -> WorkbookGoal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    columns, rows = random.choice((2, 3, 3)), random.choice((3, 4, 5))
    grid = table(random, split, columns, rows)
    stem, word = fresh_word(random, split, grid, 2)
    value: Cell = fresh_numbers(random, split, grid)[0] if kind == "number" else word
    row = random.randint(1, rows)  # the last is the empty one below
    column = random.randint(1, columns - 1) if kind == "number" else random.choice((0, 0, columns - 1))
    cell = address(row, column)
    return WorkbookGoal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(cell=cell, value=value, file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=str(value),
        grid=grid,
        writes=(put(cell, value),),
    )


FAMILY = WORKBOOK.family("calc_cell", TEMPLATES, goal, calc_oracle.ROUTES)
