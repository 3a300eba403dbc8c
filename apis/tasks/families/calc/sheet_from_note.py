"""Tasks on two applications: a note open in the text editor names an item and a number, which a sheet shall hold.

Invariant: the number and the item stand in the note only. The two splits share no wording and, since words and numbers
are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Quote
from apis.guest.addresses import address
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import CALC, WORKBOOK, WorkbookGoal, fresh_numbers, fresh_word, put, table
from apis.tasks.families.note import EDITOR, noted
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "note": {
        TRAIN: (
            "Set the '{column}' in {file} as {note} says, and save",
            "{note} gives a new '{column}', change it in {file}",
            "Bring '{column}' in {file} up to date with the note {note}",
            "Look at {note} and enter the '{column}' it gives into {file}",
            "In {file}, change the '{column}' of the item that {note} names",
            "The note {note} says what '{column}' should be, enter it in {file}",
        ),
        HELD_OUT: (
            "The note {note} gives a '{column}', enter it into {file} and save",
            "Change the '{column}' in {file} to what {note} says",
            "Look at the note {note}, then set the '{column}' of its item in {file}",
        ),
    }
}


def goal(random: Random, split: str) -> WorkbookGoal:
    """What an instance of `split` asks for."""
    columns, rows = random.choice((2, 2, 3)), random.choice((3, 4))
    grid = table(random, split, columns, rows)
    stem, note = fresh_word(random, split, grid, 2)
    value = fresh_numbers(random, split, grid)[0]
    row, column = random.randint(1, rows - 1), random.randint(1, columns - 1)
    item, named = grid[row][0], grid[0][column]
    return WorkbookGoal(
        kind="note",
        instruction=random.choice(TEMPLATES["note"][split]).format(
            column=named, note=f"{note}.txt", file=f"{stem}.xlsx"
        ),
        target=f"{stem}.xlsx",
        wanted=f"{item} {value}",
        files=((f"{note}.txt", f"{item} {value}\n"),),
        grid=grid,
        writes=(put(address(row, column), value),),
        evidence=f"{item} {address(row, 0)}, {named} {address(0, column)}",
    )


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    return _then(view, calc_oracle.by_gui)


def by_tools(view: View) -> Move:
    """The next move with Calc's functions where Calc has them."""
    return _then(view, calc_oracle.by_tools)


def _then(view: View, enter: Decide) -> Move:
    if noted(view, view.goal.wanted):
        return enter(view)
    move = calc_oracle.to_window(view, EDITOR) if view.observation.app != EDITOR else None
    return move or ("the note -> keep it", Quote(content=view.goal.wanted))


FAMILY = WORKBOOK.family(
    "sheet_from_note",
    TEMPLATES,
    goal,
    {"gui": by_gui, "api": by_tools},
    apps=(CALC, EDITOR),
    opened=lambda made: (made.target, made.files[0][0]),
)
