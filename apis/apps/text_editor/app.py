"""The text editor as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import App

APP = App("text_editor", ("mousepad", "gedit", "featherpad"), "gedit", ("mousepad",))
