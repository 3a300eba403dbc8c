"""What families of spreadsheet tasks share: a small table, and how an oracle changes its cells."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from apis.actions.gui import Click, Type, Wait
from apis.catalogue import call
from apis.documents.xlsx import MIME, cells, make_xlsx
from apis.tasks.families.document import DocumentKind, Saving, in_the_way
from apis.tasks.oracle import keys
from apis.tasks.verify import office
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import numbers, words

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


NAME_BOX = "Name Box"
SAVING = Saving(call("CalcTools", "save"), ("Agent.quote(", "Agent.switch_window(", "CalcTools.get_"))


def goal_of(view: View) -> WorkbookGoal:
    """The goal. Raises TypeError for one of another kind."""
    if not isinstance(view.goal, WorkbookGoal):
        raise TypeError(f"{view.goal.family} is no family of sheets")
    return view.goal


def shown(view: View) -> dict[str, str]:
    """What each cell that is listed says, by its name."""
    return {element.name: element.text for element in view.elements.values() if element.tag == "table-cell"}


def wrong(view: View) -> list[Write]:
    """The changes that are still to be made, those asked for first; "" is typed where a cell shall be empty."""
    goal, now = goal_of(view), shown(view)
    asked = [write for write in goal.writes if now.get(write.cell, "") != str(write.value)]
    kept = {name: value for name, value in goal.start.items() if name not in {write.cell for write in goal.writes}}
    back = [
        Write(name, text, text) for name, value in kept.items() if name in now and now[name] != (text := _typed(value))
    ]
    extra = [Write(name, "", "") for name, text in now.items() if text and name not in goal.finish]
    return asked + back + extra


def untouched(view: View) -> bool:
    """Whether the listed cells say what they said at the start."""
    start = {name: _typed(value) for name, value in goal_of(view).start.items()}
    return {name: text for name, text in shown(view).items() if text} == start


def _typed(value: str | float | bool) -> str:
    """What is typed to make a cell say `value`, and what it shows then."""
    return value if isinstance(value, str) else f"{value:.15g}"


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    by_name_box, click_first, save_by_mouse = (view.route.random() < part for part in (0.25, 0.3, 0.3))
    if move := obstacle(view):
        return move
    left = wrong(view)
    if left:
        return _enter(view, left[0], by_name_box, click_first)
    return SAVING.by_gui(view, save_by_mouse)


def by_tools(view: View) -> Move:
    """The next move with Calc's functions."""
    if move := obstacle(view):
        return move
    left = wrong(view)
    if left:
        return because(view, left[0]), call("CalcTools", "set_cell_value", cell=left[0].cell, value=left[0].text)
    return SAVING.by_tool(view)


def because(view: View, write: Write) -> str:
    """The thought of a change: where the table tells it, the cell, and what goes in."""
    goal, now = goal_of(view), shown(view).get(write.cell, "")
    where = f"{goal.evidence} -> " if goal.evidence and write in goal.writes else ""
    name = view.find("table-cell", lambda e: e.name == write.cell)
    cell = f"{name} table-cell {write.cell}" if name else f"table-cell {write.cell}"
    return f"{where}{cell}{f' ({now})' if now else ''} -> {write.text or 'empty'}"


def obstacle(view: View) -> Move | None:
    """What to do about another window in front, or a dialog that covers the sheet."""
    return in_the_way(view, CALC) or (None if shown(view) else keys("close this", "esc"))


def _enter(view: View, write: Write, by_name_box: bool, click_first: bool) -> Move:
    cell = view.find("table-cell", lambda e: e.name == write.cell)
    box = view.find("text", lambda e: e.name == NAME_BOX)
    thought = because(view, write)
    current = cell is not None and "foc" in view.elements[cell].states
    if current and (by_name_box or click_first or not write.text):
        return (thought, Type(text=write.text, enter=True)) if write.text else keys(thought, "delete")
    if box is not None and (by_name_box or cell is None):
        return f"{thought}, {box} go there", Type(coordinates=box, text=write.cell, enter=True)
    if cell is None:
        return "look again", Wait()
    if click_first or not write.text:
        return f"{thought}, go there", Click(coordinates=cell)
    return thought, Type(coordinates=cell, text=write.text, enter=True)


ROUTES = {"gui": by_gui, "api": by_tools}
