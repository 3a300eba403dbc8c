"""Top-level windows as the window manager lists them, and screenshots from the frame buffer file that Xvfb keeps."""

from __future__ import annotations

import io
import mmap
import os
import struct
from pathlib import Path
from typing import Any

from guest import Refused
from guest.screen.screenlink import ScreenLink
from Xlib import X
from Xlib.error import BadDrawable, BadWindow
from Xlib.protocol import event, request

FORMATS = ("png", "jpeg")
_HEADER = struct.Struct(">25I")  # X window dump, version 7


class Pixels:
    """The desktop's frame buffer; of a display that is not our own, what its server sends of it."""

    def __init__(self, link: ScreenLink) -> None:
        path = Path(os.environ["XDG_RUNTIME_DIR"]) / "fb" / "Xvfb_screen0"
        self._link = link
        self._map: mmap.mmap | None = None
        if not path.exists():
            size = link.root.get_geometry()
            self.width, self.height = size.width, size.height
            return
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header = _HEADER.unpack(self._map[: _HEADER.size])
        self.width, self.height, self._stride = header[4], header[5], header[12]
        self._start = header[0] + 12 * header[19]
        if self._start + self._stride * self.height > len(self._map):
            raise Refused("failed", "the frame buffer file is damaged")

    def picture(self, format: str = "jpeg", quality: int = 80) -> bytes:  # noqa: A002 - the wire's name
        """The screen as `png` or `jpeg`, of that quality."""
        if format not in FORMATS or not 1 <= quality <= 95:
            raise Refused("bad_request", f"one of {FORMATS}, quality 1 to 95")
        from PIL import Image

        if self._map is None:
            raw = self._link.root.get_image(0, 0, self.width, self.height, X.ZPixmap, 0xFFFFFFFF).data
            image = Image.frombuffer("RGB", (self.width, self.height), raw, "raw", "BGRX", 0, 1)
        else:
            raw = self._map[self._start : self._start + self._stride * self.height]
            image = Image.frombuffer("RGB", (self.width, self.height), raw, "raw", "BGRX", self._stride, 1)
        out = io.BytesIO()
        if format == "png":
            image.save(out, "PNG", compress_level=1)
        else:
            image.save(out, "JPEG", quality=quality)
        return out.getvalue()


WINDOWS_MAX = 32
POPUPS_MAX = 64
TITLE_MAX = 500
_GONE = (BadWindow, BadDrawable)
_PID = "_NET_WM_PID"


