"""The agent's connection to the X server, and waiting on its events.

Invariant: nothing here sleeps blindly, and every wait is on the X connection with a deadline. Three things are noted
meanwhile:

- what changed on the screen
- whether a program changed the keyboard's layout
- whether a selected text is another text
"""

from __future__ import annotations

import select
import time

from guest.errors import Refused
from guest.screen.locks import NUMBER_LOCK, STATE, undo_locks
from Xlib import X, display
from Xlib.ext import damage, xtest

# GTK holds a button down for 250 ms before it acts, when a key pressed it; a file dialog then checks the name and
# presses the button once more. Nothing moves meanwhile.
ACTIVATION_S = 0.3
SECOND_ACTIVATION_S = 0.65
_OWNER = 1  # XFixesSetSelectionOwnerNotifyMask


class ScreenLink:
    """One X connection with damage reports on the whole screen."""

    def __init__(self) -> None:
        self.display = display.Display()
        self.root = self.display.screen().root
        self.root.change_attributes(event_mask=X.PropertyChangeMask)
        self.display.damage_query_version()
        self._damage = self.root.damage_create(damage.DamageReportNonEmpty)
        self.display.xfixes_query_version()
        self.display.xfixes_select_selection_input(self.root, self.atom("PRIMARY"), _OWNER)
        self.selected = False  # whether a program has selected a text since its reader set this back
        self.changed_s = time.monotonic()  # when a pixel or a property of the root window last changed
        self.layout_changed = False  # since its reader set this back
        self._own: list[tuple[int, int]] = []  # changes by `bind` that the server has not reported: first key, count
        self._expected: tuple[float, float, int] = (0.0, 0.0, 0)  # at least until, at most until, active window then
        self.display.sync()

    def atom(self, name: str) -> int:
        """An X atom by name (cached by the library)."""
        return self.display.intern_atom(name)

    def active(self) -> int:
        """The active window, 0 for none."""
        found = self.root.get_full_property(self.atom("_NET_ACTIVE_WINDOW"), X.AnyPropertyType)
        return int(found.value[0]) if found and len(found.value) else 0

    def expect_activation(self) -> None:
        """A key has pressed a button of the active window: no rest before the toolkit has acted on it."""
        now = time.monotonic()
        self._expected = (now + ACTIVATION_S, now + SECOND_ACTIVATION_S, self.active())

    def expecting(self) -> bool:
        """Whether an activation is still to come."""
        least, most, window = self._expected
        now = time.monotonic()
        return now < least or (now < most and self.active() == window)

    def bind(self, first: int, rows: list[tuple[int, int]]) -> None:
        """Change the keysyms of the keys from code `first` on. Its report by the server is no change by a program."""
        self._own.append((first, len(rows)))
        self.display.change_keyboard_mapping(first, rows)

    def flush(self) -> None:
        """Send what is queued and wait until the server has carried it out."""
        self.display.sync()

    def plain_keys(self) -> None:
        """Release every key, and undo locks (but that of the number keys), latches and a change of group."""
        for at, held in enumerate(self.display.query_keymap()):
            for bit in range(8) if held else ():
                if held & 1 << bit:
                    xtest.fake_input(self.display, X.KeyRelease, at * 8 + bit)
        if self.root.query_pointer().mask & STATE & ~NUMBER_LOCK:
            undo_locks()
        self.flush()
        self._note()

    def _note(self) -> None:
        while self.display.pending_events():
            event = self.display.next_event()
            if event.type == X.MappingNotify:
                keys = (event.first_keycode, event.count)
                if keys in self._own:
                    self._own.remove(keys)
                else:
                    self.layout_changed = True
                continue
            if (event.type, getattr(event, "sub_code", None)) == self.display.extension_event.SetSelectionOwnerNotify:
                self.selected = event.owner.id != X.NONE
                continue
            if event.type == self.display.extension_event.DamageNotify:
                self.display.damage_subtract(self._damage)
            self.changed_s = time.monotonic()

    def pause(self, seconds: float) -> None:
        """Let `seconds` pass, noting what changes."""
        until = time.monotonic() + seconds
        while True:
            self._note()
            self.display.flush()
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.display], [], [], left)[0]:
                return

    def wait_change(self, seconds: float) -> bool:
        """Whether something changed within `seconds`; returns at the first change."""
        before = self.changed_s
        until = time.monotonic() + seconds
        while True:
            self._note()
            self.display.flush()
            if self.changed_s > before:
                return True
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.display], [], [], left)[0]:
                return False

    def wait_manager(self, seconds: float) -> None:
        """Until a window manager runs. Raises Refused at the deadline."""
        until = time.monotonic() + seconds
        check = self.atom("_NET_SUPPORTING_WM_CHECK")
        while not self.root.get_full_property(check, X.AnyPropertyType):
            if time.monotonic() > until:
                raise Refused("not_ready", "no window manager")
            self.wait_change(min(0.2, max(0.0, until - time.monotonic())))
