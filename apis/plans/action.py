"""What a typed action asks of the guest agent.

Values of the model reach the guest only as arguments of the agent's declared methods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

from apis.actions import gui
from apis.actions.arguments import KEYS
from apis.applications import APPS, app_of_class, app_published
from apis.apps.ranking import of_menu
from apis.observation import Observation
from apis.prompts.compact import place, window_names

SCROLL_NOTCHES = 5
BUTTONS = {"left": 1, "middle": 2, "right": 3}
MAX_RESULT = 2000  # characters
SIGNS_A_CALL = 200  # of a typed text: an application on a busy machine takes up to 80 ms for each
OPEN_MS = 10_000  # for a window to come and to be accessible


@dataclass(frozen=True)
class Call:
    """One request to the guest agent; what a command writes is `kept` under this name for the verifier.

    One that is `optional` may be refused, and so many calls that come after it are left out then. None: it may not.
    """

    method: str
    args: dict[str, Any] = field(default_factory=dict)
    kept: str = ""
    optional: int | None = None


SETTLE = Call("settle", {"timeout_ms": 2000, "quiet_ms": 60})
BRIEFLY = Call("settle", {"timeout_ms": 400, "quiet_ms": 20})  # between a click and the typing that follows it


@dataclass(frozen=True)
class ActionPlan:
    """How to carry out an action: calls in order, the result that the model sees, and whether the episode ends."""

    calls: tuple[Call, ...]
    result: str
    ends: bool | None = None  # the claim of Agent.exit
    answer: int | None = None  # index of the call whose own answer, a text, is the result instead


@singledispatch
def plan(action: gui.Action, observation: Observation) -> ActionPlan:
    """The plan for `action`, chosen while `observation` was shown."""
    raise TypeError(f"{type(action).__name__} has no plan")


@plan.register
def _(action: gui.Click, observation: Observation) -> ActionPlan:
    x, y = place(action.coordinates, observation)
    args = {"x": x, "y": y, "button": BUTTONS[action.button_type], "n": action.num_clicks}
    return ActionPlan((Call("click", args), SETTLE), "Click Success")


@plan.register
def _(action: gui.Type, observation: Observation) -> ActionPlan:
    calls: list[Call] = []
    if action.coordinates is not None:
        x, y = place(action.coordinates, observation)
        calls += [Call("click", {"x": x, "y": y}), BRIEFLY]
    on_cell = _on_cell(action, observation)
    if action.overwrite and on_cell and not action.text:
        calls.append(pressed("delete"))
    if action.overwrite and not on_cell:
        # LibreOffice selects after it has taken the next key; that would delete one character and then select the rest.
        pause = (BRIEFLY,) if observation.app.startswith("libreoffice") else ()
        calls += [pressed("ctrl", "a"), *pause, pressed("backspace")]
    answer = None
    if action.text:
        calls += typed(action.text)
        answer = len(calls) - 1
    if action.enter:
        calls += [BRIEFLY, pressed("enter")]
    return ActionPlan((*calls, SETTLE), "Type Success", answer=answer)


def typed(text: str) -> tuple[Call, ...]:
    """The calls that type `text`; the last one answers how far it came.

    A call ends by its deadline, and the next goes on from there. So a text has the more time the longer it is.
    """
    further = (len(text) - 1) // SIGNS_A_CALL
    share = {"calls": 1 + further} if further else {}
    return (Call("type_text", {"text": text} | share), *[Call("type_on")] * further)


def _on_cell(action: gui.Type, observation: Observation) -> bool:
    """Whether typing goes into a cell: it replaces what the cell holds, and "select all" would take the whole sheet."""
    if observation.app != "libreoffice_calc":
        return False
    if action.coordinates is None:
        # The current cell has the focus unless a text has: the input line, or a field of a dialog.
        current = [element for element in observation.elements if "foc" in element.states]
        elsewhere = any(element.tag != "table-cell" and "edt" in element.states for element in current)
        return not elsewhere and any(element.tag == "table-cell" for element in current)
    x, y = place(action.coordinates, observation)
    at = [e for e in observation.elements if e.x <= x < e.x + e.w and e.y <= y < e.y + e.h]
    return any(element.tag == "table-cell" for element in at)


@plan.register
def _(action: gui.DragAndDrop, observation: Observation) -> ActionPlan:
    x, y = place(action.drag_from_coordinates, observation)
    x2, y2 = place(action.drop_on_coordinates, observation)
    return ActionPlan((Call("drag", {"x": x, "y": y, "x2": x2, "y2": y2}), SETTLE), "Drag and Drop Success")


@plan.register
def _(action: gui.Scroll, observation: Observation) -> ActionPlan:
    x, y = place(action.coordinates, observation)
    dy = -SCROLL_NOTCHES if action.direction == "up" else SCROLL_NOTCHES
    return ActionPlan((Call("scroll", {"x": x, "y": y, "dy": dy}), SETTLE), "Scroll Success")


@plan.register
def _(action: gui.OpenApp, observation: Observation) -> ActionPlan:
    app = app_published(action.app_name)
    if app is None:
        return ActionPlan((), f"{action.app_name} is not supported or recognized")
    there = [window.number for window in observation.windows if app_of_class(window.wm_class) == app.name]
    if app.single and there:
        show = Call("activate", {"number": there[-1], "maximize": True})
    else:
        show = Call("open_window", {"argv": list(app.argv), "timeout_ms": OPEN_MS})
    return ActionPlan((show, SETTLE), "Open App Success")


@plan.register
def _(action: gui.SwitchWindow, observation: Observation) -> ActionPlan:
    number = window_names(observation)[action.window_id]
    # An open menu holds the keyboard; elsewhere Escape would undo what is being typed.
    menu = any(map(of_menu, observation.elements))
    shut = (pressed("esc"), BRIEFLY) if menu else ()
    return ActionPlan((*shut, Call("activate", {"number": number, "maximize": True}), SETTLE), "Switch Window Success")


@plan.register
def _(action: gui.Hotkey, _: Observation) -> ActionPlan:
    return ActionPlan((pressed(*action.keys), SETTLE), "Hotkey Success")


@plan.register
def _(action: gui.Quote, _: Observation) -> ActionPlan:
    return ActionPlan((), action.content[:MAX_RESULT])


@plan.register
def _(action: gui.Tool, _: Observation) -> ActionPlan:
    args = {"owner": action.owner, "name": action.name, "arguments": action.arguments}
    return ActionPlan((Call("tool", args), SETTLE), "Success", answer=0)


@plan.register
def _(action: gui.Wait, _: Observation) -> ActionPlan:
    return ActionPlan((Call("settle", {"timeout_ms": 3000, "quiet_ms": 500}),), "Wait Success")


@plan.register
def _(action: gui.Exit, observation: Observation) -> ActionPlan:
    late = any(app.late for app in APPS if any(window.app == app.name for window in observation.windows))
    return ActionPlan((Call("keep"),) if late else (), "Exit", ends=action.success)


def pressed(*names: str) -> Call:
    """Press keys together. Raises KeyError for what is not the name of one in `KEYS`."""
    if unknown := set(names) - set(KEYS):
        raise KeyError(*unknown)
    return Call("hotkey", {"keys": list(names)})
