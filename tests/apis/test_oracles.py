"""Oracles without a desktop: they answer alike when asked again, in either form, and every answer is an action."""

import pytest

from apis import tasks
from apis.actions import Action, line
from apis.forms import Turn, element_names, window_names
from apis.grammar import parse
from apis.observation import Observation, from_guest
from apis.tasks.families import file_manager, text_editor


def editor(title: str, text: str) -> Observation:
    rows = [["menu", "File", "", 0, 19, 39, 25, ["sen"], 0], ["text", "", text, 1, 47, 1278, 670, ["sen", "edt"], 0]]
    return from_guest({"windows": [{"id": 5, "class": "Mousepad", "title": title, "active": True}], "elements": rows})


def manager(names: list[str], chosen: str = "") -> Observation:
    rows: list[list[object]] = [["text", "", "/home/agent/Documents", 197, 48, 1047, 34, ["sen", "edt"], 0]]
    for n, name in enumerate(sorted(names)):
        rows.append(["icon", "", name, 162 + 94 * n, 91, 88, 82, ["sen", "sel"] if name == chosen else ["sen"], 0])
    return from_guest(
        {"windows": [{"id": 5, "class": "Pcmanfm", "title": "Documents", "active": True}], "elements": rows}
    )


def first_look(task_id: str) -> Observation:
    goal = tasks.goal(task_id)
    if goal.family == text_editor.NAME:
        return editor(f"{goal.target} - Mousepad", goal.files[0][1])
    return manager([name for name, _ in goal.files])


@pytest.mark.parametrize("family", sorted(tasks.FAMILIES))
@pytest.mark.parametrize("form", ["compact", "paper"])
def test_every_answer_is_an_action_and_the_same_when_asked_again(family: str, form: str) -> None:
    seen = set()
    for seed in range(60):
        task_id = f"{family}/train/{seed}"
        observation, history = first_look(task_id), [Turn("a", "Agent.wait()", "Wait Success")] * (seed % 3)
        answer = tasks.oracle(task_id, seed, 0.3).answer(observation, history, form)
        assert answer == tasks.oracle(task_id, seed, 0.3).answer(observation, history, form)
        action = parse(answer, observation.app, element_names(observation), window_names(observation), form)
        assert isinstance(action, Action), action
        seen.add(line(action).partition("(")[0])
    assert len(seen) >= 3  # several routes


def test_the_file_manager_oracle_acts_on_the_right_file() -> None:
    kinds = set()
    for seed in range(40):
        goal = tasks.goal(f"{file_manager.NAME}/train/{seed}")
        if goal.kind == "folder":
            continue
        observation = manager([name for name, _ in goal.files])
        _, action = tasks.oracle(f"{file_manager.NAME}/train/{seed}", seed).move(observation, [])
        assert element_names(observation)[action.coordinates].label == goal.target  # type: ignore[attr-defined]
        kinds.add(goal.kind)
    assert kinds == {"rename", "delete"}


def test_the_text_editor_oracle_saves_before_it_claims() -> None:
    task_id = f"{text_editor.NAME}/train/1"
    wanted = tasks.goal(task_id).wanted
    unsaved = tasks.oracle(task_id, 0).answer(editor("*a.txt - Mousepad", wanted), [])
    saved = tasks.oracle(task_id, 0).answer(editor("a.txt - Mousepad", wanted + "\n"), [])
    assert "exit" not in unsaved
    assert saved == "saved -> done\nAgent.exit(success=True)"
