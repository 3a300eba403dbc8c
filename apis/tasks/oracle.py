"""How an oracle looks at a step and says what to do.

Invariant: an oracle sees what the model sees. Its answer is a function of task, seed, observation and history. It can
take over an episode at any step, and a repeated question gets the same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from apis.actions.gui import Click, Hotkey, SwitchWindow, Type, Wait, line
from apis.actions.spaces import MIXED, ActionSpace, allows
from apis.applications import APP_NAMES
from apis.observation import Observation
from apis.prompts import USUAL, Sight
from apis.prompts.compact import window_names
from apis.prompts.text import Turn, escaped
from apis.tasks.family import Family
from apis.tasks.view import Decide, Goal, Move, View, in_unit, on_screen

NOT_HERE = "no action for this -> wait"
THOUGHT_NAME = 40  # characters of an element's text repeated in a thought


def pointed(view: View, name: str, verb: str) -> str:
    """The thought that goes with pointing at an element: its name, its row, and why."""
    element = view.elements[name]
    return f"{name} {element.tag} {escaped(element.label.strip(), THOUGHT_NAME)} -> {verb}"


def click(view: View, name: str, verb: str = "click", button: str = "left") -> Move:
    """Click an element."""
    return pointed(view, name, verb), Click(coordinates=name, button_type=button)


def switch(view: View, app: str, titled: str = "") -> Move:
    """Bring a window of `app` to the front whose title holds `titled`, or wait for it."""
    for name, number in window_names(view.observation).items():
        for window in view.observation.windows:
            if window.number == number and window.app == app and titled in window.title:
                return f"{name} {escaped(window.title, THOUGHT_NAME)} -> switch", SwitchWindow(window_id=name)
    return "wait for the window", Wait()


def keys(thought: str, *names: str) -> Move:
    """Press keys."""
    return thought, Hotkey(keys=names)


def mixed(gui: Decide, api: Decide) -> Decide:
    """The route whose every step is by one of the two, each as likely, as the step's own draw says."""
    return lambda view: (gui if view.turn.random() < 0.5 else api)(view)


def with_mixed(family: Family) -> Family:
    """`family`, with the mixed route where it goes by GUI and by functions and has no mixed route of its own."""
    routes = family.routes
    if MIXED in routes or not {"gui", "api"} <= routes.keys():
        return family
    return replace(family, routes={**routes, MIXED: mixed(routes["gui"], routes["api"])})


class Oracle:
    """Solves one task by one route; with `noise` it takes, that often, a step that does no harm and then recovers.

    It takes no action outside `space`: where its route has no other, it waits.
    """

    def __init__(
        self,
        goal: Goal,
        decide: Decide,
        seed: int = 0,
        noise: float = 0.0,
        apps: tuple[str, ...] = (),
        *,
        space: ActionSpace = "both",
    ) -> None:
        self._goal = goal
        self._apps = apps  # those that the task needs, the main one first; () when any will do
        self._decide = decide
        self._seed = seed
        self._noise = noise
        self._space = space

    def _random(self, part: str) -> Random:
        return Random(hashlib.blake2b(f"{self._seed} {part}".encode(), digest_size=8).digest())  # noqa: S311 - no secret

    def move(self, observation: Observation, history: Sequence[Turn]) -> Move:
        """What to do now."""
        turn = self._random(f"turn {len(history)}")
        view = View(self._goal, observation, history, self._random("route"), turn)
        chance = self._random(f"step {len(history)}")
        if chance.random() < self._noise and (stray := _stray(view, chance, self._space)):
            return stray
        if self._apps and observation.app in APP_NAMES and observation.app not in self._apps:
            return switch(view, self._apps[0])
        thought, action = self._decide(view)
        return (thought, action) if allows(self._space, action) else (NOT_HERE, Wait())

    def answer(
        self, observation: Observation, history: Sequence[Turn], form: str = "compact", sight: Sight = USUAL
    ) -> str:
        """The move as a model of that form and `sight` would write it: without a tree no element has a name."""
        thought, action = self.move(observation, history)
        if form == "published" or not (sight.tree or isinstance(action, SwitchWindow)):
            action = on_screen(action, observation)
        written = line(in_unit(action, observation.screen, sight.unit))
        return f"{thought}\n{written}" if form == "compact" else f"<think>{thought}</think>\n```python\n{written}\n```"


def _stray(view: View, chance: Random, space: ActionSpace) -> Move | None:
    """A step of `space` that leads nowhere and breaks nothing; a dialog it closes is simply opened again."""
    elements = view.elements.items()
    files = view.observation.app == "file_manager"
    icons = [name for name, e in elements if files and e.tag == "icon" and e.label != view.goal.target]
    strays: list[Move] = [("wait a moment", Wait())]
    if icons:
        name = chance.choice(icons)
        strays.append(click(view, name))
    if view.find("push-button", lambda e: e.label == "Cancel") or view.find("menu-item", lambda e: True):
        strays.append(keys("close this", "esc"))
    if view.find("terminal", lambda e: e.text.rstrip().endswith("\n$") or e.text.rstrip() == "$"):
        strays.append(("look around", Type(text="ls", enter=True)))
    return chance.choice([stray for stray in strays if allows(space, stray[1])])
