"""The accessibility bus of one desktop: its applications, and what of them shows.

Every look is bounded in nodes, text and time. An application that hangs costs one deadline and is left out, which is
said.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gi
from guest import Refused
from guest.screen.nodes import CHILDREN_MAX, Box
from guest.screen.office import Known, Steady
from guest.screen.walk import CALL_MS, Walk

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

APPS_MAX = 16
START_MS = 5000  # the same as `CALL_MS`, for an application that began less than that ago
ASK_S = 6.0  # for asking every application whether it answers, before the walk


class Tree:
    """The accessibility bus of one desktop."""

    def __init__(self) -> None:
        Atspi.init()
        Atspi.set_timeout(CALL_MS, START_MS)
        self._steady = Steady()

    def _refresh(self) -> None:
        """Take in what applications said since: the library's cache is only as fresh as its handled events."""
        context = GLib.MainContext.default()
        for _ in range(10_000):
            if not context.iteration(False):
                return

    def ready(self) -> None:
        """Ask the registry; it is started on demand. Raises Refused when it does not answer."""
        try:
            Atspi.get_desktop(0).get_child_count()
        except GLib.Error as error:
            raise Refused("not_ready", f"the accessibility registry: {error}") from error

    def applications(self) -> list[Any]:
        """Applications on the bus; those that ended are left out."""
        self._refresh()
        desktop = Atspi.get_desktop(0)
        apps = [desktop.get_child_at_index(at) for at in range(min(desktop.get_child_count(), APPS_MAX))]
        return [app for app in apps if app is not None]

    def answers(self, pid: int) -> bool:
        """Whether the application of process `pid` is on the bus and its main loop answers.

        What it was sent before, it has then begun to handle: toolkits serve X and this bus from one loop.
        """
        for app in self.applications():
            try:
                if app.get_process_id() == pid:
                    app.clear_cache()
                    return app.get_child_count() > 0
            except GLib.Error:
                return False
        return False

    def added(self, pid: int, typed: str) -> bool | None:
        """Whether the text with the focus in process `pid` goes on, selected, behind what was `typed`.

        None where no such text is found.
        """
        for app in self.applications():
            try:
                if app.get_process_id() == pid:
                    return field_added(app, typed)
            except GLib.Error:
                return None
        return None

    def observe(
        self,
        windows: list[dict[str, Any]],
        width: int,
        height: int,
        popups: Callable[[], list[Box]],
        texts: Known,
    ) -> Walk:
        """All that shows, the active window's application first.

        `popups` tells where menus are open, `texts` what cells of the sheet in front show.
        """
        active = next((row["pid"] for row in windows if row["active"]), 0)
        apps, cut = self._answering()
        self._steady.turn()
        walk = Walk(windows, width, height, popups, texts, steady=self._steady)
        walk.cut = cut
        for _, app in sorted(((pid != active, app) for pid, app in apps), key=lambda pair: pair[0]):
            walk.application(app)
        walk.behind()
        return walk

    def _answering(self) -> tuple[list[tuple[int, Any]], bool]:
        """Process and application of those that answer now, and whether any was left out.

        One call more each, and never from the cache: of an application that hangs, every further call would wait, too,
        and some of them come back empty and not as an error.
        """
        apps, cut, until = [], False, time.monotonic() + ASK_S
        for app in self.applications():
            began = time.monotonic()
            if began > until:
                return apps, True
            try:
                app.get_id()
                pid = app.get_process_id()
            except GLib.Error:
                pid = 0  # gone, or it hangs
            silent = time.monotonic() - began >= CALL_MS / 1000
            cut = cut or silent
            if pid and not silent:
                apps.append((pid, app))
        return apps, cut


SEARCH_NODES_MAX = 1200
SEARCH_CHILDREN_MAX = 64
SEARCH_DEPTH_MAX = 24
SEARCH_S = 1.0
# What holds documents, files and choices, many of them, and no field that completes.
_PASSED = {
    "document frame", "document presentation", "document spreadsheet", "document text", "document web", "layered pane",
    "list", "list box", "menu bar", "page tab list", "table", "tree", "tree table",
}  # fmt: skip
_FIELDS = {"entry", "text"}


