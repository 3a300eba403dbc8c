"""The agent: one process per desktop that carries out what the host asks, one request at a time.

Invariant: only methods of the table below can be called, with the arguments they declare; every request gets exactly
one reply, an error with a kind and a text when it fails.

Request {"i": id, "m": method, "a": {name: value}}; reply {"i": id, "r": result} or {"i": id, "e": [kind, text]}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from guest import files, frames
from guest.errors import Refused
from guest.keyboard import Keyboard
from guest.pixels import Pixels
from guest.pointer import Pointer
from guest.quiet import Work, settle
from guest.screenlink import ScreenLink
from guest.windows import Windows

MANAGER_S = 20.0
LAUNCH_MAX = 64
REST_S = 1.0
ERROR_TEXT_MAX = 500


class Agent:
    """The methods, and the connections that they share; each connection is made when first needed."""

    def __init__(self) -> None:
        self._link = ScreenLink()
        self._pointer = Pointer(self._link)
        self._keyboard = Keyboard(self._link, self._rest)
        self._windows = Windows(self._link)
        self._pixels = Pixels()
        self._work = Work()
        self._tree: Any = None
        self._started: list[subprocess.Popen[bytes]] = []

    def table(self) -> dict[str, Callable[..., Any]]:
        """All that can be called."""
        return {
            "ping": self.ping,
            "ready": self.ready,
            "launch": self.launch,
            "running": self.running,
            "windows": self._windows.list,
            "activate": self._windows.activate,
            "close": self._windows.close,
            "place": self._windows.place,
            "move": self._pointer.move,
            "click": self._pointer.click,
            "drag": self._pointer.drag,
            "scroll": self._pointer.scroll,
            "type_text": self.type_text,
            "hotkey": self.hotkey,
            "screenshot": self._pixels.picture,
            "checksum": self._pixels.checksum,
            "observe": self.observe,
            "settle": self.settle,
            "wait_window": self.wait_window,
            "read_file": files.read_file,
            "write_file": files.write_file,
            "make_folder": files.make_folder,
        }

    def _accessibility(self) -> Any:
        if self._tree is None:
            from guest.tree import Tree

            self._tree = Tree()
        return self._tree

    def ping(self) -> str:
        """Answer."""
        return "pong"

    def ready(self) -> bool:
        """Wait for the window manager and the accessibility registry."""
        self._link.wait_manager(MANAGER_S)
        self._accessibility().ready()
        return True

    def launch(self, argv: list[str], env: dict[str, str] | None = None) -> int:
        """Start a program in HOME; its process id."""
        self._started = [child for child in self._started if child.poll() is None]
        if len(self._started) >= LAUNCH_MAX:
            raise Refused("failed", "too many programs are running")
        if not argv or not all(isinstance(part, str) for part in argv):
            raise Refused("bad_request", "argv is a list of strings")
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=os.environ["HOME"],
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise Refused("failed", f"{argv[0]}: {error.strerror}") from error
        self._started.append(child)
        return child.pid

    def running(self) -> list[int]:
        """Process ids of launched programs that still run."""
        self._started = [child for child in self._started if child.poll() is None]
        return [child.pid for child in self._started]

    def type_text(self, text: str) -> None:
        """Type into the focused window at its application's pace."""
        self._keyboard.type_text(text, *self._windows.focus())

    def hotkey(self, keys: list[str]) -> None:
        """Press keys together in the focused window."""
        self._keyboard.hotkey(keys, dialog=self._windows.focus()[1])

    def settle(self, timeout_ms: int = 2000, quiet_ms: int = 60) -> bool:
        """Wait until nothing moves any more; whether that came in time."""
        self._answer()
        return settle(self._link, self._work, timeout_ms / 1000, quiet_ms / 1000)

    def _rest(self, seconds: float) -> None:
        settle(self._link, self._work, REST_S, seconds)

    def _answer(self) -> None:
        """Let the active application begin with what it was sent."""
        pid = next((row["pid"] for row in self._windows.list() if row["active"]), 0)
        if pid:
            self._accessibility().answers(pid)

    def wait_window(self, title: str, timeout_ms: int = 10_000, accessible: bool = True) -> dict[str, Any]:
        """Wait for a window whose title or class holds `title`, and until its application is on the accessibility bus.

        Raises Refused `no_window` at the deadline.
        """
        until = time.monotonic() + timeout_ms / 1000
        wanted = title.lower()
        while True:
            for row in self._windows.list():
                named = wanted in row["title"].lower() or wanted in row["class"].lower()
                if named and (not accessible or self._accessibility().answers(row["pid"])):
                    return row
            left = until - time.monotonic()
            if left <= 0:
                raise Refused("no_window", f"no window {title[:80]!r} after {timeout_ms} ms")
            self._link.wait_change(min(0.05, left))

    def observe(self) -> dict[str, Any]:
        """Windows and showing elements: [tag, name, text, x, y, w, h, states, window index]."""
        rows = self._windows.list()
        walk = self._accessibility().observe(rows, self._pixels.width, self._pixels.height)
        kept = ("id", "class", "title", "active")
        return {
            "windows": [{key: row[key] for key in kept} for row in rows],
            "elements": walk.elements,
            "cut": walk.cut,
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
    while (request := frames.read(source)) is not None:
        reply = answer(table, request)
        try:
            frame = frames.pack(reply)
        except frames.FrameError as error:
            frame = frames.pack({"i": reply["i"], "e": ["too_long", str(error)]})
        sink.write(frame)
        sink.flush()


def main(argv: list[str]) -> int:
    """Take the session's environment and serve standard input and output."""
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("--run", type=Path, required=True)
    args = parser.parse_args(argv)
    os.environ.clear()
    os.environ.update(json.loads((args.run / "session.json").read_text()))
    os.chdir(os.environ["HOME"])
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between frames
    serve(sys.stdin.buffer, sink)
    return 0
