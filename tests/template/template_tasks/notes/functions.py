"""Its functions. Invariant: pure declarations; `guest/functions.py` carries each of them out."""

from __future__ import annotations

from apis.functions.declaration import Function, Param, Tool

FUNCTIONS = (
    Function(
        "NotesTools", "add", Tool, (Param("text", "text", "str", (40,), meaning="the note"),), "Add a line to ~/notes."
    ),
)
