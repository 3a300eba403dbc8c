"""How to do the terminal's tasks by a command that shows something and one that acts on what it showed.

Invariant: it acts only on what the terminal shows, never on what the instance knows besides.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Wait
from apis.tasks.families.terminal.shell import PROMPT, at, enter, entered, go_in, output, ran, screen
from apis.tasks.oracles import Move, View


def decide(view: View) -> Move:
    """The next move."""
    first = go_in(view)
    if first:
        return first
    look = _look(view)
    shown = output(view, look)
    if shown is None:
        if view.history and entered(view, look) and screen(view)[-1:] != [PROMPT]:
            return "wait for the shell", Wait()
        return enter(view, f"{PROMPT} -> look for {view.goal.target}", look)
    if not shown:
        return "nothing left -> done", Exit(success=True)
    found = shown[0].strip()
    act = f"rm {found}" if view.goal.kind == "holds" else f"mkdir {at(view, found)}"
    if ran(view, act):
        return "done", Exit(success=True)
    return enter(view, f"terminal {found} -> {act.split(' ', maxsplit=1)[0]}", act)


def _look(view: View) -> str:
    match view.goal.kind:
        case "says":
            return f"cat {at(view, view.goal.target)}"
        case "lists":
            return f"ls {at(view, view.goal.target)}"
        case _:
            return f"grep -l {view.goal.target} {at(view, '*')}"
