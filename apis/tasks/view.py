"""One step as an oracle sees it, and the moves it may answer with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from apis.actions.arguments import Unit, counted
from apis.actions.gui import Action, Click, DragAndDrop, Place, Scroll, SwitchWindow, Type, line
from apis.observation import Element, Observation
from apis.prompts.compact import element_names, place, window_names
from apis.prompts.text import Turn


@dataclass(frozen=True)
class View:
    """One step as an oracle sees it."""

    goal: Goal
    observation: Observation
    history: Sequence[Turn]
    route: Random  # drawn from in the same order at every step of an episode: the route it takes
    turn: Random  # drawn from again at every step: who takes it where several routes may

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


def in_unit(action: Action, screen: tuple[int, int], unit: Unit) -> Action:
    """The same action with its places in `unit`, as an answer has them; `screen` is in pixels."""

    def written(where: Place) -> Place:
        if isinstance(where, str):
            return where
        return counted(where[0], screen[0], unit), counted(where[1], screen[1], unit)

    match action:
        case Click(coordinates=where) | Scroll(coordinates=where):
            return msgspec.structs.replace(action, coordinates=written(where))
        case Type(coordinates=where) if where is not None:
            return msgspec.structs.replace(action, coordinates=written(where))
        case DragAndDrop(drag_from_coordinates=start, drop_on_coordinates=end):
            return DragAndDrop(drag_from_coordinates=written(start), drop_on_coordinates=written(end))
    return action


@dataclass(frozen=True)
class Goal:
    """What an instance asks for. `kind` is the family's own word for the manner of task."""

    kind: str
    instruction: str
    target: str = ""  # file or folder name the task is about
    wanted: str = ""  # text or name that shall be there in the end
    files: tuple[tuple[str, str], ...] = ()  # what lies in Documents at the start: name, content
    end: tuple[tuple[str, str | None], ...] = ()  # all that lies there in the end, where a family says so; None: folder
    words: tuple[str, ...] = ()  # what else its oracle needs, in an order of the family's own
    front: str = ""  # the application whose window is in front at the start, where there are two
    family: str = ""  # its name, which the family fills in
