"""Tasks on the terminal: make, fill, rename, copy or delete a file or folder, or append a line, by a command."""

from __future__ import annotations

from random import Random

from apis.actions.gui import Action, Exit, Type, Wait, line
from apis.tasks.families import kind_of, worded, wordings
from apis.tasks.family import TERMINAL, of_files
from apis.tasks.oracle import keys
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import text_file, words

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
    """`name` of the task's files as the shell needs it."""
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


def _terminal_append(random: Random, split: str) -> Goal:
    count = random.choice((2, 3))
    drawn = words(random, split, 2 * count + 2)
    names = [text_file(random, stem) for stem in drawn[:count]]
    files = dict(zip(names, (f"{text}\n" for text in drawn[count : 2 * count]), strict=True))
    target, line = random.choice(names), " ".join(drawn[-2:][: random.choice((1, 2))])
    return Goal(
        kind="append",
        instruction=worded(random, "terminal_append", "append", split, file=target, line=line),
        target=target,
        wanted=line,
        files=tuple(files.items()),
        end=tuple((files | {target: f"{files[target]}{line}\n"}).items()),
    )


def append_decide(view: View) -> Move:
    """The next move of its oracle."""
    first = go_in(view)
    command = f"echo {view.goal.wanted} >> {at(view, view.goal.target)}"
    return finish(view, f"{PROMPT} -> append to {view.goal.target}", command, first)


TERMINAL_APPEND = of_files(
    "terminal_append",
    ("terminal",),
    wordings("terminal_append"),
    _terminal_append,
    opened=lambda _: [TERMINAL],
    decide=append_decide,
)


def _terminal_files(random: Random, split: str) -> Goal:
    kind = kind_of(random, "terminal_files")
    count = random.choice((2, 3))
    drawn = words(random, split, 2 * count + 3)
    names = [text_file(random, stem) for stem in drawn[:count]]
    files = dict(zip(names, (f"{text}\n" for text in drawn[count : 2 * count]), strict=True))
    old, line = random.choice(names), " ".join(drawn[-2:][: random.choice((1, 2))])
    new = drawn[-3] if kind == "folder" else text_file(random, drawn[-3])
    end: dict[str, str | None] = dict(files)
    match kind:
        case "folder":
            end[new] = None
        case "write":
            end[new] = f"{line}\n"
        case "copy":
            end[new] = files[old]
        case "rename":
            end[new] = end.pop(old)
        case "delete":
            del end[old]
    return Goal(
        kind=kind,
        instruction=worded(random, "terminal_files", kind, split, old=old, new=new, line=line),
        target=old if kind in ("rename", "copy", "delete") else "",
        wanted=new if kind != "delete" else "",
        files=tuple(files.items()),
        end=tuple(end.items()),
        words=(line,) if kind == "write" else (),
    )


def _files_decide(view: View) -> Move:
    first = go_in(view)
    thought = f"{PROMPT} -> {view.goal.kind} {view.goal.target or view.goal.wanted}"
    return finish(view, thought, _command(view), first)


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


TERMINAL_FILES = of_files(
    "terminal_files",
    ("terminal",),
    wordings("terminal_files"),
    _terminal_files,
    opened=lambda _: [TERMINAL],
    decide=_files_decide,
)

FAMILIES = (TERMINAL_FILES, TERMINAL_APPEND)
