"""The file manager as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import App

APP = App("file_manager", ("pcmanfm", "nautilus", "thunar"), "files", ("pcmanfm",))
