"""What the host knows of it. Invariant: a pure declaration."""

from __future__ import annotations

from apis.applications import App

APP = App("notes", ("notes",), "notes", ("xterm", "-class", "Notes", "-T", "Notes", "-e", "cat"))
