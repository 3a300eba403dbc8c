"""Rewrites an outside model's answer in the words that the policy learns.

Invariant: the answer is parsed like any policy's and written again from the typed action. Only a short escaped thought
and literal arguments get into a demonstration. An answer that is no action stays none: it is escaped, and the grammar
refuses it.
"""

from __future__ import annotations

import msgspec

from actors.desktop.endpoints.chat import NOTHING
from apis.actions.grammar import MAX_READ, RefusedAnswer, parse
from apis.actions.gui import Action, Click, DragAndDrop, Place, Scroll, SwitchWindow, Type, line
from apis.actions.reasoning import spoken
from apis.observation import Observation
from apis.prompts.names import element_names, window_names
from apis.prompts.text import escaped
from apis.tasks.view import on_screen

MAX_THOUGHT = 120  # characters kept of what it thought
MAX_REFUSED = 400  # and of an answer that is no action


def understood(text: str, observation: Observation, *, asked: str, cut: str = "") -> Action | RefusedAnswer:
    """What `text`, an answer to a prompt of form `asked`, asks for; `cut` says why it is not whole, where it is not."""
    names = element_names(observation), window_names(observation)
    return parse(text, observation.app, *names, asked, cut=cut, screen=observation.screen)


def rewritten(text: str, observation: Observation, *, asked: str, wanted: str, cut: str = "") -> str:
    """`text`, an answer to a prompt of form `asked`, as an answer of form `wanted` ("compact" or "published")."""
    action = understood(text, observation, asked=asked, cut=cut)
    if isinstance(action, RefusedAnswer):
        return _refused(text, observation, wanted)
    thought = escaped(_thought(text), MAX_THOUGHT).replace("`", "'").strip() or "go on"
    if wanted == "published":
        return f"<think>{thought}</think>\n```python\n{line(on_screen(action, observation))}\n```"
    return f"{thought}\n{line(by_name(action, observation))}"


def _refused(text: str, observation: Observation, wanted: str) -> str:
    """The answer that was no action, so that it is none in the other form either."""
    said = "" if len(text) > MAX_READ else spoken(text).said
    shown = escaped(said.strip()[: 2 * MAX_REFUSED], MAX_REFUSED).replace("`", "'")
    names = element_names(observation), window_names(observation)
    for said in (shown, f"no action: {shown}"):
        if shown and isinstance(parse(said, observation.app, *names, wanted), RefusedAnswer):
            return said
    return NOTHING


def _thought(text: str) -> str:
    """The first line of its reasoning, or of what stands before the action."""
    said, thought, _ = spoken(text)
    before = thought or (said.partition("```")[0] if "```" in said else said.strip().rpartition("\n")[0])
    return next((one for one in before.splitlines() if one.strip()), "").replace("<", "(").replace(">", ")")


def by_name(action: Action, observation: Observation) -> Action:
    """The same action with names in place of pixels and window numbers, where the compact form has names for them."""
    match action:
        case Click(coordinates=where) | Scroll(coordinates=where):
            return msgspec.structs.replace(action, coordinates=_name_at(where, observation))
        case Type(coordinates=where) if where is not None:
            return msgspec.structs.replace(action, coordinates=_name_at(where, observation))
        case DragAndDrop(drag_from_coordinates=start, drop_on_coordinates=end):
            return DragAndDrop(
                drag_from_coordinates=_name_at(start, observation), drop_on_coordinates=_name_at(end, observation)
            )
        case SwitchWindow(window_id=name) if not name.startswith("w"):
            numbers = window_names(observation)
            same = [other for other, number in numbers.items() if number == numbers.get(name) and other[0] == "w"]
            return SwitchWindow(window_id=same[0]) if same else action
    return action


def _name_at(where: Place, observation: Observation) -> Place:
    """The smallest listed element that covers the pixels; the pixels themselves where there is none."""
    if isinstance(where, str):
        return where
    x, y = where
    covering = [
        (element.w * element.h, name)
        for name, element in element_names(observation).items()
        if element.x <= x < element.x + max(1, element.w) and element.y <= y < element.y + max(1, element.h)
    ]
    return min(covering)[1] if covering else where
