"""Action spaces: which of the declared actions an agent has.

Ending, switching, starting an application, noting and waiting belong to every space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from apis.functions.declaration import Action, Function, Tool

ActionSpace = Literal["both", "gui", "api"]
SPACES: tuple[ActionSpace, ...] = ("both", "gui", "api")
AGENT = "Agent"  # the owner of all that is no application's function
MOUSE_AND_KEYBOARD = frozenset({"click", "type", "drag_and_drop", "scroll", "hotkey"})
MEANING: Mapping[ActionSpace, str] = {
    "both": "mouse, keyboard and the functions of applications",
    "gui": "mouse and keyboard, no function of an application",
    "api": "the functions of applications, no mouse and no keyboard",
}
MIXED = "mixed"  # the route whose every step is either by the GUI or by a function
_ONE_WAY: Mapping[ActionSpace, str] = {"gui": "gui", "api": "api"}


def holds(space: ActionSpace, function: Function) -> bool:
    """Whether `space` has `function`."""
    if function.owner != AGENT:
        return space != "gui"
    return space != "api" or function.name not in MOUSE_AND_KEYBOARD


def allows(space: ActionSpace, action: Action) -> bool:
    """Whether `space` has the function behind `action`."""
    if isinstance(action, Tool):
        return space != "gui"
    return space != "api" or str(action.__struct_config__.tag) not in MOUSE_AND_KEYBOARD


def routes_in(space: ActionSpace, routes: Iterable[str]) -> list[str]:
    """Those of `routes` that keep to `space`, sorted; in "both" all of them do."""
    only = _ONE_WAY.get(space)
    return sorted(route for route in routes if only is None or route == only)
