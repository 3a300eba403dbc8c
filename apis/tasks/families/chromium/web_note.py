"""Tasks on two applications: a page in Chromium shows a table. One number of it shall be all that a file says.

Invariant: the number stands on the page only. A task is solved only if Documents holds the file with that number and
the page as it was. The splits share no wording, name or number.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from random import Random

from apis.actions.gui import Exit, Quote, Type, Wait
from apis.tasks.families.calc.common import Grid, table
from apis.tasks.families.chromium import web
from apis.tasks.families.editor.text_editor import UNSAVED
from apis.tasks.families.note import EDITOR, noted
from apis.tasks.family import DOCUMENTS, ITS_END, Family, end_of, ends_so, setup
from apis.tasks.goal import Goal
from apis.tasks.oracle import keys, pointed, switch
from apis.tasks.osworld import Step
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TEMPLATES = {
    "value": {
        TRAIN: (
            "Write the '{column}' of '{item}' that the page shows into {file}, in place of its text",
            "The page in Chromium says the '{column}' of '{item}', {file} should say only that",
            "Replace the text of {file} with the '{column}' of '{item}' from the page",
            "Look up the '{column}' of '{item}' on the open page and make it the whole text of {file}",
            "{file} should hold nothing but the '{column}' of '{item}', the page has it",
        ),
        HELD_OUT: (
            "Find the '{column}' of '{item}' on the page and write it into {file} instead of the old text",
            "The text of {file} should be the '{column}' that the page gives for '{item}'",
            "Make {file} say just the '{column}' of '{item}', as the page in the browser has it",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    grid = table(random, split, random.choice((2, 2, 3)), random.choice((3, 4)))
    row, column = random.randint(1, len(grid) - 1), random.randint(1, len(grid[0]) - 1)
    title, name, stem, old = words(random, split, 4)
    item, asked, value = str(grid[row][0]), str(grid[0][column]), str(grid[row][column])
    file, shown = text_file(random, stem), f"{name}.html"
    page = web.page(title.capitalize(), _table(grid))
    return Goal(
        kind="value",
        instruction=random.choice(TEMPLATES["value"][split]).format(column=asked, item=item, file=file),
        target=file,
        wanted=value,
        files=((file, f"{old}\n"), (shown, page)),
        end=((file, f"{value}\n"), (shown, page)),
        words=(item, title, name, *(str(cell) for each in grid for cell in each)),
        front=web.CHROME,
    )


def _table(grid: Grid) -> str:
    head, *body = grid
    rows = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}' for cell in row)}" for row in body)
    return f"<table><tr>{''.join(f'<th>{escape(str(name))}' for name in head)}{rows}</table>"


def config(made: Goal) -> list[Step]:
    """The note is open in the editor, and the page in front of it."""
    note, page = made.files
    return [
        *setup(replace(made, files=(note,)), f"{DOCUMENTS}/{made.target}"),
        *web.show([page], made.words[1].capitalize()),
    ]


def values(made: Goal) -> set[str]:
    """The words and numbers that an instance is made of."""
    return {*made.words, made.target.partition(".")[0], made.files[0][1].strip()}


def decide(view: View) -> Move:
    """The next move of its oracle."""
    goal = view.goal
    if noted(view, goal.wanted):
        if view.observation.app != EDITOR:
            return switch(view, EDITOR)
        return _write(view)
    if view.observation.app != web.CHROME:
        return switch(view, web.CHROME)
    if view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    cell = view.find("table-cell", lambda element: element.label == goal.wanted)
    if cell is None:
        return "wait for the page", Wait()
    return pointed(view, cell, f"{goal.words[0]}, keep"), Quote(content=goal.wanted)


def _write(view: View) -> Move:
    """Have the number as the whole text, and save it."""
    field, wanted = view.field(), view.goal.wanted
    if field is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if view.elements[field].text.rstrip("\n") != wanted:
        return pointed(view, field, wanted), Type(coordinates=field, text=wanted, overwrite=True)
    if view.title.startswith(UNSAVED):
        return keys("save", "ctrl", "s")
    return "saved -> done", Exit(success=True)


FAMILY = Family(
    "web_note", (web.CHROME, EDITOR), goal, config, ends_so, end_of, {"gui": decide}, TEMPLATES, values, may=ITS_END
)
