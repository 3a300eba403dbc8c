"""Whether an application has read the keys that it was sent.

Invariant: a window of which `read` says True has read all that was sent to it before. The question comes to the
application in the same queue as its keys, behind them. False is no answer in time, None that it can't be asked.

Toolkits answer the window manager's ping. GTK, LibreOffice and Chromium answer to a client that watches the root
window's children. Qt answers to a client that watches the root window itself.

xterm answers editres, a question about its widgets. It fetches the question from the selection that it is told of, and
is told here that it need not go on.
"""

from __future__ import annotations

import select
import time
from typing import Any

from Xlib import X, display
from Xlib.error import BadDrawable, BadWindow
from Xlib.protocol import event

EDITRES_VERSION = 5
EDITRES_CLASSES = {"xterm", "uxterm"}
_ANSWERS = X.SubstructureNotifyMask | X.StructureNotifyMask


class Hearing:
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
