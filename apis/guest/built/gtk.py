"""An application with GTK's actions on the session bus, and the text in front: what generated functions are given."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, Gio, GLib  # noqa: E402 - the version must be chosen first

CALL_MS = 3000
LOOK_S = 0.05
NODES_MAX = 600
BUS = "org.freedesktop.DBus"


class App:
    """The application of a bus name. Every method raises ValueError with what a model can read."""

    def __init__(self, name: str) -> None:
        self._name, self._root = name, "/" + name.replace(".", "/")
        self._bus = Gio.bus_get_sync(Gio.BusType.SESSION, None)
        Atspi.init()
        Atspi.set_timeout(CALL_MS, CALL_MS)
        self.home = Path(os.environ["HOME"])

    def act(self, action: str, value: Any = None) -> None:
        """Carry out an action by its name; `value` is its parameter: a text, a number or a truth value."""
        given = [] if value is None else [_variant(value)]
        self._ask(self._with(action), "Activate", "(sava{sv})", action, given, {})

    def actions(self) -> str:
        """The names of all actions, of the newest window first."""
        return ", ".join(name for place in self._places() for name in sorted(self._ask(place, "List")[0]))

    def state(self, action: str) -> Any:
        """The state of an action that has one, as a setting has; None for another."""
        _, _, states = self._ask(self._with(action), "Describe", "(s)", action)[0]
        return states[0] if states else None

    def set_state(self, action: str, value: Any) -> None:
        """Change the state of an action that has one, and wait until it is so."""
        self._ask(self._with(action), "SetState", "(sva{sv})", action, _variant(value), {})
        self.wait(lambda: self.state(action) == value, f"{action} stays {self.state(action)!r}")

    def can(self, action: str) -> bool:
        """Whether an action can be carried out now."""
        return bool(self._ask(self._with(action), "Describe", "(s)", action)[0][0])

    def shown(self, role: str) -> list[str]:
        """The names of all elements of a role in the window in front, like "label" or "status bar"."""
        return [name for node in self._below() if node.get_role_name() == role and (name := node.get_name())]

    def text(self) -> str:
        """The whole text in front."""
        node = self._text()
        return str(Atspi.Text.get_text(node, 0, Atspi.Text.get_character_count(node)))

    def set_text(self, text: str) -> None:
        """Replace the whole text in front; it is not saved."""
        Atspi.EditableText.set_text_contents(self._text(), text)
        self.wait(lambda: self.text() == text, "the text did not change")

    def caret(self) -> int:
        """How many characters are before the caret."""
        return int(Atspi.Text.get_caret_offset(self._text()))

    def set_caret(self, at: int) -> None:
        """Put the caret behind so many characters."""
        Atspi.Text.set_caret_offset(self._text(), at)
        self.wait(lambda: self.caret() == at, "the caret did not move")

    def selection(self) -> tuple[int, int]:
        """Where the selection begins and ends; twice the caret where nothing is selected."""
        node = self._text()
        if not Atspi.Text.get_n_selections(node):
            return (self.caret(),) * 2
        chosen = Atspi.Text.get_selection(node, 0)
        return chosen.start_offset, chosen.end_offset

    def select(self, start: int, end: int) -> None:
        """Select the characters from number `start` to before `end`, from 0."""
        node = self._text()
        if not Atspi.Text.set_selection(node, 0, start, end):
            Atspi.Text.add_selection(node, start, end)
        self.wait(lambda: self.selection() == (start, end), "nothing was selected")

    def title(self) -> str:
        """The title of the window in front."""
        return str(next(self._below()).get_name())

    def wait(self, holds: Any, why: str, seconds: float = 2.0) -> None:
        """Wait until `holds()` is true. Raises ValueError with `why`."""
        until = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > until:
                raise ValueError(why)
            time.sleep(LOOK_S)

    def _places(self) -> list[str]:
        """Of the application's windows the newest has the highest number."""
        listed = self._ask(f"{self._root}/window", f"{BUS}.Introspectable.Introspect")
        numbers = sorted(int(part.split('"')[0]) for part in listed[0].split('<node name="')[1:])
        return [f"{self._root}/window/{number}" for number in numbers[-1:]] + [self._root]

    def _with(self, action: str) -> str:
        for place in self._places():
            if action in self._ask(place, "List")[0]:
                return place
        raise ValueError(f"there is no action {action!r}")

    def _ask(self, place: str, method: str, kinds: str = "()", *given: Any, name: str = "") -> Any:
        interface, _, method = method.rpartition(".")
        to = (name or self._name, place, interface or "org.gtk.Actions", method)
        try:
            answer = self._bus.call_sync(*to, GLib.Variant(kinds, given), None, Gio.DBusCallFlags.NONE, CALL_MS, None)
        except GLib.Error as error:
            raise ValueError(f"{self._name} does not answer: {error.message}") from None
        return answer.unpack()

    def _below(self) -> Iterator[Any]:
        """The window in front, and what is in it."""
        pid = self._ask("/", f"{BUS}.GetConnectionUnixProcessID", "(s)", self._name, name=BUS)[0]
        desktop = Atspi.get_desktop(0)
        apps = [desktop.get_child_at_index(at) for at in range(desktop.get_child_count())]
        own = [app for app in apps if app is not None and app.get_process_id() == pid and app.get_child_count()]
        if not own:
            raise ValueError("no window is open")
        left = [own[0].get_child_at_index(own[0].get_child_count() - 1)]
        for _ in range(NODES_MAX):
            if not left:
                return
            node = left.pop()
            yield node
            left += [
                child for at in range(node.get_child_count()) if (child := node.get_child_at_index(at)) is not None
            ]

    def _text(self) -> Any:
        for node in self._below():
            if node.get_role() == Atspi.Role.TEXT and node.get_state_set().contains(Atspi.StateType.MULTI_LINE):
                return node
        raise ValueError("no text is open")


def _variant(value: Any) -> Any:
    kind = {bool: "b", int: "i", float: "d"}.get(type(value), "s")
    return GLib.Variant(kind, value)
