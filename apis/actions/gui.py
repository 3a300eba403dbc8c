"""The ten GUI actions under their published names, and the typed actions that answers become.

A function is declared once: a GUI action here in `GUI`, an application's in `apis/apps`. The prompt's text, the
grammar's checks and the dispatch all read that declaration, so they can't disagree.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from apis.actions.arguments import MEANING
from apis.actions.spaces import ActionSpace, holds
from apis.applications import APPS
from apis.catalogue import TOOLS, declared
from apis.functions.declaration import Action, Function, Param, Tool
from apis.functions.keys import KEYS

MAX_TEXT = 1000  # characters a single action may type or quote

Place = tuple[int, int] | str  # screen pixels, or the name of an element of the current observation ("e12")


class Click(Action, frozen=True, tag="click"):
    """Press a mouse button."""

    coordinates: Place
    num_clicks: int = 1
    button_type: str = "left"


class Type(Action, frozen=True, tag="type"):
    """Type text, after clicking `coordinates` if given."""

    coordinates: Place | None = None
    text: str = ""
    overwrite: bool = False
    enter: bool = False


class DragAndDrop(Action, frozen=True, tag="drag_and_drop"):
    """Drag with the left button."""

    drag_from_coordinates: Place
    drop_on_coordinates: Place


class Scroll(Action, frozen=True, tag="scroll"):
    """Turn the wheel."""

    coordinates: Place
    direction: str


class OpenApp(Action, frozen=True, tag="open_app"):
    """Start an application by its published name."""

    app_name: str


class SwitchWindow(Action, frozen=True, tag="switch_window"):
    """Bring a window to the front; `window_id` is as shown ("w2", or the number in the published form)."""

    window_id: str


class Hotkey(Action, frozen=True, tag="hotkey"):
    """Press keys together."""

    keys: tuple[str, ...]


class Quote(Action, frozen=True, tag="quote"):
    """Keep a note: it becomes the result of the action."""

    content: str


class Wait(Action, frozen=True, tag="wait"):
    """Let time pass."""


class Exit(Action, frozen=True, tag="exit"):
    """End the episode, claiming success or giving up."""

    success: bool


AnyAction = Click | Type | DragAndDrop | Scroll | OpenApp | SwitchWindow | Hotkey | Quote | Wait | Exit | Tool


OPEN_APP_NAMES: tuple[str, ...] = (
    "chrome", "files", "terminal", "gedit", "libreoffice writer", "libreoffice calc", "libreoffice impress",
    "settings", "vlc", "gimp", "vs code", "thunderbird",
)  # fmt: skip
OPEN_APP_NAMES += tuple(app.published for app in APPS if app.published and app.published not in OPEN_APP_NAMES)

_AT = Param("coordinates", "place", "List", meaning=f"[x, y] {MEANING['pixels']}")

GUI: tuple[Function, ...] = (
    Function(
        "Agent",
        "open_app",
        OpenApp,
        (Param("app_name", "choice", "str", OPEN_APP_NAMES, meaning="which application"),),
        "Start an application or bring up a new window of it.",
    ),
    Function(
        "Agent",
        "click",
        Click,
        (
            _AT,
            Param("num_clicks", "integer", "int", (1, 3), 1, "2 for a double click"),
            Param("button_type", "choice", "str", ("left", "middle", "right"), "left", "which mouse button"),
        ),
        "Click at a place on the screen.",
    ),
    Function(
        "Agent",
        "type",
        Type,
        (
            Param(
                "coordinates",
                "place",
                "Optional[List]",
                (),
                None,
                "where to click first; None types where the caret is",
            ),
            Param("text", "text", "str", (MAX_TEXT,), "", "what to type"),
            Param("overwrite", "boolean", "bool", (), False, "select all and delete before typing"),
            Param("enter", "boolean", "bool", (), False, "press Enter afterwards"),
        ),
        "Type text, into the field at a place or where the caret stands.",
    ),
    Function(
        "Agent",
        "drag_and_drop",
        DragAndDrop,
        (
            Param("drag_from_coordinates", "place", "List", meaning="where the button goes down"),
            Param("drop_on_coordinates", "place", "List", meaning="where it comes up"),
        ),
        "Drag something from one place to another with the left button.",
    ),
    Function(
        "Agent",
        "scroll",
        Scroll,
        (_AT, Param("direction", "choice", "str", ("up", "down"), meaning="which way the wheel turns")),
        "Turn the mouse wheel over a place.",
    ),
    Function(
        "Agent",
        "switch_window",
        SwitchWindow,
        (Param("window_id", "window", "str", meaning="a window id from the list of windows"),),
        "Bring another window to the front.",
    ),
    Function(
        "Agent",
        "hotkey",
        Hotkey,
        (Param("keys", "keys", "List", tuple(KEYS), meaning="up to four keys pressed together, e.g. ['ctrl', 's']"),),
        "Press a key or a combination of keys.",
    ),
    Function(
        "Agent",
        "quote",
        Quote,
        (Param("content", "text", "str", (MAX_TEXT,), meaning="the note"),),
        "Keep a note for later steps: it is shown as the result of this action.",
    ),
    Function("Agent", "wait", Wait, (), "Do nothing for a moment, when something is still loading."),
    Function(
        "Agent",
        "exit",
        Exit,
        (Param("success", "boolean", "bool", meaning="True when the task is done, False when it can't be done"),),
        "End the task.",
    ),
)

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
