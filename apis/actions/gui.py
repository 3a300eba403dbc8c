"""The ten GUI actions under their published names, and the typed actions that answers become.

A function is declared once: a GUI action by its type here, an application's in `apis/apps`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from apis.actions.arguments import KEYS, MEANING
from apis.actions.spaces import ActionSpace, holds
from apis.applications import APPS
from apis.catalogue import TOOLS, declared
from apis.functions.declaration import Action, Function, Param, Tool

MAX_TEXT = 1000  # characters a single action may type or quote

Place = tuple[int, int] | str  # screen pixels, or the name of an element of the current observation ("e12")


OPEN_APP_NAMES: tuple[str, ...] = (
    "chrome", "files", "terminal", "gedit", "libreoffice writer", "libreoffice calc", "libreoffice impress",
    "settings", "vlc", "gimp", "vs code", "thunderbird",
)  # fmt: skip
OPEN_APP_NAMES += tuple(app.published for app in APPS if app.published and app.published not in OPEN_APP_NAMES)


class Takes(NamedTuple):
    """What a `Param` says of an action's field besides its name and default."""

    kind: str
    published_type: str
    limits: tuple[Any, ...] = ()
    meaning: str = ""


_At = Annotated[Place, Takes("place", "List", (), f"[x, y] {MEANING['pixels']}")]


class OpenApp(Action, frozen=True, tag="open_app"):
    """Start an application or bring up a new window of it."""

    app_name: Annotated[str, Takes("choice", "str", OPEN_APP_NAMES, "which application")]


class Click(Action, frozen=True, tag="click"):
    """Click at a place on the screen."""

    coordinates: _At
    num_clicks: Annotated[int, Takes("integer", "int", (1, 3), "2 for a double click")] = 1
    button_type: Annotated[str, Takes("choice", "str", ("left", "middle", "right"), "which mouse button")] = "left"


class Type(Action, frozen=True, tag="type"):
    """Type text, into the field at a place or where the caret stands."""

    coordinates: Annotated[
        Place | None, Takes("place", "Optional[List]", (), "where to click first; None types where the caret is")
    ] = None
    text: Annotated[str, Takes("text", "str", (MAX_TEXT,), "what to type")] = ""
    overwrite: Annotated[bool, Takes("boolean", "bool", (), "select all and delete before typing")] = False
    enter: Annotated[bool, Takes("boolean", "bool", (), "press Enter afterwards")] = False


class DragAndDrop(Action, frozen=True, tag="drag_and_drop"):
    """Drag something from one place to another with the left button."""

    drag_from_coordinates: Annotated[Place, Takes("place", "List", (), "where the button goes down")]
    drop_on_coordinates: Annotated[Place, Takes("place", "List", (), "where it comes up")]


class Scroll(Action, frozen=True, tag="scroll"):
    """Turn the mouse wheel over a place."""

    coordinates: _At
    direction: Annotated[str, Takes("choice", "str", ("up", "down"), "which way the wheel turns")]


class SwitchWindow(Action, frozen=True, tag="switch_window"):
    """Bring another window to the front."""

    # As shown: "w2", or the number in the published form.
    window_id: Annotated[str, Takes("window", "str", (), "a window id from the list of windows")]


class Hotkey(Action, frozen=True, tag="hotkey"):
    """Press a key or a combination of keys."""

    keys: Annotated[
        tuple[str, ...], Takes("keys", "List", KEYS, "up to four keys pressed together, e.g. ['ctrl', 's']")
    ]


class Quote(Action, frozen=True, tag="quote"):
    """Keep a note for later steps: it is shown as the result of this action."""

    content: Annotated[str, Takes("text", "str", (MAX_TEXT,), "the note")]


class Wait(Action, frozen=True, tag="wait"):
    """Do nothing for a moment, when something is still loading."""


class Exit(Action, frozen=True, tag="exit"):
    """End the task."""

    success: Annotated[bool, Takes("boolean", "bool", (), "True when the task is done, False when it can't be done")]


AnyAction = Click | Type | DragAndDrop | Scroll | OpenApp | SwitchWindow | Hotkey | Quote | Wait | Exit | Tool


def _declared(action: type[Action]) -> Function:
    """The declaration of a GUI action; its docstring is what a prompt says of it."""
    hints = get_type_hints(action, include_extras=True)
    params = []
    for field in msgspec.structs.fields(action):
        (takes,) = hints[field.name].__metadata__
        params.append(Param(field.name, takes.kind, takes.published_type, takes.limits, field.default, takes.meaning))
    return Function("Agent", str(action.__struct_config__.tag), action, tuple(params), str(action.__doc__))


_ACTIONS: tuple[type[Action], ...] = (
    OpenApp, Click, Type, DragAndDrop, Scroll, SwitchWindow, Hotkey, Quote, Wait, Exit,
)  # fmt: skip
GUI = tuple(_declared(action) for action in _ACTIONS)

LITERALS: dict[str, AnyAction] = {"WAIT": Wait(), "DONE": Exit(success=True), "FAIL": Exit(success=False)}


def functions_for(app: str, space: ActionSpace = "both") -> dict[str, Function]:
    """All functions a model may call while `app` is active, by dotted name; an application without tools has `GUI`."""
    return {f"{f.owner}.{f.name}": f for f in (*GUI, *TOOLS.get(app, ())) if holds(space, f)}


def function_of(action: Action) -> Function:
    """The declaration behind an action. Raises LookupError for a tool that no application has."""
    return declared(action.owner, action.name) if isinstance(action, Tool) else _BY_ACTION[type(action)]


_BY_ACTION = {f.action: f for f in GUI}


def line(action: Action) -> str:
    """The action as the one Python line that a model would write for it; arguments at their defaults are left out."""
    function = function_of(action)
    given = action.arguments if isinstance(action, Tool) else {p.name: getattr(action, p.name) for p in function.params}
    pairs = ((param, given[param.name]) for param in function.params if param.name in given)
    arguments = (f"{param.name}={_literal(param, value)}" for param, value in pairs if value != param.default)
    return f"{function.owner}.{function.name}({', '.join(arguments)})"


def _literal(param: Param, value: Any) -> str:
    if param.kind in ("place", "window") and isinstance(value, str):
        return value if value.isidentifier() else repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(param, item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_literal(param, item)}' for key, item in value.items())}}}"
    return f"{Decimal(repr(value)):f}" if isinstance(value, float) else repr(value)
