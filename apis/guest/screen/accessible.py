"""The accessibility tree as XML, for metrics that look at it.

Invariant: the pass is bounded in nodes, text and time, and what it says is well-formed wherever it stops. A node that
does not show is cut with all below it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import gi
from guest.screen.visible import CHILDREN_MAX

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

NODES_MAX, DEPTH_MAX, NAME_MAX, TEXT_MAX, CHARS_MAX = 2500, 40, 200, 500, 250_000
# Of attributes: states, and where it is, by the prefixes that selectors of task files know.
SPACES = " ".join(
    f'xmlns:{prefix}="https://accessibility.ubuntu.example.org/ns/{name}"'
    for prefix, name in (("st", "state"), ("cp", "component"))
)
PASS_S = 5.0
_ROLE = re.compile(r"[^a-z]+")


def xml(applications: Iterable[Any]) -> str:
    """Applications and what shows in them: an element is a role with dashes, with its text; name, states and place are
    attributes."""
    until, said, size, nodes = time.monotonic() + PASS_S, [f"<desktop-frame {SPACES}>"], 0, 0
    ends = [("</desktop-frame>", iter(list(applications)))]
    while ends:
        node = next(ends[-1][1], None)
        if node is None:
            said.append(ends.pop()[0])
            continue
        if nodes >= NODES_MAX or size >= CHARS_MAX or len(ends) > DEPTH_MAX or time.monotonic() > until:
            continue
        try:
            states = node.get_state_set()
            if len(ends) > 1 and not states.contains(Atspi.StateType.SHOWING):
                continue
            role = _ROLE.sub("-", node.get_role_name().lower()).strip("-") or "unknown"
            name = _plain((node.get_name() or "")[:NAME_MAX])
            named = "".join(f' st:{state.value_nick.replace("-", "_")}="true"' for state in states.get_states())
            named += _place(node)
            text = escape(_plain(_text(node)))
            below = iter(list(_children(node)))
        except GLib.Error:  # it has gone, or its application hangs
            continue
        said.append(f"<{role} name={quoteattr(name)}{named}>{text}")
        size, nodes = size + len(said[-1]), nodes + 1
        ends.append((f"</{role}>", below))
    return "".join(said)


def _plain(text: str) -> str:
    return "".join(char for char in text if char.isprintable() or char == "\n").replace("\ufffc", "")


def _place(node: Any) -> str:
    """Where it is on the screen, and its size, in pixels."""
    found = node.get_component_iface()
    if found is None:
        return ""
    box = found.get_extents(Atspi.CoordType.SCREEN)
    return f' cp:screencoord="({box.x}, {box.y})" cp:size="({box.width}, {box.height})"'


def _text(node: Any) -> str:
    """The beginning of its text."""
    found = node.get_text_iface()
    return found.get_text(0, min(found.get_character_count(), TEXT_MAX)) if found is not None else ""


def _children(node: Any) -> Iterator[Any]:
    for at in range(min(node.get_child_count(), CHILDREN_MAX)):
        child = node.get_child_at_index(at)
        if child is not None:
            yield child
