"""Tasks on Calc: a cell, a column, an item's row, a total, the sheet's name, the order of rows, and a note's number."""

from __future__ import annotations

from random import Random

from apis.actions.gui import Click, Hotkey, Type, line
from apis.catalogue import call
from apis.guest.addresses import address, column_of
from apis.tasks import words
from apis.tasks.families import calc_tables, kind_of, worded
from apis.tasks.families.calc_tables import (
    CALC,
    WORKBOOK,
    Cell,
    WorkbookGoal,
    Write,
    fresh_numbers,
    fresh_word,
    put,
    table,
)
from apis.tasks.families.document import EDITOR, after_note
from apis.tasks.oracle import click, keys
from apis.tasks.view import Move, View


def _calc_cell(random: Random, split: str) -> WorkbookGoal:
    kind = kind_of(random, "calc_cell")
    columns, rows = random.choice((2, 3, 3)), random.choice((3, 4, 5))
    grid = table(random, split, columns, rows)
    stem, word = fresh_word(random, split, grid, 2)
    value: Cell = fresh_numbers(random, split, grid)[0] if kind == "number" else word
    row = random.randint(1, rows)  # the last is the empty one below
    column = random.randint(1, columns - 1) if kind == "number" else random.choice((0, 0, columns - 1))
    cell = address(row, column)
    return WorkbookGoal(
        kind=kind,
        instruction=worded(random, "calc_cell", kind, split, cell=cell, value=value, file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=str(value),
        grid=grid,
        writes=(put(cell, value),),
    )


CALC_CELL = WORKBOOK.family("calc_cell", _calc_cell, calc_tables.ROUTES)


def _calc_column(random: Random, split: str) -> WorkbookGoal:
    columns, rows = random.choice((2, 2, 3)), random.choice((3, 3, 4))
    grid = table(random, split, columns, rows)
    stem, name = fresh_word(random, split, grid, 2)
    values = fresh_numbers(random, split, grid, rows - 1)
    column: tuple[Cell, ...] = (name, *values)
    quoted = [f"'{value}'" for value in values]
    return WorkbookGoal(
        kind="fill",
        instruction=worded(
            random,
            "calc_column",
            "fill",
            split,
            letter=address(0, columns)[0],
            name=name,
            values=f"{', '.join(quoted[:-1])} and {quoted[-1]}",
            file=f"{stem}.xlsx",
        ),
        target=f"{stem}.xlsx",
        wanted=name,
        grid=grid,
        writes=tuple(put(address(row, columns), value) for row, value in enumerate(column)),
    )


def _column_by_gui(view: View) -> Move:
    goal = calc_tables.goal_of(view)
    first = view.find("table-cell", lambda e: e.name == goal.writes[0].cell)
    if first is None or calc_tables.wrong(view) != list(goal.writes):
        return calc_tables.by_gui(view)
    text = "\n".join(write.text for write in goal.writes)
    return f"{first} table-cell {goal.writes[0].cell} -> fill down", Type(coordinates=first, text=text, enter=True)


def _column_by_tools(view: View) -> Move:
    goal = calc_tables.goal_of(view)
    if calc_tables.wrong(view) != list(goal.writes):
        return calc_tables.by_tools(view)
    data = [write.value for write in goal.writes]
    column = goal.writes[0].cell[0]
    filled = call("CalcTools", "set_column_values", column_name=column, data=data, start_index=1)
    return f"column {column} from row 1 -> fill", filled


CALC_COLUMN = WORKBOOK.family("calc_column", _calc_column, {"gui": _column_by_gui, "api": _column_by_tools})


def _calc_lookup(random: Random, split: str) -> WorkbookGoal:
    columns, rows = random.choice((2, 3, 3, 4)), random.choice((3, 4, 5))
    grid = table(random, split, columns, rows)
    stem = fresh_word(random, split, grid)[0]
    value = fresh_numbers(random, split, grid)[0]
    row, column = random.randint(1, rows - 1), random.randint(1, columns - 1)
    item, named = grid[row][0], grid[0][column]
    return WorkbookGoal(
        kind="change",
        instruction=worded(
            random, "calc_lookup", "change", split, item=item, column=named, value=value, file=f"{stem}.xlsx"
        ),
        target=f"{stem}.xlsx",
        wanted=str(value),
        grid=grid,
        writes=(put(address(row, column), value),),
        evidence=f"{item} {address(row, 0)}, {named} {address(0, column)}",
    )


CALC_LOOKUP = WORKBOOK.family("calc_lookup", _calc_lookup, calc_tables.ROUTES)


def _calc_sum(random: Random, split: str) -> WorkbookGoal:
    columns, rows = random.choice((2, 3, 3)), random.choice((4, 5, 6))
    column = random.randint(1, columns - 1)
    while True:
        grid = table(random, split, columns, rows)
        total = sum(value for row in grid[1:] if isinstance(value := row[column], int))
        if words.split_of_number(total) == split:
            break
    stem = fresh_word(random, split, grid)[0]
    cells = f"{address(1, column)}:{address(rows - 1, column)}"
    return WorkbookGoal(
        kind="total",
        instruction=worded(random, "calc_sum", "total", split, column=grid[0][column], file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=str(total),
        grid=grid,
        writes=(Write(address(rows, column), f"=SUM({cells})", total, cells),),
        evidence=f"{grid[0][column]} {address(0, column)}, last {grid[-1][column]} {address(rows - 1, column)}",
    )


CALC_SUM = WORKBOOK.family("calc_sum", _calc_sum, calc_tables.ROUTES)


DIALOG = "Rename Sheet"


def _calc_sheet(random: Random, split: str) -> WorkbookGoal:
    grid = table(random, split, random.choice((2, 3)), random.choice((3, 4)))
    stem, old, new = fresh_word(random, split, grid, 3)
    return WorkbookGoal(
        kind="rename",
        instruction=worded(random, "calc_sheet", "rename", split, old=old, new=new, file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=new,
        grid=grid,
        sheet=old,
        renamed=new,
    )


def _sheet_by_gui(view: View) -> Move:
    goal = calc_tables.goal_of(view)
    if view.title == DIALOG:
        field = view.field()
        if field is None:
            return keys("close this", "esc")
        return f"{field} text -> {goal.renamed}", Type(coordinates=field, text=goal.renamed, overwrite=True, enter=True)
    if _named(view):
        return calc_tables.by_gui(view)
    entry = view.find("menu-item", lambda e: e.label.startswith(DIALOG))
    if entry is not None:
        return click(view, entry)
    menu = view.labelled("menu", "Sheet")
    if menu is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    return click(view, menu, f"rename to {goal.renamed}")


def _sheet_by_tools(view: View) -> Move:
    goal = calc_tables.goal_of(view)
    if view.title == DIALOG:  # opened by the other route: while it is open the function would rename beneath it
        return _sheet_by_gui(view)
    if _named(view) or view.observation.app != CALC:
        return calc_tables.by_tools(view)
    renamed = call("CalcTools", "rename_sheet", old_name=goal.sheet, new_name=goal.renamed)
    return f"sheet {goal.sheet} -> {goal.renamed}", renamed


def _named(view: View) -> bool:
    """Whether the new name was given in one of the two ways."""
    new = calc_tables.goal_of(view).renamed
    by_tool = line(call("CalcTools", "rename_sheet", old_name=calc_tables.goal_of(view).sheet, new_name=new))
    typed = [turn.line or "" for turn in view.history]
    return by_tool in typed or any(f"text={new!r}" in one and "enter=True" in one for one in typed)


CALC_SHEET = WORKBOOK.family("calc_sheet", _calc_sheet, {"gui": _sheet_by_gui, "api": _sheet_by_tools})


BUTTONS = {"up": "Sort Ascending", "down": "Sort Descending"}
_UNDO = Hotkey(keys=("ctrl", "z"))


def _calc_sort(random: Random, split: str) -> WorkbookGoal:
    kind = kind_of(random, "calc_sort")
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
        instruction=worded(random, "calc_sort", kind, split, column=grid[0][column], file=f"{stem}.xlsx"),
        target=f"{stem}.xlsx",
        wanted=str(grid[0][column]),
        grid=grid,
        writes=changed,
    )


def _sort_by_gui(view: View) -> Move:
    goal, now = calc_tables.goal_of(view), calc_tables.shown(view)
    named_first = view.route.random() < 0.3
    button = view.labelled("push-button", BUTTONS[goal.kind])
    if not now or button is None or not calc_tables.wrong(view):
        return calc_tables.by_gui(view)
    if not calc_tables.untouched(view):
        return calc_tables.by_gui(view) if view.did(_UNDO) else ("something else changed -> undo", _UNDO)
    column = _key(goal)
    current = view.find("table-cell", lambda e: "foc" in e.states and e.name in goal.start and e.name[0] == column)
    if current is not None:
        return click(view, button)
    cell = view.find("table-cell", lambda e: e.name == f"{column}{1 if named_first else 2}")
    if cell is None:
        return calc_tables.by_gui(view)
    return f"{goal.wanted} {column}1 -> {cell} column {column}", Click(coordinates=cell)


def _sort_by_tools(view: View) -> Move:
    goal = calc_tables.goal_of(view)
    letters = [write.cell[0] for write in calc_tables.wrong(view) if write in goal.writes]
    if calc_tables.obstacle(view) or not letters:
        return calc_tables.by_tools(view)
    key = _key(goal)
    letter = next((each for each in letters if each != key), key)
    values, now = _column(goal, letter), calc_tables.shown(view)
    there = [now.get(f"{letter}{row}", "") for row in range(2, len(goal.grid) + 1)]
    if letter == key and sorted(there) == sorted(map(str, values)):
        sort = call("CalcTools", "sort_column", column_name=key, ascending=goal.kind == "up", start_index=2)
        return f"{goal.wanted} {key}1 -> sort column {key}", sort
    fill = call("CalcTools", "set_column_values", column_name=letter, data=values, start_index=2)
    return f"{goal.wanted} {key}1 -> column {letter} in its order", fill


def _sort_by_either(view: View) -> Move:
    by_button = view.route.random() < 0.5
    finished = not calc_tables.wrong(view)
    return _sort_by_gui(view) if by_button and (finished or calc_tables.untouched(view)) else _sort_by_tools(view)


def _key(goal: WorkbookGoal) -> str:
    """The letter of the column that is sorted by."""
    return address(0, goal.grid[0].index(goal.wanted))[0]


def _column(goal: WorkbookGoal, letter: str) -> list[Cell]:
    """The values of a column below its name, in the end."""
    changed = {write.cell: write.value for write in goal.writes}
    at = column_of(letter)
    assert at is not None
    return [changed.get(address(row, at), values[at]) for row, values in enumerate(goal.grid) if row]


CALC_SORT = WORKBOOK.family(
    "calc_sort", _calc_sort, {"gui": _sort_by_gui, "api": _sort_by_tools, "mixed": _sort_by_either}
)


def _sheet_from_note(random: Random, split: str) -> WorkbookGoal:
    columns, rows = random.choice((2, 2, 3)), random.choice((3, 4))
    grid = table(random, split, columns, rows)
    stem, note = fresh_word(random, split, grid, 2)
    value = fresh_numbers(random, split, grid)[0]
    row, column = random.randint(1, rows - 1), random.randint(1, columns - 1)
    item, named = grid[row][0], grid[0][column]
    return WorkbookGoal(
        kind="note",
        instruction=worded(
            random, "sheet_from_note", "note", split, column=named, note=f"{note}.txt", file=f"{stem}.xlsx"
        ),
        target=f"{stem}.xlsx",
        wanted=f"{item} {value}",
        files=((f"{note}.txt", f"{item} {value}\n"),),
        grid=grid,
        writes=(put(address(row, column), value),),
        evidence=f"{item} {address(row, 0)}, {named} {address(0, column)}",
    )


SHEET_FROM_NOTE = WORKBOOK.family(
    "sheet_from_note",
    _sheet_from_note,
    {name: after_note(enter) for name, enter in calc_tables.ROUTES.items()},
    apps=(CALC, EDITOR),
    opened=lambda made: (made.target, made.files[0][0]),
)

FAMILIES = (CALC_CELL, CALC_LOOKUP, CALC_SUM, CALC_SORT, CALC_SHEET, SHEET_FROM_NOTE, CALC_COLUMN)
