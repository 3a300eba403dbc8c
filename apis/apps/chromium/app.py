"""Chromium as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import App

APP = App(
    "google_chrome",
    ("chromium-browser", "chromium", "google-chrome"),
    "chrome",
    ("chromium",),
    late=True,
    program="chromium",
    packages="chromium-packages.txt",
)
