"""VS Code as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import App

# Its window is one of Chromium's.
APP = App(
    "code",
    ("code", "codium"),
    "vs code",
    ("code",),
    optional=True,
    single=True,
    program="chromium",
    packages="chromium-packages.txt",
)
