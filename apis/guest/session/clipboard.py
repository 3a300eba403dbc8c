"""A clipboard manager: a copied text or file can be pasted after its window has closed.

Invariant: what is kept is bounded in targets and bytes, and each transfer in time. A program that owns the clipboard
keeps it. The copy is offered only once no program owns it.

A copy is made of the plain kinds as soon as a program has copied something, since one that is killed says nothing. A
program that ends in order asks for more kinds to be kept (the freedesktop.org clipboard manager specification).
Transfers follow ICCCM 2; what is long comes in pieces (INCR).
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from Xlib import X, Xatom, display
from Xlib.error import ConnectionClosedError, XError
from Xlib.protocol import event as x_event

BYTES_MAX = 16 << 20  # of all that is kept
TARGETS_MAX = 32
TRANSFER_S, SAVE_S = 1.0, 4.0  # for one target, and for all that an ending program wants kept
_PIECE_BYTES = 128 << 10
_TEXT = "UTF8_STRING"
_ALIASES = ("text/plain;charset=utf-8", "text/plain", "STRING", "TEXT")  # also offered where there is a text
_FILES = "x-special/gnome-copied-files"
# Files that were cut are left alone: pcmanfm gives them away once, to the first program that asks.
_CUT = "application/x-kde-cutselection"
_AT_ONCE = (_CUT, _TEXT, "text/uri-list", _FILES)
_PICTURE = "image/png"  # kept at once where there is no text
_NO_DATA = {"TARGETS", "MULTIPLE", "TIMESTAMP", "SAVE_TARGETS", "DELETE", "INSERT_PROPERTY", "INSERT_SELECTION"}
_EVENTS = 1 | 2 | 4  # XFixes: the owner changes, its window is destroyed, its connection closes


class Kept(NamedTuple):
    """What a target holds."""

    kind: int
    format: int
    data: Any


def wanted_at_once(offered: Sequence[str]) -> list[str]:
    """The targets, of those offered, of which a copy is made before their owner ends."""
    targets = [name for name in _AT_ONCE if name in offered]
    return targets or [name for name in (*_ALIASES[:3], _PICTURE) if name in offered][:1]


class _Copying:
    """Targets that are fetched one after the other; `asked` is the request of a program that wants them kept."""

    def __init__(self, targets: list[int], before: dict[int, Kept], asked: Any) -> None:
        self.targets, self.kept, self.asked = targets, dict(before), asked
        self.room = BYTES_MAX - sum(len(each.data) for each in before.values())
        self.pieces: list[Any] | None = None  # of one that comes in pieces
        self.late_s = time.monotonic() + TRANSFER_S
        self.end_s = time.monotonic() + SAVE_S


class Clipboard:
    """The manager, on a thread and an X connection of its own."""

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}
        self._copying: _Copying | None = None
        self._waits = True  # for an event; the thread is at work otherwise
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to keep, once."""
        if self._thread is None:
            self._open()
            self._thread = threading.Thread(target=self._run, name="clipboard", daemon=True)
            self._thread.start()

    def busy(self) -> bool:
        """Whether a program may wait for this thread: it is at work, or has an event to read."""
        if self._thread is None or not self._thread.is_alive():
            return False
        return not self._waits or bool(select.select([self._display], [], [], 0)[0])

    def _run(self) -> None:
        with contextlib.suppress(ConnectionClosedError, OSError):  # the session ends
            while True:
                while self._display.pending_events():
                    with contextlib.suppress(XError):  # a window that is gone
                        self._take(self._display.next_event())
                self._display.flush()
                left = None if self._copying is None else self._copying.late_s - time.monotonic()
                if left is not None and left <= 0:
                    self._next()
                elif not self._display.pending_events():
                    self._waits = True
                    select.select([self._display], [], [], left)
                    self._waits = False

    def _open(self) -> None:
        self._display = shown = display.Display()
        shown.set_error_handler(lambda *_: None)
        self._atom, self._name = shown.intern_atom, shown.get_atom_name
        self._window = shown.screen().root.create_window(
            0, 0, 1, 1, 0, X.CopyFromParent, event_mask=X.PropertyChangeMask
        )
        self._clipboard, self._property = self._atom("CLIPBOARD"), self._atom("COMPUTERRL_COPY")
        manager = self._atom("CLIPBOARD_MANAGER")
        if shown.get_selection_owner(manager) == X.NONE:
            self._window.set_selection_owner(manager, X.CurrentTime)
        shown.xfixes_query_version()
        shown.xfixes_select_selection_input(self._window, self._clipboard, _EVENTS)
        shown.sync()

    def _take(self, event: Any) -> None:
        if event.type == self._display.extension_event.SetSelectionOwnerNotify[0]:
            self._owner_changed(event)
        elif event.type == X.SelectionNotify:
            self._came(event)
        elif event.type == X.PropertyNotify and event.state == X.PropertyNewValue:
            self._piece_came(event)
        elif event.type == X.SelectionRequest:
            self._asked(event)

    def _owner_changed(self, event: Any) -> None:
        if event.owner.id == self._window.id:
            return
        if event.owner.id != X.NONE:
            self._finish()
            self._kept = {}
            self._copying = _Copying([], {}, None)
            self._convert("TARGETS")
            return
        self._finish()  # the rest of its copy can't come any more
        files = self._kept.get(self._atom(_FILES))
        if event.sub_code == 0 and files and bytes(files.data).startswith(b"cut"):
            self._kept = {}  # they were moved: nothing is left to paste
        if self._kept:
            self._window.set_selection_owner(self._clipboard, X.CurrentTime)

    def _convert(self, target: str | int) -> None:
        atom = self._atom(target) if isinstance(target, str) else target
        self._window.delete_property(self._property)
        self._window.convert_selection(self._clipboard, atom, self._property, X.CurrentTime)

    def _next(self) -> None:
        """Fetch the next target, or be done with them."""
        copying = self._copying
        assert copying is not None
        copying.pieces = None
        if copying.targets:
            del copying.targets[0]
        now = time.monotonic()
        if not copying.targets or now > copying.end_s:
            self._finish()
            return
        copying.late_s = now + TRANSFER_S
        self._convert(copying.targets[0])

    def _finish(self) -> None:
        """Keep what was fetched, and say so to who asked for it."""
        copying, self._copying = self._copying, None
        if copying is not None:
            self._kept = copying.kept
            if copying.asked is not None:
                self._answer(copying.asked, copying.asked.property)

    def _came(self, event: Any) -> None:
        """A target was written into the property, or is refused."""
        copying = self._copying
        if copying is None or copying.pieces is not None or event.selection != self._clipboard:
            return
        if event.property == X.NONE:
            self._next()
            return
        given = self._read(copying)
        if event.target == self._atom("TARGETS"):
            self._choose(copying, given)
        elif given is not None and given.kind == self._atom("INCR"):
            copying.pieces = []
        else:
            self._store(copying, event.target, given)

    def _choose(self, copying: _Copying, given: Kept | None) -> None:
        """Which of the offered targets to fetch."""
        atoms = list(given.data[: 4 * TARGETS_MAX]) if given is not None and given.format == 32 else []
        offered = {self._name(atom): atom for atom in atoms if atom}
        names = wanted_at_once(list(offered))
        if copying.asked is not None:
            names += sorted(offered.keys() - _NO_DATA - {*names})
        copying.targets = [X.NONE, *(offered[name] for name in names[:TARGETS_MAX])]
        self._next()

    def _piece_came(self, event: Any) -> None:
        copying = self._copying
        if copying is None or copying.pieces is None or event.atom != self._property:
            return
        given = self._read(copying)
        if given is not None and given.data:
            copying.pieces.append(given)
            copying.room -= len(given.data)
            copying.late_s = time.monotonic() + TRANSFER_S
            return
        whole = [piece for piece in copying.pieces if piece.format == 8]
        copying.room += sum(len(piece.data) for piece in whole)
        joined = Kept(whole[0].kind, 8, b"".join(bytes(piece.data) for piece in whole)) if whole else None
        self._store(copying, copying.targets[0], joined)

    def _read(self, copying: _Copying) -> Kept | None:
        """What the property holds, which is taken away; None where that is nothing or too much."""
        head = self._window.get_property(self._property, X.AnyPropertyType, 0, 0)
        content = None
        if head is not None and head.bytes_after <= copying.room:
            content = self._window.get_full_property(self._property, X.AnyPropertyType)
        self._window.delete_property(self._property)
        return None if content is None else Kept(content.property_type, content.format, content.value)

    def _store(self, copying: _Copying, target: int, given: Kept | None) -> None:
        if target == self._atom(_CUT) and copying.asked is None:
            if given is not None and bytes(given.data).startswith(b"1"):
                copying.targets.clear()
        elif given is not None and len(given.data) <= copying.room:
            copying.kept[target] = given
            copying.room -= len(given.data)
        self._next()

    def _asked(self, event: Any) -> None:
        """A program wants what is kept, or what it copied to be kept."""
        if event.target == self._atom("SAVE_TARGETS"):
            self._save(event)
            return
        ours = event.selection == self._clipboard
        offered = self._offered() if ours else {}
        if event.target == self._atom("TARGETS"):
            names = ["TARGETS", *([] if ours else ["SAVE_TARGETS"])]
            data = [*map(self._atom, names), *offered]
            event.requestor.change_property(event.property, Xatom.ATOM, 32, data)
        elif (kept := offered.get(event.target)) is not None:
            self._write(event, kept)
        else:
            self._answer(event, X.NONE)
            return
        self._answer(event, event.property)

    def _offered(self) -> dict[int, Kept]:
        text = self._kept.get(self._atom(_TEXT))
        aliases = {self._atom(name): text._replace(kind=self._atom(name)) for name in _ALIASES} if text else {}
        return {**aliases, **self._kept}

    def _save(self, event: Any) -> None:
        listed = event.requestor.get_full_property(event.property, Xatom.ATOM)
        atoms = list(listed.value[: 4 * TARGETS_MAX]) if listed is not None and listed.format == 32 else []
        wanted = [atom for atom in atoms if atom and self._name(atom) not in _NO_DATA][:TARGETS_MAX]
        wanted.sort(key=lambda atom: self._name(atom) not in _AT_ONCE)  # time may end before the last ones
        self._finish()
        self._copying = _Copying([X.NONE, *wanted], self._kept, event)
        if wanted:
            self._next()
        else:
            self._convert("TARGETS")  # all that there are

    def _write(self, event: Any, kept: Kept) -> None:
        if kept.format != 8:
            event.requestor.change_property(event.property, kept.kind, kept.format, kept.data)
            return
        data = bytes(kept.data)
        for at in range(0, max(1, len(data)), _PIECE_BYTES):
            mode = X.PropModeAppend if at else X.PropModeReplace
            event.requestor.change_property(event.property, kept.kind, 8, data[at : at + _PIECE_BYTES], mode)

    def _answer(self, event: Any, written: int) -> None:
        event.requestor.send_event(
            x_event.SelectionNotify(
                time=event.time,
                requestor=event.requestor,
                selection=event.selection,
                target=event.target,
                property=written,
            )
        )
        self._display.flush()
