"""How to do the terminal's tasks by one command, from the folder above or after going into the folder.

Invariant: it ends only after its command was entered and the shell is ready again.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Wait
from apis.tasks.families.terminal.shell import PROMPT, at, enter, go_in, ran, screen
from apis.tasks.oracles import Move, View


def decide(view: View) -> Move:
    """The next move."""
    first = go_in(view)
    command = _command(view)
    if ran(view, command):
        lines = screen(view)
        return ("wait for the shell", Wait()) if lines and lines[-1] != PROMPT else ("done", Exit(success=True))
    return first or enter(view, f"{PROMPT} -> {view.goal.kind} {view.goal.target or view.goal.wanted}", command)


def _command(view: View) -> str:
    goal = view.goal
    old, new = at(view, goal.target), at(view, goal.wanted)
    match goal.kind:
        case "folder":
            return f"mkdir {new}"
        case "write":
            return f"echo {goal.words[0]} > {new}"
        case "rename":
            return f"mv {old} {new}"
        case "copy":
            return f"cp {old} {new}"
        case _:
            return f"rm {old}"
