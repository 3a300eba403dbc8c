"""Families on Impress and their oracles without a desktop: what an instance holds, and what an oracle does when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from apis.actions.grammar import parse
from apis.actions.gui import Action, Type, line
from apis.observation import Observation, from_guest
from apis.prompts.compact import COMPACT_TEXT, element_names, window_names
from apis.prompts.text import Turn, escaped
from apis.tasks import osworld
from apis.tasks import registry as tasks
from apis.tasks.families.presentations import IMPRESS, KINDS, PRESENTATION, PresentationGoal, Texts
from apis.tasks.osworld import data_of
from apis.tasks.words import TRAIN
from tests.apis.moves import families_on, moved, parts

FAMILIES = families_on(IMPRESS)
PARTS = parts(FAMILIES)
BUTTONS = ("Save", "New Slide", "Duplicate Slide", "Delete Slide")


def impress(goal: PresentationGoal, slides: Sequence[Texts], current: int = 1, menu: Sequence[str] = ()) -> Observation:
    """Impress in front with a slide shown, and a menu open where entries are given."""
    rows: list[list[Any]] = [["document-presentation", "deck", "", 190, 120, 680, 560, ["sen", "edt"], 0]]
    lines = [text for box in slides[current - 1] for text in box.split("\n") if text]
    for n, text in enumerate(lines):
        rows.append(["paragraph", "", text, 230, 200 + 40 * n, 80, 30, ["sen", "edt"], 0])
    for n, label in enumerate(BUTTONS):
        rows.append(["push-button", label, "", 90 + 40 * n, 46, 33, 35, ["sen"], 0])
    for n, label in enumerate(("File", "Slide", "Slide Show")):
        rows.append(["menu", label, "", 10 + 60 * n, 20, 48, 25, ["sen"], 0])
    for n, label in enumerate(menu):
        rows.append(["menu" if label == "Move" else "menu-item", label, "", 240, 44 + 25 * n, 300, 25, ["sen"], 0])
    told = [f"slides: {len(slides)}; current: {current}"]
    for number, (title, outline) in enumerate(slides, 1):
        texts = (f": {text}".replace("\n", "\\n") if text else "" for text in (title, outline))
        told += [
            f"Slide {number}:",
            *(f"- Box {at} ({kind}){text}" for at, (kind, text) in enumerate(zip(KINDS, texts, strict=True))),
        ]
    window = {"id": 6, "class": "libreoffice-impress", "title": f"{goal.target} - LibreOffice Impress", "active": True}
    return from_guest({"windows": [window], "elements": rows, "info": "\n".join(told)})


@pytest.mark.parametrize("part", PARTS)
def test_an_instance_is_small_and_its_slides_fit_into_a_compact_prompt(part: str) -> None:
    for seed in range(40):
        goal, task = PRESENTATION.goal(tasks.goal(f"{part}/{seed}")), tasks.task(f"{part}/{seed}")
        assert 2 <= len(goal.slides) <= 4
        assert goal.finish != goal.slides
        for slides in (goal.slides, goal.finish):
            info = impress(goal, slides).info
            assert not escaped(info, COMPACT_TEXT * 5).endswith("...")
        step = task.config[0]
        assert isinstance(step, osworld.Download)
        assert data_of(step.files[0].url).startswith(b"PK")


def instance(family: str, kind: str, wanted: Any = lambda goal: True) -> tuple[str, PresentationGoal]:
    """The first training instance of a kind that is `wanted`."""
    ids = (f"{family}/{TRAIN}/{seed}" for seed in range(500))
    goals = ((task_id, PRESENTATION.goal(tasks.goal(task_id))) for task_id in ids)
    return next((task_id, goal) for task_id, goal in goals if goal.kind == kind and wanted(goal))


def test_an_emptied_box_is_left_before_saving() -> None:
    task_id, goal = instance("slides_text", "clear", lambda goal: goal.slide == 1)
    box = 0 if goal.finish[0][0] == "" else 1
    emptied = [Turn("", "Agent.type(overwrite=True)", "")]
    still_told = impress(goal, goal.slides)
    rest = tuple(e for e in still_told.elements if e.text not in goal.slides[0][box].split("\n"))
    seen = Observation(still_told.windows, rest, still_told.info)
    assert line(moved(task_id, seen, emptied)) == "Agent.hotkey(keys=['esc'])"
    assert line(moved(task_id, seen, [])) == "Agent.wait()"
    called = f"ImpressTools.delete_content(slide_index=1, box_index={box})"
    assert line(moved(task_id, still_told, [], "api")) == called


@pytest.mark.parametrize("part", PARTS)
def test_a_forged_number_of_a_slide_stops_no_oracle(part: str) -> None:
    task_id = f"{part}/3"
    goal = PRESENTATION.goal(tasks.goal(task_id))
    forged = msgspec.structs.replace(impress(goal, goal.slides), info=f"slides: 1; current: {'9' * 4900}")
    for route in tasks.FAMILIES[goal.family].routes:
        assert tasks.oracle(task_id, seed=0, route=route).answer(forged, [])


@pytest.mark.parametrize("form", ["compact", "published"])
def test_a_box_is_entered_and_then_typed_into_in_every_form(form: str) -> None:
    """The second step knows the first again, whose place the published form tells in pixels."""
    for seed in range(10):
        task_id = f"slides_text/train/{seed}"
        goal = PRESENTATION.goal(tasks.goal(task_id))
        changed = next(n for n, pair in enumerate(zip(goal.slides, goal.finish, strict=True), 1) if pair[0] != pair[1])
        observation = impress(goal, goal.slides, changed)
        history: list[Turn] = []
        for _ in range(4):
            answer = tasks.oracle(task_id, seed, 0.0, "gui").answer(observation, history, form)
            action = parse(answer, observation.app, element_names(observation), window_names(observation), form)
            assert isinstance(action, Action), (answer, action)
            if isinstance(action, Type):
                break
            history.append(Turn("", line(action), ""))
        else:
            raise AssertionError([turn.line for turn in history])
