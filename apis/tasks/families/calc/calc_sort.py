"""Tasks on Calc: sort the rows of a table by one of its columns, and save.

The published function sorts a single column and leaves the others as they are. The oracle by functions writes the
others again.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value.
At the start the rows are never in the order that is asked for.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Click, Hotkey
from apis.catalogue import call
from apis.guest.addresses import address, column_of
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import WORKBOOK, Cell, WorkbookGoal, fresh_word, put, table
from apis.tasks.oracle import click
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN

BUTTONS = {"up": "Sort Ascending", "down": "Sort Descending"}
_UNDO = Hotkey(keys=("ctrl", "z"))
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


def goal(random: Random, split: str) -> WorkbookGoal:
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
    return WorkbookGoal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(column=grid[0][column], file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=str(grid[0][column]),
        grid=grid,
        writes=changed,
    )


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


def _key(goal: WorkbookGoal) -> str:
    """The letter of the column that is sorted by."""
    return address(0, goal.grid[0].index(goal.wanted))[0]


def _column(goal: WorkbookGoal, letter: str) -> list[Cell]:
    """The values of a column below its name, in the end."""
    changed = {write.cell: write.value for write in goal.writes}
    at = column_of(letter)
    assert at is not None
    return [changed.get(address(row, at), values[at]) for row, values in enumerate(goal.grid) if row]


FAMILY = WORKBOOK.family("calc_sort", TEMPLATES, goal, {"gui": by_gui, "api": by_tools, "mixed": mixed})
