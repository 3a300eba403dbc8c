"""What families of spreadsheet tasks have in common: a small table in a workbook, and cells that shall change.

Invariant: a task is judged on every cell of its workbook, so whoever changes anything else has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from apis.documents.xlsx import MIME, cells, make_xlsx
from apis.tasks.data_url import data_url
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Files, Templates, all_of, in_osworld_form, setup, words_of
from apis.tasks.goal import Goal
from apis.tasks.numbers import numbers
from apis.tasks.osworld import Download, DownloadParameters, Source, Step, Task
from apis.tasks.verify.verify import FileView, Sheet, Workbook
from apis.tasks.view import Decide
from apis.tasks.words import words

CALC = "libreoffice_calc"
SHEET = "Sheet1"  # what a sheet is called that nobody has named

Cell = str | int
Grid = tuple[tuple[Cell, ...], ...]  # the first row holds the columns' names, the first column the items


@dataclass(frozen=True)
class Write:
    """A change of one cell: what is typed, what the cell says then, and for a formula the cells it refers to."""

    cell: str
    text: str
    value: Cell
    refers: str = ""


@dataclass(frozen=True)
class SheetGoal(Goal):
    """What an instance asks for; `target` is the workbook's file."""

    grid: Grid = ()
    writes: tuple[Write, ...] = ()
    sheet: str = SHEET  # its name at the start
    renamed: str = ""  # and in the end, when that is another
    evidence: str = ""  # where the table tells what to do: the beginning of the oracles' thoughts

    @property
    def start(self) -> dict[str, str | float | bool]:
        """The cells at the start, by name."""
        return cells(self.grid)

    @property
    def finish(self) -> dict[str, str | float | bool]:
        """The cells in the end."""
        return self.start | {write.cell: _stored(write.value) for write in self.writes}


def put(cell: str, value: Cell) -> Write:
    """The change that makes `cell` say `value`."""
    return Write(cell, str(value), value)


def table(random: Random, split: str, columns: int, rows: int) -> Grid:
    """A table of `columns` and `rows`, its names included: items in the first column, numbers in the others."""
    drawn = words(random, split, columns + rows - 1)
    values = numbers(random, split, (columns - 1) * (rows - 1))
    wide = columns - 1
    body: list[tuple[Cell, ...]] = [
        (item, *values[at * wide : (at + 1) * wide]) for at, item in enumerate(drawn[columns:])
    ]
    return (tuple(drawn[:columns]), *body)


def fresh_word(random: Random, split: str, grid: Grid, count: int = 1) -> list[str]:
    """Words that no text of `grid` begins and that begin none, so that nothing completes them while they are typed."""
    held = [value for row in grid for value in row if isinstance(value, str)]
    found: list[str] = []
    while len(found) < count:
        new = words(random, split, 1)[0]
        if not any(new.startswith(old) or old.startswith(new) for old in (*held, *found)):
            found.append(new)
    return found


def fresh_numbers(random: Random, split: str, grid: Grid, count: int = 1) -> list[int]:
    """Numbers that `grid` does not hold."""
    held = {value for row in grid for value in row}
    return [value for value in numbers(random, split, count + len(held)) if value not in held][:count]


def of_sheets(
    name: str,
    goal: Callable[[Random, str], SheetGoal],
    *,
    routes: Mapping[str, Decide],
    templates: Templates,
    trained: bool = True,
    apps: tuple[str, ...] = (CALC,),
    opened: Callable[[SheetGoal], Sequence[str]] = lambda made: (made.target,),
) -> Family:
    """A family that is done when the workbook says what its goal wants; of `opened`, the last is in front."""

    def task(task_id: str, made: SheetGoal) -> Task:
        config: list[Step] = [workbook_step(made)]
        config += setup(made, *(f"{DOCUMENTS}/{path}" for path in opened(made)))
        kept = [("file_text_is", path, _rule(text)) for path, text in made.files]
        evaluator = all_of(workbook_check(made), *kept)
        return in_osworld_form(task_id, made, config, evaluator, apps)

    def done(made: Goal) -> Files:
        if not isinstance(made, SheetGoal):
            raise TypeError(f"{made.family} is no family of sheets")
        return solved(made)

    return Family(name, CALC, apps, goal, task, done, routes, templates, trained, values_of, may=ITS_END)


def workbook_step(made: SheetGoal) -> Download:
    """Put the workbook of `made` into Documents."""
    url = data_url(make_xlsx({made.sheet: made.grid}), MIME)
    source = Source(url=url, path=f"{DOCUMENTS}/{made.target}")
    return Download(parameters=DownloadParameters(files=[source]))


def workbook_check(made: SheetGoal) -> tuple[str, str, dict[str, object]]:
    """The check that the workbook of `made` says what it shall in the end."""
    return "workbook_is", made.target, _rule([_expected(made)])


def solved(made: SheetGoal) -> Files:
    """The files when it is done."""
    sheet = Sheet(
        name=made.renamed or made.sheet,
        cells=made.finish,
        formulas={write.cell: write.text for write in made.writes if write.refers},
    )
    texts = {f"Documents/{name}": FileView("file", text.encode()) for name, text in made.files}
    return texts | {f"Documents/{made.target}": FileView("workbook", workbook=Workbook(sheets=(sheet,)))}


def values_of(made: Goal) -> set[str]:
    """The words and numbers that an instance is made of."""
    if not isinstance(made, SheetGoal):
        raise TypeError(f"{made.family} is no family of sheets")
    names = {made.renamed, made.sheet} - {SHEET, ""}
    written = {str(write.value) for write in made.writes}
    return words_of(made) | names | written | {str(value) for row in made.grid for value in row}


def _expected(made: SheetGoal) -> dict[str, object]:
    return {
        "name": made.renamed or made.sheet,
        "cells": made.finish,
        "formulas": {write.cell: write.refers for write in made.writes if write.refers},
    }


def _rule(expected: object) -> dict[str, object]:
    return {"type": "rule", "rules": {"expected": expected}}


def _stored(value: Cell) -> str | float:
    return value if isinstance(value, str) else float(value)
