"""Tasks on Calc and Writer: a document shall end with what a sheet, open in the other window, says of an item.

Invariant: what the sheet says stands in no instruction. The oracle writes nothing before it has quoted it in the same
episode. A task is solved only if the sheet says what it said.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from apis.actions.gui import Quote, Wait, line
from apis.catalogue import call
from apis.guest.addresses import address
from apis.tasks.families.calc import calc_oracle
from apis.tasks.families.calc.common import CALC, WorkbookGoal, fresh_word, table
from apis.tasks.families.note import noted
from apis.tasks.families.writer import writer_oracle
from apis.tasks.families.writer.common import TEXT_DOCUMENT, WRITER, TextDocumentGoal, drawn, plain
from apis.tasks.oracle import pointed, switch
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {
    "append": {
        TRAIN: (
            "Write the '{column}' of '{item}' in {sheet} at the end of {file} and save it",
            "{file} should end with the '{column}' that {sheet} gives for '{item}'",
            "Look up '{item}' in {sheet} and add its '{column}' as a last paragraph to {file}",
            "Append the '{column}' of '{item}' to {file} as a paragraph, {sheet} has it",
            "Copy the '{column}' of '{item}' from {sheet} into a new paragraph at the end of {file}",
            "A new last paragraph of {file} should say the '{column}' of '{item}', as {sheet} has it",
        ),
        HELD_OUT: (
            "Put the '{column}' of '{item}' from {sheet} at the end of {file} and save",
            "{sheet} says the '{column}' of '{item}', add it to {file} as the last paragraph",
            "Find the '{column}' of '{item}' in {sheet}, {file} should have it as a new last paragraph",
        ),
    }
}


def goal(random: Random, split: str) -> TextDocumentGoal:
    """What an instance of `split` asks for."""
    grid = table(random, split, random.choice((2, 2, 3)), random.choice((3, 4, 5)))
    row, column = random.randint(1, len(grid) - 1), random.randint(1, len(grid[0]) - 1)
    item, asked, says = grid[row][0], grid[0][column], str(grid[row][column])
    texts, _ = drawn(random, split, [random.choice((1, 2)) for _ in range(random.choice((2, 2, 3)))])
    stem, sheet = fresh_word(random, split, grid, 2)
    instruction = random.choice(TEMPLATES["append"][split]).format(
        column=asked, item=item, sheet=f"{sheet}.xlsx", file=f"{stem}.docx"
    )
    workbook = WorkbookGoal(
        family="doc_from_sheet",
        kind="append",
        instruction=instruction,
        target=f"{sheet}.xlsx",
        grid=grid,
        evidence=f"{item} {address(row, 0)}, {asked} {address(0, column)}",
    )
    return TextDocumentGoal(
        kind="append",
        instruction=instruction,
        target=f"{stem}.docx",
        wanted=says,
        start=(*texts, ""),
        finish=plain([*texts, says]),
        workbooks=(workbook,),
    )


def _after_reading(write: Decide, asking: float) -> Decide:
    """Read the sheet, `asking` of the times by Calc's function, and keep what it says; then go and `write`."""

    def decide(view: View) -> Move:
        asks = view.route.random() < asking
        return write(view) if noted(view, view.goal.wanted) else _read(view, asks=asks)

    return decide


def _read(view: View, *, asks: bool) -> Move:
    goal = TEXT_DOCUMENT.goal(view.goal)
    (workbook,) = goal.workbooks
    sheet = replace(view, goal=workbook)
    if view.observation.app != CALC:
        return switch(view, CALC, workbook.target)
    if move := calc_oracle.obstacle(sheet):
        return move
    if calc_oracle.wrong(sheet):
        return (calc_oracle.by_tools if asks else calc_oracle.by_gui)(sheet)
    cell = view.find("table-cell", lambda element: element.text == goal.wanted)
    if cell is None:
        return "look again", Wait()
    column = view.elements[cell].name[0]
    asked = call("CalcTools", "get_column_data", column_name=column)
    if asks and not any(turn.line == line(asked) for turn in view.history):
        return f"{workbook.evidence} -> read column {column}", asked
    return f"{workbook.evidence} -> {pointed(view, cell, 'keep')}", Quote(content=goal.wanted)


_WRITE = writer_oracle.routes(writer_oracle.texts_by_gui, writer_oracle.texts_by(writer_oracle.appended))
_ASKING = {"gui": 0.0, "api": 1.0, "mixed": 0.5}

FAMILY = TEXT_DOCUMENT.family(
    "doc_from_sheet",
    TEMPLATES,
    goal,
    {name: _after_reading(write, _ASKING[name]) for name, write in _WRITE.items()},
    apps=(WRITER, CALC),
    opened=lambda made: (made.target, made.workbooks[0].target),
)
