"""What families of spreadsheet tasks have in common: a small table in a workbook, and cells that shall change.

Invariant: a task is judged on every cell of its workbook. Any other change fails it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from apis.documents.xlsx import MIME, cells, make_xlsx
from apis.tasks.families.document import DocumentKind
from apis.tasks.goal import Goal
from apis.tasks.numbers import numbers
from apis.tasks.verify import office
from apis.tasks.words import words

CALC = "libreoffice_calc"
SHEET = "Sheet1"  # the name of a sheet that was given none

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
class WorkbookGoal(Goal):
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


def _stored(value: Cell) -> str | float:
    return value if isinstance(value, str) else float(value)


def _expected(made: WorkbookGoal) -> object:
    formulas = {write.cell: write.refers for write in made.writes if write.refers}
    return [{"name": made.renamed or made.sheet, "cells": made.finish, "formulas": formulas}]


def _values(made: WorkbookGoal) -> set[str]:
    names = {made.renamed, made.sheet} - {SHEET, ""}
    return names | {str(write.value) for write in made.writes} | {str(value) for row in made.grid for value in row}


WORKBOOK = DocumentKind(
    app=CALC,
    goals=WorkbookGoal,
    mime=MIME,
    check="workbook_is",
    data=lambda made: make_xlsx({made.sheet: made.grid}),
    expected=_expected,
    wanted=office.workbook,
    values=_values,
)
