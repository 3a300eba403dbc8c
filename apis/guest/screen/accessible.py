"""The accessibility tree as XML, for metrics that look at it.

Invariant: the pass is bounded in nodes, text and time, and what it says is well-formed wherever it stops. A node that
does not show is cut with all below it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import gi
from guest.screen.visible import CHILDREN_MAX

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

NODES_MAX, DEPTH_MAX, NAME_MAX, CHARS_MAX = 2500, 40, 200, 200_000
PASS_S = 5.0
_ROLE = re.compile(r"[^a-z]+")


def xml(applications: Iterable[Any]) -> str:
    """Applications and what shows in them: an element is a role with dashes, its name an attribute."""
    until, said, size, nodes = time.monotonic() + PASS_S, ["<desktop-frame>"], 0, 0
    ends = [("</desktop-frame>", iter(list(applications)))]
    while ends:
        node = next(ends[-1][1], None)
        if node is None:
            said.append(ends.pop()[0])
            continue
        if nodes >= NODES_MAX or size >= CHARS_MAX or len(ends) > DEPTH_MAX or time.monotonic() > until:
            continue
        try:
            if len(ends) > 1 and not node.get_state_set().contains(Atspi.StateType.SHOWING):
                continue
            role = _ROLE.sub("-", node.get_role_name().lower()).strip("-") or "unknown"
            name = "".join(char for char in (node.get_name() or "")[:NAME_MAX] if char.isprintable())
            below = iter(list(_children(node)))
        except GLib.Error:  # it has gone, or its application hangs
            continue
        said.append(f"<{role} name={quoteattr(name)}>")
        size, nodes = size + len(said[-1]), nodes + 1
        ends.append((f"</{role}>", below))
    return "".join(said)


def _children(node: Any) -> Iterator[Any]:
    for at in range(min(node.get_child_count(), CHILDREN_MAX)):
        child = node.get_child_at_index(at)
        if child is not None:
            yield child
