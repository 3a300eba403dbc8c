"""What the host knows of it. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import App

APP = App("notes", ("notes",), "notes", ("xterm", "-class", "Notes", "-T", "Notes", "-e", "cat"))
