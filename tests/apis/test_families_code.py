"""VS Code's oracles without a desktop: they end only when all is saved, in few steps, and find back."""

from __future__ import annotations

import pytest

from apis.actions.gui import Action, Exit, Tool, line
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families import code_extension
from apis.tasks.families.code_extension import listed
from apis.tasks.words import HELD_OUT, TRAIN
from tests.apis.code_stand_in import Window, window_of
from tests.apis.moves import families_on, moved

ROUTES = [(name, route) for name in families_on("code") for route in sorted(tasks.FAMILIES[name].routes)]
MOST_STEPS = 8


def split_of(family: str) -> str:
    return TRAIN if tasks.FAMILIES[family].trained else HELD_OUT


def played(task_id: str, route: str, seed: int, window: Window, noise: float = 0.0) -> list[Action]:
    """What the oracle does from what `window` shows to its end, which must come within an episode's answers."""
    oracle, history, did = tasks.oracle(task_id, seed, noise, route), list[Turn](), list[Action]()
    while not did or not isinstance(did[-1], Exit):
        assert len(did) < 12, did
        thought, action = oracle.move(window.look(), history)
        did.append(action)
        if not isinstance(action, Exit):
            history.append(Turn(thought, line(action), window.do(action)))
    return did


@pytest.mark.parametrize(("family", "route"), ROUTES)
def test_what_an_oracle_leaves_is_what_was_asked_for(family: str, route: str) -> None:
    for seed in range(60):
        task_id = f"{family}/{split_of(family)}/{seed}"
        goal, window = tasks.goal(task_id), window_of(tasks.goal(task_id))
        steps = played(task_id, route, seed, window)
        assert len(steps) <= MOST_STEPS, steps
        if family == "code_extension":
            assert sorted(window.extensions) == listed(goal)
        else:
            assert {name: text.rstrip("\n") for name, text in window.files.items()} == {
                name: (text or "").rstrip("\n") for name, text in goal.end
            }
        assert route != "gui" or not any(isinstance(step, Tool) for step in steps)


@pytest.mark.parametrize("route", ["gui", "api", "mixed"])
def test_an_answer_about_another_extension_does_not_end_the_task(route: str) -> None:
    for seed in range(20):
        task_id = f"code_extension/train/{seed}"
        goal, name = tasks.goal(task_id), f"{tasks.goal(task_id).kind}_extension"
        asked = code_extension.wish(goal)
        history = [
            Turn("", line(Tool(owner="CodeTools", name=name, arguments={"extension_id": "fox"})), result)
            for result in ("Failed: extension_id: fox is not installed; there are: a.b", "a.fox 1.0.0 is installed")
        ]
        look = window_of(goal).look()
        assert not isinstance(moved(task_id, look, history, route), Exit)
        done = Turn("", line(asked), f"{goal.wanted} 1.0.0 {code_extension.DONE[goal.kind][0]}")
        assert moved(task_id, look, [*history, done], route) == Exit(success=True)
