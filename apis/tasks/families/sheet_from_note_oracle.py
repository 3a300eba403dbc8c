"""How to carry a number from a note into a sheet: read it, keep it as a quote, go to the sheet, enter it there.

Invariant: nothing is entered before the note was read and quoted in this very episode.
"""

from __future__ import annotations

from apis.actions.gui import Quote, line
from apis.tasks.families.calc import calc_oracle
from apis.tasks.oracles import Decide, Move, View

EDITOR = "text_editor"


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    return _then(view, calc_oracle.by_gui)


def by_tools(view: View) -> Move:
    """The next move with Calc's functions where Calc has them."""
    return _then(view, calc_oracle.by_tools)


def _then(view: View, enter: Decide) -> Move:
    quote = Quote(content=view.goal.wanted)
    if not any(turn.line == line(quote) for turn in view.history):
        move = calc_oracle.to_window(view, EDITOR) if view.observation.app != EDITOR else None
        return move or ("the note -> keep it", quote)
    return enter(view)
