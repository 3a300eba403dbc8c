"""The published form of a prompt: messages of a chat, the whole tree of the active application, earlier answers."""

from __future__ import annotations

from collections.abc import Sequence

from apis.actions.arguments import counted
from apis.actions.spaces import ActionSpace
from apis.observation import Observation
from apis.prompts import USUAL, Sight
from apis.prompts.compact import left_out, marks
from apis.prompts.system import published_system
from apis.prompts.template import filled
from apis.prompts.text import Turn, escaped, whole

LAST_TURNS = 30
_EARLIER = "**Environment State (Omitted)**\nPrevious Action Result: {{last}}"
_WITH_TREE = "* A11y Tree: {{tree}}\n\n"
_STATE = (
    "* Apps: {{windows}}\n\n* Current App: {{current}}\n\n" + _WITH_TREE + "* App Info: {{info}}\n\n"
    "* Previous Action Result: {{last}}"
)
MAX_ELEMENTS, MAX_TEXT, MAX_INFO, MAX_RESULT, MAX_ANSWER = 300, 500, 5000, 2000, 1500


def render_published(
    task: str,
    app: str,
    history: Sequence[Turn],
    observation: Observation,
    last: str | None,
    *,
    space: ActionSpace = "both",
    sight: Sight = USUAL,
) -> list[dict[str, str]]:
    """One step's messages in the published form: a system message, earlier turns without their trees, the state now.

    The caller adds the picture that `sight` asks for to the last message.
    """
    messages = [{"role": "system", "content": published_system(app, space, task, sight, observation.screen)}]
    omitted = sight.template.earlier or _EARLIER
    before = None
    for turn in history[-LAST_TURNS:]:
        messages.append({"role": "user", "content": filled(omitted, {"last": _result(before)})})
        messages.append({"role": "assistant", "content": turn.answer[:MAX_ANSWER]})
        before = turn.result
    messages.append({"role": "user", "content": _state(task, observation, last, sight)})
    return messages


def _state(task: str, observation: Observation, last: str | None, sight: Sight) -> str:
    width, height = map(str, observation.screen)
    windows, active = ["Window ID    App Name    Title"], observation.active
    for w in observation.windows:
        title = escaped(w.title, MAX_TEXT) + " (minimised)" * w.minimised
        windows.append(f"0x{w.number:08x}    {escaped(w.app, 80)}    {title}")
    current = f"0x{observation.windows[active].number:08x}" if active >= 0 else "None"
    values = {
        "task": whole(task), "windows": "\n".join(windows), "current": current,
        "tree": _tree(observation, sight) if sight.tree else "", "width": width, "height": height,
        "info": escaped(observation.info, MAX_INFO) or "None", "last": _result(last),
    }  # fmt: skip
    return filled(sight.template.state or (_STATE if sight.tree else _STATE.replace(_WITH_TREE, "")), values)


def _tree(observation: Observation, sight: Sight) -> str:
    width, height = observation.screen

    def pair(across: int, down: int) -> str:
        return f"({counted(across, width, sight.unit)}, {counted(down, height, sight.unit)})"

    rows = ["tag\ttext\tposition (center x & y)\tsize (w & h)"]
    rows += [
        f"{escaped(e.tag, 40)}\t{escaped(e.label, MAX_TEXT)}{marks(e)}\t{pair(e.cx, e.cy)}\t{pair(e.w, e.h)}"
        for e in observation.elements[:MAX_ELEMENTS]
    ]
    if len(observation.elements) > MAX_ELEMENTS:
        rows.append("...")
    if more := left_out(observation, 0, 0):
        rows.append(f"more: {more}")
    if observation.unread:
        rows.append(f"front: {observation.unread}")
    return "\n".join(rows)


def _result(text: str | None) -> str:
    return escaped(text, MAX_RESULT) if text else "None"
