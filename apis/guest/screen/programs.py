"""Programs that are started here: commands of task files run to their end, and windows that are waited for.

Every wait has the caller's deadline. A window counts as open only when its application answers on the accessibility
bus, a terminal when its shell has prompted.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest import Refused
from guest.screen import terminal
from guest.screen.screenlink import ScreenLink
from guest.screen.terminal import SILENT_CLASSES
from guest.screen.windows import Windows
from guest.tools import reachable, usable

OUT_BYTES = 256 << 10
GRACE_S = 0.3  # for output of what a command left behind


Env = dict[str, str] | None


def run(argv: list[str], timeout_ms: int = 10_000, env: Env = None, *, errors: bool = False) -> dict[str, Any]:
    """Run a command in HOME, with `env` besides the session's environment; its exit status and its output, or `errors`.

    The status is None at the deadline. Raises Refused `failed`.
    """
    child = _started(argv, env, heard="stderr" if errors else "stdout")
    out = _output(child, time.monotonic() + timeout_ms / 1000)
    code = child.poll()
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return {"code": code, "out": out.decode("utf-8", "replace")}


def _started(
    argv: list[str], env: Env, made: Callable[[list[str]], list[str]] = lambda argv: argv, heard: str = ""
) -> subprocess.Popen[bytes]:
    """A program in HOME, `heard` by its stdout or stderr; `made` gives the command that is run. Raises Refused."""
    if not argv or not all(isinstance(part, str) for part in argv):
        raise Refused("bad_request", "argv is a list of strings")
    try:
        return subprocess.Popen(
            made(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if heard == "stdout" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if heard == "stderr" else subprocess.DEVNULL,
            cwd=os.environ["HOME"],
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    except OSError as error:
        raise Refused("failed", f"{argv[0]}: {error.strerror}") from error


def _output(child: subprocess.Popen[bytes], until: float) -> bytes:
    """What `child` writes until it has ended; what is beyond the bound is read and dropped."""
    heard = child.stdout or child.stderr
    assert heard is not None
    kept = bytearray()
    with heard as pipe, selectors.DefaultSelector() as selector:
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            if selector.select(min(left, GRACE_S)):
                part = pipe.read(1 << 16)
                if not part:
                    break
                kept += part[: OUT_BYTES - len(kept)]
            elif child.poll() is not None:
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
    return bytes(kept)


LAUNCH_MAX = 64
READER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("terminal.py")))
LOOK_S = 0.05
OWN_PARTS = {"canvas"}  # of the guest's programs, which open windows that tell the accessibility bus nothing


def readable(argv: list[str]) -> list[str]:
    """The command of a terminal, with the program in it that keeps what it shows; any other command as it is.

    What the guest has of its own is started by its own Python.
    """
    name = os.path.basename(argv[0])
    if name in OWN_PARTS:
        return [sys.executable, "-I", str(Path(__file__).parents[1]), *argv]
    if name not in SILENT_CLASSES:
        return argv
    at = argv.index("-e") if "-e" in argv else len(argv)
    inner = argv[at + 1 :]
    titled = {"-T", "-title"} & set(argv[:at])
    title = [] if titled else ["-T", os.path.basename(inner[0]) if inner else name]
    return [*argv[:at], *title, "-e", *READER, *inner]


class Programs:
    """What runs on one desktop by the host's wish."""

    def __init__(self, link: ScreenLink, windows: Windows, accessibility: Callable[[], Any]) -> None:
        self._link = link
        self._windows = windows
        self._accessibility = accessibility
        self._started: list[subprocess.Popen[bytes]] = []

    def launch(self, argv: list[str], env: Env = None) -> int:
        """Start a program in HOME; its process id."""
        if len(self.running()) >= LAUNCH_MAX:
            raise Refused("failed", "too many programs are running")
        child = _started(argv, env, lambda argv: reachable(readable(argv)))
        self._started.append(child)
        return child.pid

    def running(self) -> list[int]:
        """Process ids of launched programs that still run."""
        self._started = [child for child in self._started if child.poll() is None]
        return [child.pid for child in self._started]

    def open_window(self, argv: list[str], title: str = "", timeout_ms: int = 10_000) -> dict[str, Any]:
        """Start a program and wait for its window: one that was not there before, or had another title.

        `title` is part of the window's title or class. Raises Refused `no_window` at the deadline.
        """
        before = {row["id"]: row["title"] for row in self._windows.list()}
        self.launch(argv)
        return self._wait(title, timeout_ms, True, lambda row: before.get(row["id"]) != row["title"])

    def wait_window(self, title: str, timeout_ms: int = 10_000, accessible: bool = True) -> dict[str, Any]:
        """Wait for a window whose title or class holds `title`, and until its application is on the accessibility bus.

        Raises Refused `no_window` at the deadline.
        """
        return self._wait(title, timeout_ms, accessible, lambda row: True)

    def raise_window(
        self, title: str, strict: bool = False, by_class: bool = False, timeout_ms: int = 10_000
    ) -> dict[str, Any]:
        """Bring a window to the front, once there is one: its title (or class) holds `title`, or with `strict` is it.

        Raises Refused `no_window` at the deadline.
        """

        def wanted(row: dict[str, Any]) -> bool:
            text = row["class" if by_class else "title"]
            return bool(text == title if strict else title.lower() in text.lower())

        row = self._wait("", timeout_ms, False, wanted, called=title)
        self._windows.activate(row["id"])
        return row

    def _wait(
        self,
        title: str,
        timeout_ms: int,
        accessible: bool,
        wanted: Callable[[dict[str, Any]], bool],
        called: str = "",
    ) -> dict[str, Any]:
        until = time.monotonic() + timeout_ms / 1000
        part = title.lower()
        while True:
            loading = None
            for row in self._windows.list():
                named = part in row["title"].lower() or part in row["class"].lower()
                if named and wanted(row) and (not accessible or self._answers(row)):
                    if not accessible or usable(row["class"]):
                        return row
                    loading = row
            left = until - time.monotonic()
            if left <= 0 and loading is not None:
                return loading  # it is there, and the next action waits for it
            if left <= 0:
                raise Refused("no_window", f"no window {(title or called)[:80]!r} after {timeout_ms} ms")
            self._link.wait_change(min(LOOK_S, left))

    def _answers(self, row: dict[str, Any]) -> bool:
        if row["class"].lower() in OWN_PARTS:
            return bool(row["active"])
        if row["class"].lower() not in SILENT_CLASSES:
            return bool(self._accessibility().answers(row["pid"]))
        seen = terminal.read(terminal.path_of(row["id"]))
        return row["active"] and seen is not None and seen[0] > 0
