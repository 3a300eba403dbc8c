"""VLC as the guest knows it. Invariant: a pure declaration."""

from __future__ import annotations

from guest.application import Application

APPLICATION = Application("VLCTools", "VLC", ("vlc",), ("vlc",), prepares="guest.vlc.start")
