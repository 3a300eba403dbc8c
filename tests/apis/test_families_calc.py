"""Calc's families and oracles without a desktop: what an instance holds, and what an oracle does in which state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from apis.actions.gui import line
from apis.guest.addresses import address
from apis.observation import Observation, from_guest
from apis.prompts.text import Turn
from apis.tasks import osworld
from apis.tasks import registry as tasks
from apis.tasks.families import calc_tables
from apis.tasks.families.calc_tables import CALC, WorkbookGoal
from apis.tasks.osworld import data_of
from apis.tasks.words import TRAIN
from tests.apis.moves import families_on, moved, parts
from tests.apis.test_made_files import read

FAMILIES = families_on(CALC)
PARTS = parts(FAMILIES)
EDITOR, OFFICE = {"id": 5, "class": "Mousepad"}, {"id": 6, "class": "libreoffice-calc"}
SAVED = [Turn("", "Agent.hotkey(keys=['ctrl', 's'])", "")]


def goal_of(task_id: str) -> WorkbookGoal:
    goal = tasks.goal(task_id)
    assert isinstance(goal, WorkbookGoal)
    return goal


def calc(goal: WorkbookGoal, cells: Mapping[str, Any], current: str = "A1") -> Observation:
    """Calc in front, a note behind it; the cells as they show, empty ones beside the table, too."""
    rows: list[list[Any]] = [["text", "Name Box", current, 10, 80, 60, 20, ["sen", "edt"], 1]]
    for row in range(len(goal.grid) + 1):
        for column in range(len(goal.grid[0]) + 1):
            name = address(row, column)
            value = cells.get(name, "")
            text = value if isinstance(value, str) else f"{value:g}"
            states = ["sen", "edt", *["foc"] * (name == current)]
            rows.append(["table-cell", name, text, 40 + 80 * column, 120 + 20 * row, 80, 20, states, 1])
    for n, label in enumerate(("Save", "Sort Ascending", "Sort Descending")):
        rows.append(["push-button", label, "", 100 + 30 * n, 50, 24, 24, ["sen", "bar"], 1])
    rows.append(["menu", "Sheet", "", 200, 20, 50, 20, ["sen"], 1])
    windows = [
        {**EDITOR, "title": f"{[*dict(goal.files), 'note.txt'][0]} - Mousepad", "active": False},
        {**OFFICE, "title": f"{goal.target} - LibreOffice Calc", "active": True},
    ]
    return from_guest({"windows": windows, "elements": rows})


def editor(goal: WorkbookGoal) -> Observation:
    windows = [
        {**EDITOR, "title": "note.txt - Mousepad", "active": True},
        {**OFFICE, "title": f"{goal.target} - LibreOffice Calc", "active": False},
    ]
    row = ["text", "", goal.wanted, 1, 47, 1278, 670, ["sen", "edt"], 0]
    return from_guest({"windows": windows, "elements": [row]})


@pytest.mark.parametrize("part", PARTS)
def test_an_instance_is_small_and_its_file_holds_its_table(part: str) -> None:
    for seed in range(40):
        goal, task = goal_of(f"{part}/{seed}"), tasks.task(f"{part}/{seed}")
        assert 3 <= len(goal.grid) <= 6
        assert all(len(row) == len(goal.grid[0]) <= 4 for row in goal.grid)
        texts = [value for row in goal.grid for value in row if isinstance(value, str)]
        texts += [write.value for write in goal.writes if isinstance(write.value, str) and write.value not in texts]
        pairs = [(a, b) for a in texts for b in texts if a is not b]
        assert not any(a.startswith(b) for a, b in pairs)  # nothing completes a word while it is typed
        step = task.config[0]
        assert isinstance(step, osworld.Download)
        assert read(data_of(step.files[0].url)) == {goal.sheet: goal.start}
        assert goal.finish != goal.start or goal.renamed
        assert all(re.fullmatch(r"[a-z]+|[0-9]+", literal) for literal in re.findall(r"'([^']*)'", goal.instruction))


def test_it_puts_back_what_a_stray_step_changed() -> None:
    task_id = f"calc_lookup/{TRAIN}/3"
    goal = goal_of(task_id)
    broken = {**goal.finish, "A2": "oops"}
    assert line(moved(task_id, calc(goal, broken), [], "api")) == line(
        calc_tables.call("CalcTools", "set_cell_value", cell="A2", value=str(goal.start["A2"]))
    )
    below = address(len(goal.grid), 0)
    extra = calc(goal, {**goal.finish, below: "oops"}, current=below)
    assert line(moved(task_id, extra, SAVED)) == "Agent.hotkey(keys=['delete'])"


def test_nothing_is_entered_before_the_note_was_read() -> None:
    task_id = f"sheet_from_note/{TRAIN}/5"
    goal = goal_of(task_id)
    quote = Turn("", f"Agent.quote(content={goal.wanted!r})", goal.wanted)
    for route in ("gui", "api"):
        assert line(moved(task_id, calc(goal, goal.start), [], route)) == "Agent.switch_window(window_id=w1)"
        assert line(moved(task_id, editor(goal), [], route)) == quote.line
        assert line(moved(task_id, editor(goal), [quote], route)) == "Agent.switch_window(window_id=w2)"
        assert goal.writes[0].text in line(moved(task_id, calc(goal, goal.start, goal.writes[0].cell), [quote], route))
