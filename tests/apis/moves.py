"""Families and their oracles without a desktop: which there are, what an oracle does next, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence

from apis.actions.grammar import parse
from apis.actions.gui import Action, Exit
from apis.observation import Observation, from_guest
from apis.prompts.compact import element_names, window_names
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.words import HELD_OUT, TRAIN

Row = list[object]  # an element, as the guest lists it


def families_on(app: str) -> list[str]:
    """Names of the families whose application is `app`."""
    return sorted(name for name, family in tasks.FAMILIES.items() if family.app == app)


def split_of(family: str) -> str:
    """The split that its instances are tried in: of training, if it has that."""
    return TRAIN if tasks.FAMILIES[family].trained else HELD_OUT


def parts(families: Sequence[str]) -> list[str]:
    """Families with each of their splits, as ids of tasks begin."""
    return [
        f"{name}/{split}"
        for name in families
        for split in ((TRAIN, HELD_OUT) if tasks.FAMILIES[name].trained else (HELD_OUT,))
    ]


def screen(
    wm_class: str, title: str, rows: list[Row], other: str = "", title_behind: str = "xterm", info: str = ""
) -> Observation:
    """A window in front with these elements, and perhaps another one behind."""
    windows = [{"id": 5, "class": wm_class, "title": title, "active": True}]
    windows += [{"id": 0xC00003, "class": other, "title": title_behind, "active": False}] * bool(other)
    return from_guest({"windows": windows, "elements": rows, "info": info})


def moved(task_id: str, observation: Observation, history: list[Turn], route: str = "gui", seed: int = 0) -> Action:
    """What the task's oracle does by `route`."""
    return tasks.oracle(task_id, seed, route=route).move(observation, history)[1]


def answers_alike(
    task_id: str, observation: Observation, form: str, route: str, seed: int, *,
    history: Sequence[Turn] = (), noise: float = 0.0,
) -> None:  # fmt: skip
    """The oracle's answer is an action other than the end, and the same when asked again."""
    answers = [tasks.oracle(task_id, seed, noise, route).answer(observation, list(history), form) for _ in range(2)]
    assert answers[0] == answers[1]
    action = parse(answers[0], observation.app, element_names(observation), window_names(observation), form)
    assert isinstance(action, Action), (answers, action)
    assert not isinstance(action, Exit)
