"""What a desktop knows of it; this folder is the package `guest.notes` there."""

from __future__ import annotations

from guest.tools import Application

APPLICATION = Application("NotesTools", "Notes", ("notes",))
