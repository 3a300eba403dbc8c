"""Saving a document of the office, and ending.

Invariant: an oracle ends only after having saved. Whether a document is saved can't be seen, so that is read from the
steps taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from apis.actions.gui import Exit, Hotkey, Tool, Wait, line
from apis.tasks.oracle import click
from apis.tasks.view import Move, View

SAVE = Hotkey(keys=("ctrl", "s"))
_HARMLESS = (line(Wait()), line(Hotkey(keys=("esc",))))
_DONE: Move = ("saved -> done", Exit(success=True))


@dataclass(frozen=True)
class Saving:
    """How documents of one application are saved: by the key, its button, or its function `call`."""

    call: Tool
    harmless: tuple[str, ...]  # how lines of steps begin that change no document, beside waiting and Escape

    @property
    def lines(self) -> tuple[str, str]:
        """The steps that save, by key and by function."""
        return line(SAVE), line(self.call)

    def done(self, view: View) -> bool:
        """Whether nothing but harmless steps came after the last saving."""
        lines, harmless = self.lines, _HARMLESS + self.harmless
        for turn in reversed(view.history):
            did = turn.line or ""
            if did in lines or (did.startswith("Agent.click(") and "push-button Save" in turn.answer):
                return True
            if did and not did.startswith(harmless):
                return False
        return False

    def by_gui(self, view: View, by_mouse: bool) -> Move:
        """Save by mouse or keyboard, then end."""
        if self.done(view):
            return _DONE
        button = view.labelled("push-button", "Save")
        return click(view, button, "save") if by_mouse and button else ("all there -> save", SAVE)

    def by_tool(self, view: View) -> Move:
        """Save by function, then end."""
        return _DONE if self.done(view) else ("all there -> save", self.call)
