"""Tasks on Writer: replace a word, append or delete a paragraph, change its looks, or write what another file says."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from apis.actions.gui import Quote, Tool, Type, Wait, line
from apis.catalogue import call
from apis.guest.addresses import address
from apis.tasks.families import calc_tables, kind_of, texts, worded
from apis.tasks.families.calc_tables import CALC, WorkbookGoal, fresh_word, table
from apis.tasks.families.document import EDITOR, after_note, noted
from apis.tasks.families.texts import TEXT_DOCUMENT, WRITER, Line, TextDocumentGoal, drawn, plain
from apis.tasks.oracle import click, pointed, switch
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import number


def _replace(random: Random, split: str) -> tuple[str, str, str, list[str], list[str]]:
    (*texts,), (stem, old, new) = drawn(random, split, [random.choice((1, 2)) for _ in range(3)], 3)
    for at in random.sample(range(3), random.choice((1, 2, 2))):
        texts[at] = random.choice((f"{old} {texts[at]}", f"{texts[at]} {old}"))
    return stem, old, new, texts, [text.replace(old, new) for text in texts]


def _writer_text(random: Random, split: str) -> TextDocumentGoal:
    kind = kind_of(random, "writer_text")
    if kind == "replace":
        stem, old, new, start, after = _replace(random, split)
    else:
        texts, (stem,) = drawn(random, split, [2] * random.choice((3, 4)), 1)
        old, new, start, after = "", "", texts, texts
        if kind == "append":
            new, start = texts[-1], [*texts[:-1], ""]
        else:
            old = random.choice(texts)
            after = [text for text in texts if text != old]
    return TextDocumentGoal(
        kind=kind,
        instruction=worded(random, "writer_text", kind, split, old=old, new=new, file=f"{stem}.docx"),
        target=f"{stem}.docx",
        words=tuple(part for part in (old, new) if part),
        start=tuple(start),
        finish=plain(after),
    )


def _by_one_call(view: View, goal: TextDocumentGoal) -> Move:
    if goal.kind == "append":
        return texts.appended(view, goal)
    old, new = (*goal.words, "")[:2]
    first = next(text for text in goal.before if old in text)
    return texts.tool(view, first, "find_and_replace", pattern=old, replacement=new)


WRITER_TEXT = TEXT_DOCUMENT.family(
    "writer_text", _writer_text, texts.routes(texts.texts_by_gui, texts.texts_by(_by_one_call))
)


BUTTONS = {"center": "Center", "right": "Right", "justify": "Justified", "strike": "Strikethrough"}
LEAST, MOST = 12, 40  # points
SIZE = "Font Size"


def _writer_look(random: Random, split: str) -> TextDocumentGoal:
    kind = kind_of(random, "writer_look")
    texts, (stem,) = drawn(random, split, [random.choice((1, 2)) for _ in range(random.choice((3, 4)))], 1)
    text = random.choice(texts)
    size = str(number(random, split, LEAST, MOST)) if kind == "size" else ""
    looks = {"strike": ("strike",), "size": (f"size {size}",)}.get(kind, ())
    layout = () if looks else (kind,)
    return TextDocumentGoal(
        kind=kind,
        instruction=worded(random, "writer_look", kind, split, text=text, size=size, file=f"{stem}.docx"),
        target=f"{stem}.docx",
        wanted=size,
        words=(text,),
        start=tuple(texts),
        finish=tuple(Line(each, looks, layout) if each == text else Line(each) for each in texts),
    )


def _align(goal: TextDocumentGoal) -> Tool:
    at = goal.before.index(goal.words[0])
    return call("WriterTools", "set_paragraph_alignment", alignment=goal.kind, paragraph_indices=[at])


def _strike(goal: TextDocumentGoal) -> Tool:
    return call("WriterTools", "set_strikethrough", pattern=goal.words[0])


def _size(goal: TextDocumentGoal) -> Tool:
    return call("WriterTools", "set_font_size", font_size=float(goal.wanted), pattern=goal.words[0])


def _press(view: View) -> Move | None:
    """Select the paragraph, press the button; a button that is down tells that it is done."""
    goal = TEXT_DOCUMENT.goal(view.goal)
    text, wanted = goal.words[0], BUTTONS[goal.kind]
    button = view.find("toggle-button", lambda e: e.name == wanted)
    if button is None or not texts.caret_in(view, text):
        return texts.choose(view, text, goal.kind)
    if "chk" in view.elements[button].states:
        return None
    if goal.kind == "strike" and texts.chosen(view, text) is None:
        return texts.choose(view, text, goal.kind)
    return click(view, button)


def _enter_size(view: View) -> Move | None:
    goal = TEXT_DOCUMENT.goal(view.goal)
    text = goal.words[0]
    field = view.find("text", lambda e: e.name == SIZE)
    if field is None or texts.chosen(view, text) is None:
        return texts.choose(view, text, f"size {goal.wanted}")
    if view.elements[field].text.split(" ")[0] == goal.wanted:
        return None
    return pointed(view, field, goal.wanted), Type(coordinates=field, text=goal.wanted, overwrite=True, enter=True)


WRITER_LOOK = TEXT_DOCUMENT.family(
    "writer_look",
    _writer_look,
    texts.looks(
        dict.fromkeys(("center", "right", "justify"), _align) | {"strike": _strike, "size": _size},
        dict.fromkeys(BUTTONS, _press) | {"size": _enter_size},
    ),
)


def _writer_case(random: Random, split: str) -> TextDocumentGoal:
    texts, (stem,) = drawn(random, split, [random.choice((1, 2)) for _ in range(random.choice((3, 4)))], 1)
    text = random.choice(texts)
    return TextDocumentGoal(
        kind="capitals",
        instruction=worded(random, "writer_case", "capitals", split, text=text, file=f"{stem}.docx"),
        target=f"{stem}.docx",
        words=(text,),
        start=tuple(texts),
        finish=plain([each.upper() if each == text else each for each in texts]),
    )


def _case_by_one_call(view: View, goal: TextDocumentGoal) -> Move:
    text = goal.words[0]
    return texts.tool(view, text, "change_text_case", case_type="uppercase", pattern=text)


WRITER_CASE = TEXT_DOCUMENT.family(
    "writer_case", _writer_case, texts.routes(texts.texts_by_gui, texts.texts_by(_case_by_one_call))
)


def _doc_from_note(random: Random, split: str) -> TextDocumentGoal:
    texts, (stem, note) = drawn(random, split, [random.choice((1, 2)), 2, random.choice((1, 2))], 2)
    *start, says = texts
    return TextDocumentGoal(
        kind="append",
        instruction=worded(random, "doc_from_note", "append", split, note=f"{note}.txt", file=f"{stem}.docx"),
        target=f"{stem}.docx",
        wanted=says,
        files=((f"{note}.txt", f"{says}\n"),),
        start=(*start, ""),
        finish=plain(texts),
    )


_WRITE_NOTE = texts.routes(texts.texts_by_gui, texts.texts_by(texts.appended))

DOC_FROM_NOTE = TEXT_DOCUMENT.family(
    "doc_from_note",
    _doc_from_note,
    {name: after_note(write) for name, write in _WRITE_NOTE.items()},
    apps=(WRITER, EDITOR),
    opened=lambda made: (made.target, made.files[0][0]),
)


def _doc_from_sheet(random: Random, split: str) -> TextDocumentGoal:
    grid = table(random, split, random.choice((2, 2, 3)), random.choice((3, 4, 5)))
    row, column = random.randint(1, len(grid) - 1), random.randint(1, len(grid[0]) - 1)
    item, asked, says = grid[row][0], grid[0][column], str(grid[row][column])
    texts, _ = drawn(random, split, [random.choice((1, 2)) for _ in range(random.choice((2, 2, 3)))])
    stem, sheet = fresh_word(random, split, grid, 2)
    instruction = worded(
        random, "doc_from_sheet", "append", split, column=asked, item=item, sheet=f"{sheet}.xlsx", file=f"{stem}.docx"
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


def _after_sheet(write: Decide, asking: float) -> Decide:
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
    if move := calc_tables.obstacle(sheet):
        return move
    if calc_tables.wrong(sheet):
        return (calc_tables.by_tools if asks else calc_tables.by_gui)(sheet)
    cell = view.find("table-cell", lambda element: element.text == goal.wanted)
    if cell is None:
        return "look again", Wait()
    column = view.elements[cell].name[0]
    asked = call("CalcTools", "get_column_data", column_name=column)
    if asks and not any(turn.line == line(asked) for turn in view.history):
        return f"{workbook.evidence} -> read column {column}", asked
    return f"{workbook.evidence} -> {pointed(view, cell, 'keep')}", Quote(content=goal.wanted)


_WRITE_SHEET = texts.routes(texts.texts_by_gui, texts.texts_by(texts.appended))
_ASKING = {"gui": 0.0, "api": 1.0, "mixed": 0.5}

DOC_FROM_SHEET = TEXT_DOCUMENT.family(
    "doc_from_sheet",
    _doc_from_sheet,
    {name: _after_sheet(write, _ASKING[name]) for name, write in _WRITE_SHEET.items()},
    apps=(WRITER, CALC),
    opened=lambda made: (made.target, made.workbooks[0].target),
)

FAMILIES = (WRITER_TEXT, WRITER_LOOK, DOC_FROM_NOTE, DOC_FROM_SHEET, WRITER_CASE)