def field_added(app: Any, typed: str) -> bool | None:
    """Whether the field with the focus goes on behind what was `typed`; None where none is found. Raises GLib.Error."""
    search = _Search()
    for at in range(min(app.get_child_count(), SEARCH_CHILDREN_MAX)):
        top = app.get_child_at_index(at)
        if top is not None and top.get_state_set().contains(Atspi.StateType.ACTIVE):
            field = search.focused(top, 0)
            if field is not None:
                return _goes_on(field, typed)
    return None


class _Search:
    """One look for the field that has the focus."""

    def __init__(self) -> None:
        self._left = SEARCH_NODES_MAX
        self._until = time.monotonic() + SEARCH_S

    def focused(self, node: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > SEARCH_DEPTH_MAX or time.monotonic() > self._until:
            return None
        states, role = node.get_state_set(), node.get_role_name()
        if role in _PASSED or (depth and not states.contains(Atspi.StateType.SHOWING)):
            return None
        if role in _FIELDS and states.contains(Atspi.StateType.FOCUSED):
            return node if states.contains(Atspi.StateType.EDITABLE) else None
        for at in range(min(node.get_child_count(), SEARCH_CHILDREN_MAX)):
            try:
                child = node.get_child_at_index(at)
                field = self.focused(child, depth + 1) if child is not None else None
            except GLib.Error:  # it is gone
                continue
            if field is not None:
                return field
        return None


def _goes_on(field: Any, typed: str) -> bool:
    if field.get_text_iface() is None or Atspi.Text.get_n_selections(field) != 1:
        return False
    chosen, end = Atspi.Text.get_selection(field, 0), Atspi.Text.get_character_count(field)
    first = chosen.start_offset
    if not 0 < first < chosen.end_offset == end:
        return False
    last = typed[-min(first, len(typed)) :]
    return bool(last) and str(Atspi.Text.get_text(field, first - len(last), first)).casefold() == last.casefold()


NODES_MAX, DEPTH_MAX, NAME_MAX, TEXT_MAX, CHARS_MAX = 2500, 40, 200, 500, 250_000
# Of attributes: states, and where it is, by the prefixes that selectors of task files know.
SPACES = " ".join(
    f'xmlns:{prefix}="https://accessibility.ubuntu.example.org/ns/{name}"'
    for prefix, name in (("st", "state"), ("cp", "component"))
)
PASS_S = 5.0
_ROLE = re.compile(r"[^a-z]+")


def as_xml(applications: Iterable[Any]) -> str:
    """Applications and what shows in them: an element is a role with dashes, with its text; name, states and place are
    attributes."""
    from xml.sax.saxutils import escape, quoteattr  # late: it brings clients of the network

    until, xml, size, nodes = time.monotonic() + PASS_S, [f"<desktop-frame {SPACES}>"], 0, 0
    ends = [("</desktop-frame>", iter(list(applications)))]
    while ends:
        node = next(ends[-1][1], None)
        if node is None:
            xml.append(ends.pop()[0])
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
            text = escape(_plain(_start_of_text(node)))
            below = iter(list(_children(node)))
        except GLib.Error:  # it has gone, or its application hangs
            continue
        xml.append(f"<{role} name={quoteattr(name)}{named}>{text}")
        size, nodes = size + len(xml[-1]), nodes + 1
        ends.append((f"</{role}>", below))
    return "".join(xml)


def _plain(text: str) -> str:
    return "".join(char for char in text if char.isprintable() or char == "\n").replace("\ufffc", "")


def _place(node: Any) -> str:
    """Where it is on the screen, and its size, in pixels."""
    component = node.get_component_iface()
    if component is None:
        return ""
    box = component.get_extents(Atspi.CoordType.SCREEN)
    return f' cp:screencoord="({box.x}, {box.y})" cp:size="({box.width}, {box.height})"'


def _start_of_text(node: Any) -> str:
    iface = node.get_text_iface()
    return iface.get_text(0, min(iface.get_character_count(), TEXT_MAX)) if iface is not None else ""


def _children(node: Any) -> Iterator[Any]:
    for at in range(min(node.get_child_count(), CHILDREN_MAX)):
        child = node.get_child_at_index(at)
        if child is not None:
            yield child