class Windows:
    """Reads and commands windows through the window manager's properties and messages."""

    def __init__(self, link: ScreenLink) -> None:
        self._link = link

    def _root_list(self, name: str) -> list[int]:
        listed = self._link.root.get_full_property(self._link.atom(name), X.AnyPropertyType)
        return [int(value) for value in listed.value] if listed else []

    def _text(self, window: Any, name: str) -> str:
        given = window.get_full_property(self._link.atom(name), X.AnyPropertyType)
        value = given.value if given else b""
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def _number(self, window: Any, name: str) -> int:
        given = window.get_full_property(self._link.atom(name), X.AnyPropertyType)
        return int(given.value[0]) if given and len(given.value) else 0

    def list(self) -> list[dict[str, Any]]:
        """Windows in the order they were mapped.

        Each with id, class, title, active, minimised, x, y, w, h (screen pixels), pid, stack and modal.
        `stack` is the place in the stacking order, 0 at the bottom; `modal` holds the program's other windows. What is
        minimised, rolled up or on another desktop shows nothing: all count as minimised.
        """
        ids = self._root_list("_NET_CLIENT_LIST")[:WINDOWS_MAX]
        shown = self._viewable(ids)
        stacking = self._root_list("_NET_CLIENT_LIST_STACKING")
        active = (self._root_list("_NET_ACTIVE_WINDOW") or [0])[0]
        rows = []
        for number in ids:
            window = self._link.display.create_resource_object("window", number)
            try:
                wm_class = window.get_wm_class() or ("", "")
                title = self._text(window, "_NET_WM_NAME") or (window.get_wm_name() or "")
                geometry = window.get_geometry()
                origin = window.translate_coords(self._link.root, 0, 0)
                pid = self._number(window, _PID)
                states = window.get_full_property(self._link.atom("_NET_WM_STATE"), X.AnyPropertyType)
            except _GONE:
                continue
            rows.append(
                {
                    "id": number,
                    "class": wm_class[1][:TITLE_MAX],
                    "title": str(title)[:TITLE_MAX],
                    "active": number == active,
                    "minimised": number not in shown,
                    "x": -origin.x,
                    "y": -origin.y,
                    "w": geometry.width,
                    "h": geometry.height,
                    "pid": pid,
                    "stack": stacking.index(number) if number in stacking else -1,
                    "modal": bool(states) and self._link.atom("_NET_WM_STATE_MODAL") in states.value,
                }
            )
        return rows

    def _viewable(self, numbers: list[int]) -> set[int]:
        """Which windows are mapped, with all that they lie in; the questions go out together."""
        asked = [
            (number, request.GetWindowAttributes(display=self._link.display.display, window=number, defer=1))
            for number in numbers
        ]
        viewable = set()
        for number, question in asked:
            try:
                question.reply()
            except _GONE:
                continue
            if question.map_state == X.IsViewable:
                viewable.add(number)
        return viewable

    def popups(self) -> list[tuple[int, int, int, int]]:
        """Where windows that the manager does not manage show, menus above all: x, y, width, height in pixels."""
        boxes = []
        tops = self._link.root.query_tree().children[-POPUPS_MAX:]
        shown = self._viewable([window.id for window in tops])
        for window in tops:
            try:
                if window.id not in shown or not self._number(window, "_NET_WM_WINDOW_TYPE"):
                    continue  # a frame, or a program's own invisible one
                box = window.get_geometry()
                boxes.append((box.x, box.y, box.width, box.height))
            except _GONE:
                continue
        return boxes

    def active(self) -> int:
        """The window with the focus, 0 for none: the manager goes on telling of one that was the last and is gone."""
        number = self._link.active()
        return number if number in self._root_list("_NET_CLIENT_LIST") else 0

    def active_pid(self) -> int:
        """The process of the window with the focus, 0 where that is not known."""
        try:
            number = self.active()
            return self._number(self._link.display.create_resource_object("window", number), _PID) if number else 0
        except _GONE:
            return 0

    def focus(self) -> tuple[str, bool]:
        """The window class of the active window, or nothing, and whether it is a dialog."""
        number = self.active()
        if not number:
            return "", False
        window = self._link.display.create_resource_object("window", number)
        try:
            wm_class = window.get_wm_class() or ("", "")
            kind = self._number(window, "_NET_WM_WINDOW_TYPE")
        except _GONE:
            return "", False
        return wm_class[1], kind == self._link.atom("_NET_WM_WINDOW_TYPE_DIALOG")

    def _message(self, number: int, kind: str, data: list[int]) -> None:
        if number not in self._root_list("_NET_CLIENT_LIST"):
            raise Refused("no_window", f"there is no window {number}")
        window = self._link.display.create_resource_object("window", number)
        message = event.ClientMessage(window=window, client_type=self._link.atom(kind), data=(32, data))
        self._link.root.send_event(message, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
        self._link.flush()

    def activate(self, number: int, maximize: bool = False) -> None:
        """Raise and focus a window, and let it fill the screen."""
        self._message(number, "_NET_ACTIVE_WINDOW", [2, 0, 0, 0, 0])
        if maximize:
            both = [self._link.atom("_NET_WM_STATE_MAXIMIZED_VERT"), self._link.atom("_NET_WM_STATE_MAXIMIZED_HORZ")]
            self._message(number, "_NET_WM_STATE", [1, *both, 2, 0])

    def close(self, number: int) -> None:
        """Ask a window to close, as its close button does."""
        self._message(number, "_NET_CLOSE_WINDOW", [0, 2, 0, 0, 0])
