"""The published form of a prompt: messages of a chat, the whole tree of the active application, earlier answers.

Invariant: every text of the guest is escaped and cut before it stands in a message.
"""

from __future__ import annotations

from collections.abc import Sequence

from apis.actions.spaces import ActionSpace
from apis.observation import Element, Observation, Window
from apis.prompts.compact import left_out
from apis.prompts.system import published_system
from apis.prompts.text import Turn, escaped

LAST_TURNS = 30
MAX_ELEMENTS, MAX_TEXT, MAX_INFO, MAX_RESULT, MAX_ANSWER = 300, 500, 5000, 2000, 1500


def render_published(
    task: str,
    app: str,
    history: Sequence[Turn],
    observation: Observation,
    last: str | None,
    *,
    space: ActionSpace = "both",
) -> list[dict[str, str]]:
    """One step's messages in the published form: a system message, earlier turns without their trees, the state now."""
    messages = [{"role": "system", "content": published_system(app, space, task)}]
    before = None
    for turn in history[-LAST_TURNS:]:
        state = f"**Environment State (Omitted)**\nPrevious Action Result: {_result(before)}"
        messages.append({"role": "user", "content": state})
        messages.append({"role": "assistant", "content": turn.answer[:MAX_ANSWER]})
        before = turn.result
    messages.append({"role": "user", "content": _state(observation, last)})
    return messages


def _state(observation: Observation, last: str | None) -> str:
    apps = ["Window ID    App Name    Title"]
    apps += [f"0x{w.number:08x}    {escaped(w.app, 80)}    {_titled(w)}" for w in observation.windows]
    active = observation.active
    current = f"0x{observation.windows[active].number:08x}" if active >= 0 else "None"
    rows = ["tag\ttext\tposition (center x & y)\tsize (w & h)"]
    rows += [
        f"{escaped(e.tag, 40)}\t{_labelled(e)}\t({e.cx}, {e.cy})\t({e.w}, {e.h})"
        for e in observation.elements[:MAX_ELEMENTS]
    ]
    if len(observation.elements) > MAX_ELEMENTS:
        rows.append("...")
    if more := left_out(observation, 0, 0):
        rows.append(f"more: {more}")
    if observation.unread:
        rows.append(f"front: {observation.unread}")
    info = escaped(observation.info, MAX_INFO) or "None"
    parts = (
        "Apps: " + "\n".join(apps),
        f"Current App: {current}",
        "A11y Tree: " + "\n".join(rows),
        f"App Info: {info}",
    )
    return "\n\n".join(f"* {part}" for part in (*parts, f"Previous Action Result: {_result(last)}"))


def _titled(window: Window) -> str:
    return escaped(window.title, MAX_TEXT) + " (minimised)" * window.minimised


def _labelled(element: Element) -> str:
    return escaped(element.label, MAX_TEXT) + " (behind)" * ("behind" in element.states)


def _result(text: str | None) -> str:
    return escaped(text, MAX_RESULT) if text else "None"
