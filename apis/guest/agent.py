"""The agent: one process per desktop that carries out what the host asks, one request at a time.

Invariant: only methods of the table below can be called, with the arguments they declare. Every request gets exactly
one reply, an error with a kind and a text when it fails. Neither side keeps more than `MAX_FRAME_BYTES` of a frame.

A frame is a 4-byte big-endian length, then one MessagePack map. Request {"i": id, "m": method, "a": {name: value}};
reply {"i": id, "r": result} or {"i": id, "e": [kind, text]}.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
from guest import Refused, files
from guest.screen.keyboard import Keyboard, keysyms_of
from guest.screen.pointer import Pointer
from guest.screen.programs import Programs, run
from guest.screen.screenlink import ScreenLink
from guest.screen.settle import Work, settle
from guest.screen.terminal import SILENT_CLASSES
from guest.screen.windows import Pixels, Windows
from guest.session.clipboard import Clipboard
from guest.session.session import enter
from guest.tools import Tools

MAX_FRAME_BYTES = 8 << 20
_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """The peer sent something that is no frame."""


def read_frame(stream: BinaryIO) -> dict | None:
    """The next frame, or None at the end of the stream. Raises FrameError."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {size} bytes")
    body = stream.read(size)
    if len(body) < size:
        return None
    value = msgpack.unpackb(body, max_str_len=size, max_bin_len=size)
    if not isinstance(value, dict):
        raise FrameError("a frame is a map")
    return value


def pack_frame(value: dict) -> bytes:
    """`value` as a frame. Raises FrameError when it is too long."""
    body = msgpack.packb(value, unicode_errors="replace")
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a reply of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body


MANAGER_S = 20.0
REST_S = 1.0
ERROR_TEXT_MAX = 500
# pcmanfm hears of a choice at most every 200 ms: what acts on one right after a second click acts on the first one.
LATE_CHOICE = {"pcmanfm"}
CHOICE_S = 0.25
SILENT_SELECTIONS = {"chromium", "chromium-browser"}  # their address bar tells no other program of what is selected
UNFOCUSED = "Typed nothing: no window has the focus. Click into one, or open an application"
OWN = (
    *("ping", "ready", "open_window", "wait_window", "click", "type_text", "type_on", "hotkey", "observe", "settle"),
    *("tool", "keep", "info", "application_state", "accessible", "terminal_text", "window_size"),
)
# What may leave an application in the middle of something.
INPUT = ("activate", "click", "close", "drag", "hotkey", "launch", "open_window", "raise_window", "scroll", "type_text")


