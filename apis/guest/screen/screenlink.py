"""The agent's connections to the X server, and waiting on their events, always with a deadline."""

from __future__ import annotations

import select
import time
from typing import Any

from guest import Refused
from Xlib import X, display
from Xlib.error import BadDrawable, BadWindow
from Xlib.ext import damage, xtest
from Xlib.protocol import event, rq

NUMBER_LOCK = X.Mod2Mask  # of the number keys alone
STATE = 0x60FF  # of what the pointer tells: modifiers and the group
CORE_KEYBOARD = 0x100  # XkbUseCoreKbd


class _LatchLockState(rq.Request):  # type: ignore[misc, unused-ignore]
    """XkbLatchLockState of the X Keyboard Extension, which the library lacks."""

    _request = rq.Struct(
        rq.Card8("opcode"), rq.Opcode(5), rq.RequestLength(),
        rq.Card16("device"), rq.Card8("affect_locks"), rq.Card8("locks"), rq.Card8("lock_group"), rq.Card8("group"),
        rq.Card8("affect_latches"), rq.Card8("latches"), rq.Card8("latch_group"), rq.Card8("unused"),
        rq.Card16("group_latch"),
    )  # fmt: skip


class _UseExtension(rq.ReplyRequest):  # type: ignore[misc, unused-ignore]
    """XkbUseExtension: without it the server refuses the others."""

    _request = rq.Struct(rq.Card8("opcode"), rq.Opcode(0), rq.RequestLength(), rq.Card16("major"), rq.Card16("minor"))
    _reply = rq.Struct(
        rq.ReplyCode(), rq.Card8("supported"), rq.Card16("sequence_number"), rq.ReplyLength(), rq.Card16("major"),
        rq.Card16("minor"), rq.Pad(20),
    )  # fmt: skip


def undo_locks() -> None:
    """Undo locks (but that of the number keys), latches and a change of group."""
    own = display.Display()
    try:
        extension = own.query_extension("XKEYBOARD")
        if extension is None or not extension.present:
            return
        code = extension.major_opcode
        _UseExtension(display=own.display, opcode=code, major=1, minor=0)
        _LatchLockState(
            display=own.display, opcode=code, device=CORE_KEYBOARD,
            affect_locks=0xFF & ~NUMBER_LOCK, locks=0, lock_group=1, group=0,
            affect_latches=0xFF, latches=0, latch_group=1, unused=0, group_latch=0,
        )  # fmt: skip
        own.sync()
    finally:
        own.close()


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
        """An X atom by name, asked for once."""
        return int(self.display.get_atom(name))

    def active(self) -> int:
        """The active window, 0 for none."""
        listed = self.root.get_full_property(self.atom("_NET_ACTIVE_WINDOW"), X.AnyPropertyType)
        return int(listed.value[0]) if listed and len(listed.value) else 0

    def expect_activation(self) -> None:
        """A key has pressed a button of the active window: no rest before the toolkit has acted on it."""
        now = time.monotonic()
        self._expected = (now + ACTIVATION_S, now + SECOND_ACTIVATION_S, self.active())

    def expecting(self) -> bool:
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
        for at, pressed in enumerate(self.display.query_keymap()):
            for bit in range(8) if pressed else ():
                if pressed & 1 << bit:
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


EDITRES_VERSION = 5
EDITRES_CLASSES = {"xterm", "uxterm"}
_ANSWERS = X.SubstructureNotifyMask | X.StructureNotifyMask


class KeysRead:
    """A connection of its own, since answers come as events that are no change of the screen."""

    def __init__(self) -> None:
        self._display = display.Display()
        self._root = self._display.screen().root
        self._own = self._root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
        self._number = 0

    def read(self, window: int, seconds: float) -> bool | None:
        """Whether the application of `window` has read its keys, asked for so long."""
        try:
            target = self._display.create_resource_object("window", window)
            protocols = target.get_wm_protocols()
            wm_class = (target.get_wm_class() or ("", ""))[1].lower()
            if self._display.intern_atom("_NET_WM_PING") in protocols:
                return self._ping(target, seconds)
            return self._editres(target, seconds) if wm_class in EDITRES_CLASSES else None
        except (BadWindow, BadDrawable):
            return True  # it is gone, and reads no more

    def _send(self, target: Any, kind: str, data: list[int]) -> None:
        message = event.ClientMessage(window=target, client_type=self._display.intern_atom(kind), data=(32, data))
        target.send_event(message, event_mask=X.NoEventMask)
        self._display.sync()

    def _ping(self, target: Any, seconds: float) -> bool:
        ping = self._display.intern_atom("_NET_WM_PING")
        self._number = self._number % 0x7FFFFFFF + 1
        self._root.change_attributes(event_mask=_ANSWERS)
        try:
            self._send(target, "WM_PROTOCOLS", [ping, self._number, target.id, 0, 0])
            return self._comes(
                seconds,
                lambda seen: seen.type == X.ClientMessage and list(seen.data[1][:3]) == [ping, self._number, target.id],
            )
        finally:
            self._root.change_attributes(event_mask=X.NoEventMask)
            self._display.sync()

    def _editres(self, target: Any, seconds: float) -> bool:
        self._number = self._number % 64 + 1
        asked = self._display.intern_atom(f"COMPUTERRL_HEARD_{self._number}")
        self._own.set_selection_owner(asked, X.CurrentTime)
        self._send(target, "Editres", [X.CurrentTime, asked, 0, EDITRES_VERSION, 0])
        return self._comes(seconds, lambda seen: self._refused(seen, asked))

    def _refused(self, seen: Any, asked: int) -> bool:
        """Whether somebody fetches the selection `asked`; there is nothing in it."""
        if seen.type != X.SelectionRequest or seen.selection != asked:
            return False
        reply = event.SelectionNotify(
            time=seen.time, requestor=seen.requestor, selection=seen.selection, target=seen.target, property=X.NONE
        )
        seen.requestor.send_event(reply)
        self._display.sync()
        return True

    def _comes(self, seconds: float, wanted: Any) -> bool:
        until = time.monotonic() + seconds
        while True:
            while self._display.pending_events():
                if wanted(self._display.next_event()):
                    return True
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._display], [], [], left)[0]:
                return False
