"""The accessibility bus of one desktop: its applications, and what of them shows.

Invariant: an application that hangs costs one deadline and is left out of what is observed. That something was left out
is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gi
from guest.errors import Refused
from guest.screen import completion
from guest.screen.boxes import Box
from guest.screen.sheet import Known
from guest.screen.steady import Steady
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
        found = [desktop.get_child_at_index(at) for at in range(min(desktop.get_child_count(), APPS_MAX))]
        return [app for app in found if app is not None]

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
                    return completion.added(app, typed)
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
        found, cut = self._answering()
        self._steady.turn()
        walk = Walk(windows, width, height, popups, texts, steady=self._steady)
        walk.cut = cut
        for _, app in sorted(((pid != active, app) for pid, app in found), key=lambda pair: pair[0]):
            walk.application(app)
        walk.behind()
        return walk

    def _answering(self) -> tuple[list[tuple[int, Any]], bool]:
        """Process and application of those that answer now, and whether any was left out.

        One call more each, and never from the cache: of an application that hangs, every further call would wait, too,
        and some of them come back empty and not as an error.
        """
        found, cut, until = [], False, time.monotonic() + ASK_S
        for app in self.applications():
            began = time.monotonic()
            if began > until:
                return found, True
            try:
                app.get_id()
                pid = app.get_process_id()
            except GLib.Error:
                pid = 0  # gone, or it hangs
            silent = time.monotonic() - began >= CALL_MS / 1000
            cut = cut or silent
            if pid and not silent:
                found.append((pid, app))
        return found, cut
