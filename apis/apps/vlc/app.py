"""VLC as an application. Invariant: a pure declaration."""

from __future__ import annotations

from apis.apps.application import App

APP = App("vlc", ("vlc",), "vlc", ("vlc",), program="vlc", packages="vlc-packages.txt")
