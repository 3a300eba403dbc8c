"""Tasks on Calc: give the sheet another name, and save.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families import calc_sheet_oracle
from apis.tasks.families.calc.common import SheetGoal, fresh_word, of_sheets, table
from apis.tasks.words import HELD_OUT, TRAIN

NAME = "calc_sheet"
TEMPLATES = {
    "rename": {
        TRAIN: (
            "Rename the sheet '{old}' to '{new}' and save",
            "Give the sheet '{old}' of {file} the name '{new}'",
            "The sheet of {file} should be called '{new}'",
            "Change the name of the sheet '{old}' to '{new}'",
            "Call the sheet in {file} '{new}' and save it",
            "The sheet '{old}' has the wrong name, it should be '{new}'",
        ),
        HELD_OUT: (
            "Change the name of the sheet from '{old}' to '{new}' and save",
            "The sheet '{old}' of {file} should have the name '{new}'",
            "Rename the sheet in {file}, call it '{new}'",
        ),
    }
}


def goal(random: Random, split: str) -> SheetGoal:
    """What an instance of `split` asks for."""
    grid = table(random, split, random.choice((2, 3)), random.choice((3, 4)))
    stem, old, new = fresh_word(random, split, grid, 3)
    return SheetGoal(
        family=NAME,
        kind="rename",
        instruction=random.choice(TEMPLATES["rename"][split]).format(old=old, new=new, file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=new,
        grid=grid,
        sheet=old,
        renamed=new,
    )


FAMILY = of_sheets(
    NAME,
    goal,
    routes={"gui": calc_sheet_oracle.by_gui, "api": calc_sheet_oracle.by_tools},
    templates=TEMPLATES,
)
