"""Writer's families and oracles without a desktop: what an instance holds, and what an oracle does in which state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from apis.actions.gui import Action, Click, Hotkey, Quote, SwitchWindow, Type, line
from apis.catalogue import call
from apis.observation import Observation, Window, from_guest
from apis.prompts.compact import element_names
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families.texts import WRITER, TextDocumentGoal
from apis.tasks.families.writer import BUTTONS
from apis.tasks.verify import office
from apis.tasks.verify.verify import FileView, verify
from apis.tasks.words import HELD_OUT, TRAIN
from tests.apis.moves import families_on, moved
from tests.apis.test_families_calc import calc

FAMILIES = families_on(WRITER)
TEXT_FAMILIES = [name for name in FAMILIES if name != "writer_look"]
EDITOR, SHEETS = {"id": 5, "class": "Mousepad"}, {"id": 5, "class": "libreoffice-calc"}
OFFICE = {"id": 6, "class": "libreoffice-writer"}
ROUTES = ("api", "gui", "mixed")


def goal_of(task_id: str) -> TextDocumentGoal:
    goal = tasks.goal(task_id)
    assert isinstance(goal, TextDocumentGoal)
    return goal


def writer(
    goal: TextDocumentGoal, texts: Sequence[str], chosen: str = "", down: str = "", size: str = "11"
) -> Observation:
    """Writer in front, a note or a sheet behind; of paragraphs `chosen` is selected, of buttons `down` is pressed."""
    rows: list[list[Any]] = [
        ["paragraph", "", text, 200, 120 + 20 * at, 600, 18, ["sen", "edt", *["foc", "sel"] * (text == chosen)], 1]
        for at, text in enumerate(texts)
    ]
    rows.append(["text", "Font Size", f"{size} pt", 300, 60, 60, 24, ["sen", "edt", "bar"], 1])
    rows.append(["push-button", "Save", "", 60, 40, 24, 24, ["sen", "bar"], 1])
    for n, label in enumerate(BUTTONS.values()):
        states = ["sen", "bar", *["chk"] * (label == down)]
        rows.append(["toggle-button", label, "", 400 + 30 * n, 60, 24, 24, states, 1])
    windows = [
        {**EDITOR, "title": f"{goal.files[0][0] if goal.files else 'note.txt'} - Mousepad", "active": False},
        {**OFFICE, "title": f"{goal.target} - LibreOffice Writer", "active": True},
    ]
    if goal.workbooks:
        windows[0] = {**SHEETS, "title": f"{goal.workbooks[0].target} - LibreOffice Calc", "active": False}
    return from_guest({"windows": windows, "elements": rows})


def editor(goal: TextDocumentGoal) -> Observation:
    windows = [
        {**EDITOR, "title": f"{goal.files[0][0]} - Mousepad", "active": True},
        {**OFFICE, "title": f"{goal.target} - LibreOffice Writer", "active": False},
    ]
    row = ["text", "", goal.files[0][1], 1, 47, 1278, 670, ["sen", "edt"], 0]
    return from_guest({"windows": windows, "elements": [row]})


def sheet(goal: TextDocumentGoal, **changed: str) -> Observation:
    (workbook,) = goal.workbooks
    shown = calc(workbook, {**workbook.start, **changed})
    behind = Window(6, OFFICE["class"], f"{goal.target} - LibreOffice Writer", active=False)
    return msgspec.structs.replace(shown, windows=(behind, shown.windows[1]))


def first_look(goal: TextDocumentGoal) -> Observation:
    """What is in front at the start."""
    return sheet(goal) if goal.workbooks else editor(goal) if goal.files else writer(goal, goal.before)


def read_before(goal: TextDocumentGoal) -> list[Turn]:
    return [Turn("", line(Quote(content=goal.wanted)), "")] if goal.files or goal.workbooks else []


def played(
    goal: TextDocumentGoal, action: Action, texts: list[str], chosen: str, observation: Observation
) -> tuple[Any, str]:
    """What a step of mouse or keyboard makes of the paragraphs, and which one is selected then."""
    match action:
        case Click(coordinates=str(name)):
            return texts, element_names(observation)[name].text
        case Type(text=new) if chosen:
            return [new if text == chosen else text for text in texts], ""
        case Type(text=new):
            return [*texts, new], ""
        case Hotkey(keys=("delete",)):
            return [text for text in texts if text != chosen], ""
    return texts, chosen


@pytest.mark.parametrize("name", TEXT_FAMILIES)
def test_its_steps_lead_to_the_wanted_words(name: str) -> None:
    for seed in range(30):
        task_id = f"{name}/{HELD_OUT}/{seed}"
        goal = goal_of(task_id)
        texts, chosen, history = goal.before, "", read_before(goal)
        for _ in range(4):
            observation = writer(goal, texts, chosen)
            action = moved(task_id, observation, history, "gui", seed)
            texts, chosen = played(goal, action, texts, chosen, observation)
            history = [*history, Turn("", line(action), "")]
            if texts == goal.after:
                break
        assert texts == goal.after


def test_nothing_is_written_before_the_note_was_read() -> None:
    task_id = f"doc_from_note/{TRAIN}/5"
    goal = goal_of(task_id)
    assert goal.wanted not in goal.instruction
    for route in ROUTES:
        assert moved(task_id, writer(goal, goal.before), [], route) == SwitchWindow(window_id="w1")
        assert moved(task_id, editor(goal), [], route) == Quote(content=goal.wanted)
        assert moved(task_id, editor(goal), read_before(goal), route) == SwitchWindow(window_id="w2")


def test_a_sheet_is_read_as_it_was_and_must_stay_so() -> None:
    task_id = f"doc_from_sheet/{HELD_OUT}/3"
    goal = goal_of(task_id)
    (workbook,) = goal.workbooks
    back = call("CalcTools", "set_cell_value", cell="A2", value=str(workbook.grid[1][0]))
    assert moved(task_id, sheet(goal, A2="oops"), [], "api") == back
    files = dict(tasks.solved(task_id))
    for cells in (
        workbook.start | {"A2": "oops"},
        workbook.start | {"H9": 1.0},
        dict(list(workbook.start.items())[1:]),
    ):
        changed = FileView("file", office.workbook({"expected": [{"name": workbook.sheet, "cells": cells}]}))
        broken = files | {f"Documents/{workbook.target}": changed}
        verdict = verify(tasks.task(task_id), broken.__getitem__)
        assert not verdict.success
        assert verdict.reason.startswith(f"Documents/{workbook.target}: ")
