"""How an oracle looks at a step and says what to do.

Invariant: an oracle sees what the model sees, and its answer is a function of task, seed, observation and history, so
it can take over an episode at any step and a repeated question gets the same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import msgspec

from apis.actions.gui import Action, Click, DragAndDrop, Hotkey, Scroll, SwitchWindow, Type, Wait, line
from apis.actions.spaces import MIXED, ActionSpace, allows
from apis.applications import APP_NAMES
from apis.observation import Element, Observation
from apis.prompts.compact import Turn, element_names, escaped, place, window_names
from apis.tasks.family import Family, Goal

NOT_HERE = "no action for this -> wait"
THOUGHT_NAME = 40  # characters of an element's text repeated in a thought


@dataclass(frozen=True)
class View:
    """One step as an oracle sees it."""

    goal: Goal
    observation: Observation
    history: Sequence[Turn]
    route: Random  # drawn from in the same order at every step of an episode: the route it takes
    turn: Random  # drawn from anew at every step: who takes it where several routes may

    @property
    def elements(self) -> dict[str, Element]:
        """What the compact form lists."""
        return element_names(self.observation)

    @property
    def title(self) -> str:
        """The active window's title."""
        active = self.observation.active
        return self.observation.windows[active].title if active >= 0 else ""

    def find(self, tag: str, wanted: Callable[[Element], bool]) -> str | None:
        """Name of the first element of `tag` that `wanted` accepts."""
        return next((name for name, e in self.elements.items() if e.tag == tag and wanted(e)), None)

    def labelled(self, tag: str, start: str) -> str | None:
        """Name of the first element of `tag` whose text begins with `start`."""
        return self.find(tag, lambda element: element.label.startswith(start))

    def field(self) -> str | None:
        """Name of the first editable text."""
        return self.find("text", lambda element: element.editable)

    def last_line(self) -> str:
        """The line of the step before, "" when there is none or it was refused."""
        return (self.history[-1].line or "") if self.history else ""

    def has_menu_of(self, icon: str) -> bool:
        """Whether the step before opened the context menu of the icon called `icon`, which may cover the icon."""
        last = self.history[-1] if self.history else None
        return last is not None and bool(last.line) and f"icon {icon} -> menu" in last.answer

    def did(self, action: Action) -> bool:
        """Whether the step before was exactly `action`, in whichever form of prompts it was said."""
        last = self.last_line()
        if last == line(action):
            return True
        try:
            return last == line(on_screen(action, self.observation))
        except KeyError:  # what it points at is not there any more
            return False


Move = tuple[str, Action]  # a short thought, and what to do
Decide = Callable[[View], Move]


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

    def answer(self, observation: Observation, history: Sequence[Turn], form: str = "compact") -> str:
        """The move as a model of that form would write it."""
        thought, action = self.move(observation, history)
        if form == "compact":
            return f"{thought}\n{line(action)}"
        return f"<think>{thought}</think>\n```python\n{line(on_screen(action, observation))}\n```"


def on_screen(action: Action, observation: Observation) -> Action:
    """The same action with pixels and window numbers in place of names, as the published form has it."""
    match action:
        case Click(coordinates=str(name)) | Type(coordinates=str(name)) | Scroll(coordinates=str(name)):
            return msgspec.structs.replace(action, coordinates=place(name, observation))
        case DragAndDrop(drag_from_coordinates=start, drop_on_coordinates=end):
            return DragAndDrop(
                drag_from_coordinates=place(start, observation), drop_on_coordinates=place(end, observation)
            )
        case SwitchWindow(window_id=name) if name.startswith("w"):
            return SwitchWindow(window_id=f"0x{window_names(observation)[name]:08x}")
    return action


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
