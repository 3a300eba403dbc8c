"""The terminal as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import App

APP = App("terminal", ("xterm", "gnome-terminal-server", "uxterm"), "terminal", ("xterm",))