class Agent:
    """The methods, and the connections that they share; each connection is made when first needed."""

    def __init__(self) -> None:
        self._link = ScreenLink()
        self._pointer = Pointer(self._link)
        self._keyboard = Keyboard(self._link, self._rest, self._added)
        self._windows = Windows(self._link)
        self._pixels = Pixels(self._link)
        self._clipboard = Clipboard()
        self._work = Work(self._clipboard.busy)
        self._tools = Tools()
        self._tree: Any = None
        self._terminals: Any = None
        self._called: set[str] = set()  # whose functions were called since the last input
        self._programs = Programs(self._link, self._windows, self._accessibility)

    def table(self) -> dict[str, Callable[..., Any]]:
        listed = (
            (self, OWN),
            (self._programs, ("launch", "running", "raise_window")),
            (self._windows, ("activate", "close")),
            (self._pointer, ("move", "drag", "scroll")),
            (self._tools, ("tabs", "visited")),
            (files, ("read_file", "write_file")),
        )
        methods = {name: getattr(owner, name) for owner, names in listed for name in names}
        methods |= {"run": run, "windows": self._windows.list, "screenshot": self._pixels.picture}
        methods |= {"offer": self._tools.built.offer, "look_at_source": self._tools.built.looked}
        return methods | {name: self._input(methods[name]) for name in INPUT}

    def _input(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, after which an application may be in the middle of something, as of typing into a cell."""

        def act(**arguments: Any) -> Any:
            self._called.clear()
            self._keyboard.leave()
            return method(**arguments)

        return act

    def _accessibility(self) -> Any:
        if self._tree is None:
            from guest.screen.tree import Tree

            self._tree = Tree()
        return self._tree

    def _of_terminals(self, rows: list[dict[str, Any]]) -> Any:
        """What reads terminals; None as long as there was none."""
        if self._terminals is None and any(row["class"].lower() in SILENT_CLASSES for row in rows):
            from guest.screen.terminals import Terminals

            self._terminals = Terminals()
        return self._terminals

    def ping(self) -> str:
        return "pong"

    def ready(self) -> bool:
        """Wait for the window manager and the accessibility registry."""
        self._link.wait_manager(MANAGER_S)
        self._accessibility().ready()
        self._tools.prepare()
        self._clipboard.start()
        return True

    def click(self, x: int, y: int, button: int = 1, n: int = 1) -> None:
        """Click; where that acts on what it chooses, not right after a choice still to be heard of."""
        if (button != 1 or n > 1) and self._late():
            self._pointer.rest(CHOICE_S)
        self._pointer.click(x, y, button, n)

    def type_text(self, text: str, calls: int = 1) -> str:
        """Type into the focused window at its application's pace; how it went. A long text may take several `calls`."""
        keysyms_of(text)  # what can't be typed is refused whatever has the focus
        if not self._windows.active():
            return UNFOCUSED
        self._chosen()
        return self._keyboard.type_text(text, *self._windows.focus(), calls)

    def type_on(self) -> str:
        """Go on with the text that `type_text` has begun, in a call of its own; how it went."""
        return self._keyboard.type_on() or UNFOCUSED

    def _added(self, typed: str) -> bool | None:
        """Whether the field with the focus has completed what was typed; None where no field is found that might."""
        app, dialog = self._windows.focus()
        if not self._link.selected and (dialog or app.lower() not in SILENT_SELECTIONS):
            return False
        pid = self._windows.active_pid()
        goes_on = self._accessibility().added(pid, typed) if pid else None
        # Chromium's file dialogs are GTK's and not on the bus: the server knows from GTK what it has selected.
        return self._link.selected if goes_on is None and dialog else goes_on

    def hotkey(self, keys: list[str]) -> None:
        self._chosen()
        self._keyboard.hotkey(keys, self._windows.focus()[1], lambda: bool(self._windows.popups()))

    def _late(self) -> bool:
        return self._windows.focus()[0].lower() in LATE_CHOICE

    def _chosen(self) -> None:
        """Wait until the second of two close clicks has been heard of, since keys act on what it chose."""
        if self._pointer.gap_s < CHOICE_S and self._late():
            self._pointer.rest(CHOICE_S)

    def settle(self, timeout_ms: int = 2000, quiet_ms: int = 60) -> bool:
        """Wait until nothing moves any more; whether that came in time."""
        self._answer()
        rested = settle(self._link, self._work, timeout_ms / 1000, quiet_ms / 1000)
        if self._keyboard.undo_addition():
            rested = settle(self._link, self._work, timeout_ms / 1000, quiet_ms / 1000)
        return rested

    def _rest(self, seconds: float) -> bool:
        return settle(self._link, self._work, REST_S, seconds)

    def _answer(self) -> None:
        """Let the active application begin with what it was sent."""
        if pid := self._windows.active_pid():
            self._accessibility().answers(pid)

    def open_window(self, argv: list[str], title: str = "", timeout_ms: int = 10_000) -> dict[str, Any]:
        """Start a program and wait for its window, as `Programs.open_window`."""
        row = self._programs.open_window(argv, title, timeout_ms)
        self._tools.warm(row["class"])
        return row

    def wait_window(self, title: str, timeout_ms: int = 10_000, accessible: bool = True) -> dict[str, Any]:
        """Wait for a window, as `Programs.wait_window`."""
        row = self._programs.wait_window(title, timeout_ms, accessible)
        self._tools.warm(row["class"])
        return row

    def tool(self, owner: str, name: str, arguments: dict[str, Any]) -> str:
        """Call an application's function; what it says. Raises Refused `tool_failed`."""
        answer = self._tools.call(owner, name, arguments, fresh=owner not in self._called)
        self._called.add(owner)
        return answer

    def keep(self) -> None:
        """Wait until open applications have written what was changed in them. Raises Refused `tool_failed`."""
        self._tools.keep([row["class"] for row in self._windows.list()])

    def info(self) -> str:
        return self._tools.info(next((row["class"] for row in self._windows.list() if row["active"]), ""))

    def application_state(self, owner: str) -> dict[str, Any]:
        """What an application says of itself, in the form of a command's output. Raises Refused `tool_failed`."""
        return {"code": 0, "out": self._tools.state(owner)}

    def accessible(self) -> dict[str, Any]:
        """The accessibility tree as XML, in the form of a command's output."""
        from guest.screen.tree import as_xml

        return {"code": 0, "out": as_xml(self._accessibility().applications())}

    def terminal_text(self) -> dict[str, Any]:
        """All that the terminal in front shows, or the last one, in the form of a command's output."""
        rows = [row for row in self._windows.list() if row["class"].lower() in SILENT_CLASSES]
        rows.sort(key=lambda row: (row["active"], row["stack"]))
        return {"code": 0, "out": self._of_terminals(rows).whole(rows[-1]["id"]) if rows else ""}

    def window_size(self, window_class: str = "") -> dict[str, Any]:
        """Width and height of the first window of that class, or of the screen, in the form of a command's output."""
        if not window_class:
            return {"code": 0, "out": json.dumps([self._pixels.width, self._pixels.height])}
        rows = [row for row in self._windows.list() if row["class"].lower() == window_class.lower()]
        return {"code": 0, "out": json.dumps([rows[0]["w"], rows[0]["h"]]) if rows else ""}

    def _look_into(self, page: Any, walk: Any, rows: list[dict[str, Any]]) -> None:
        """Have a web page say which of its elements a click reaches."""
        left, top, *_ = page.box
        part = walk.elements[page.first : page.last]
        asked = [[row[3] - left, row[4] - top, row[5], row[6], row[0], row[1] or row[2]] for row in part]
        shown = rows[page.window]["class"] if page.window >= 0 else ""
        if (seen := self._tools.sight(shown, page.url, page.title, asked)) is not None:
            walk.elements[page.first : page.last] = seen.applied(part, (left, top), page.window)

    def observe(self) -> dict[str, Any]:
        """Windows, showing elements and what the document in front holds.

        An element: [tag, name, text, x, y, w, h, states, window index].
        """
        rows = self._windows.list()
        size = self._pixels.width, self._pixels.height
        walk = self._accessibility().observe(rows, *size, self._windows.popups, self._tools.cells)
        for page in reversed(walk.pages):
            self._look_into(page, walk, rows)
        if (terminals := self._of_terminals(rows)) is not None:
            walk.elements += terminals.elements(rows, walk.hidden)
        kept = ("id", "class", "title", "active", "minimised")
        return {
            "windows": [{key: row[key] for key in kept} for row in rows],
            "elements": [element[:9] for element in walk.elements],
            "carets": [[at, element[9]] for at, element in enumerate(walk.elements) if element[9:] > [-1]],
            "cut": walk.cut,
            "beyond": walk.beyond,
            "info": self._tools.info(next((row["class"] for row in rows if row["active"]), "")),
        }


def answer(table: dict[str, Callable[..., Any]], request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request."""
    number = request.get("i")
    method = table.get(request.get("m", ""))
    if method is None:
        return {"i": number, "e": ["bad_request", f"no method {str(request.get('m'))[:80]!r}"]}
    try:
        return {"i": number, "r": method(**request.get("a", {}))}
    except Refused as error:
        return {"i": number, "e": [error.kind, str(error)[:ERROR_TEXT_MAX]]}
    except Exception as error:  # noqa: BLE001 - the host must learn of any failure, and the agent lives on
        return {"i": number, "e": ["failed", f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX]]}


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the host closes the channel."""
    table = Agent().table()
    while (request := read_frame(source)) is not None:
        reply = answer(table, request)
        try:
            frame = pack_frame(reply)
        except FrameError as error:
            frame = pack_frame({"i": reply["i"], "e": ["too_long", str(error)]})
        sink.write(frame)
        sink.flush()


def main(argv: list[str]) -> int:
    """Take the session's environment and serve standard input and output."""
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--patience", type=int, default=1, help="how many times as long a look at the screen may take")
    parser.add_argument("--proxy", default="")
    args = parser.parse_args(argv)
    enter(args.run)
    if args.proxy:
        os.environ.update(dict.fromkeys(("http_proxy", "https_proxy"), args.proxy), no_proxy="localhost,127.0.0.1")
    if args.patience > 1:
        from guest.screen import walk

        walk.WALK_S *= args.patience
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between frames
    serve(sys.stdin.buffer, sink)
    return 0
