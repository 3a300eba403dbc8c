"""What terminal oracles have in common: what the shell shows, where it is, and typing commands into it.

Invariant: a command is typed only at an empty prompt, as far as the terminal's text can tell.
"""

from __future__ import annotations

from apis.actions.gui import Action, Exit, Type, Wait, line
from apis.tasks.oracle import keys
from apis.tasks.view import Move, View

PROMPT = "$"
FOLDER = "Documents"  # the shell starts in the folder above it


def screen(view: View) -> list[str]:
    """The terminal's lines, [] where it shows none."""
    name = view.find("terminal", lambda e: True)
    return [text.rstrip() for text in view.elements[name].text.rstrip().split("\n")] if name else []


def entered(view: View, command: str) -> bool:
    """Whether `command` was typed and entered before."""
    return any(turn.line == line(typed(command)) for turn in view.history)


def ran(view: View, command: str) -> bool:
    """Whether `command` was entered and, as far as the terminal shows, arrived letter by letter."""
    lines = screen(view)
    return entered(view, command) and (not lines or f"{PROMPT} {command}" in lines)


def typed(command: str) -> Action:
    """Type `command` and press Enter."""
    return Type(text=command, enter=True)


def output(view: View, command: str) -> list[str] | None:
    """What the last `command` printed; None when that can't be seen, or when the shell is not ready again."""
    lines = screen(view)
    said = f"{PROMPT} {command}"
    if said not in lines or lines[-1] != PROMPT:
        return None
    after = lines[len(lines) - lines[::-1].index(said) :]
    ends = next(n for n, text in enumerate(after) if text == PROMPT or text.startswith(f"{PROMPT} "))
    return after[:ends]


def inside(view: View) -> bool:
    """Whether the shell went into the folder of the task's files."""
    return ran(view, f"cd {FOLDER}")


def at(view: View, name: str) -> str:
    """`name` of the task's files as the shell must be told it."""
    return name if inside(view) else f"{FOLDER}/{name}"


def go_in(view: View) -> Move | None:
    """The step into the task's folder, for a route that takes it; None when it is taken or not on the route."""
    if view.route.random() < 0.5 or inside(view):
        return None
    return enter(view, f"{PROMPT} -> go to {FOLDER}", f"cd {FOLDER}")


def enter(view: View, thought: str, command: str) -> Move:
    """Type `command`, or first make the prompt empty."""
    lines = screen(view)
    if lines and lines[-1] != PROMPT:
        return keys("stop this", "ctrl", "c")
    return thought, typed(command)


def finish(view: View, thought: str, command: str, first: Move | None = None) -> Move:
    """Enter `command`, after the move `first` where there is one; end when it ran and the shell is ready again."""
    if not ran(view, command):
        return first or enter(view, thought, command)
    lines = screen(view)
    return ("wait for the shell", Wait()) if lines and lines[-1] != PROMPT else ("done", Exit(success=True))
