"""Tasks on the terminal: make, fill, rename, copy or delete a file or folder by a command.

Invariant: a task is solved only if Documents holds exactly what the command makes of it. The oracle ends only after its
command was entered and the shell is ready again.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.terminal.shell import PROMPT, at, finish, go_in
from apis.tasks.family import TERMINAL, of_files
from apis.tasks.goal import Goal
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "folder": {
        TRAIN: (
            "Make the folder {new} in Documents with a command",
            "Use the shell to create a folder {new} in Documents",
            "Type a command that makes the folder {new} in Documents",
            "In the terminal, make a new folder {new} in Documents",
            "With the shell, add a folder {new} to Documents",
            "Create {new}, a folder in Documents, from the command line",
            "Documents should have a folder {new}, make it in the terminal",
            "Enter the command for a new folder {new} in Documents",
            "A folder {new} is missing in Documents, create it with the shell",
            "On the command line, make a folder named {new} in Documents",
            "Please use a command to add the folder {new} in Documents",
            "Let the shell make a folder called {new} in Documents",
        ),
        HELD_OUT: (
            "In the terminal, create the folder {new} in Documents",
            "Make a new folder {new} in Documents with a command",
        ),
    },
    "write": {
        TRAIN: (
            "Write '{line}' into the new file {new} in Documents with a command",
            "Use the shell to make a file {new} in Documents that says '{line}'",
            "Type a command that puts '{line}' into {new} in Documents",
            "In the terminal, make the file {new} in Documents with the line '{line}'",
            "With the shell, put the line '{line}' into a file {new} in Documents",
            "Create {new} in Documents from the command line, it should say '{line}'",
            "Documents should have a file {new} that says '{line}', make it in the terminal",
            "Enter the command that makes {new} in Documents with the text '{line}'",
            "A file {new} with '{line}' is missing in Documents, create it with the shell",
            "On the command line, write '{line}' to {new} in Documents",
            "Please use a command to save '{line}' as {new} in Documents",
            "Let the shell write the text '{line}' into {new} in Documents",
        ),
        HELD_OUT: (
            "In the terminal, write '{line}' into a new file {new} in Documents",
            "Make the file {new} in Documents that says '{line}' with a command",
        ),
    },
    "rename": {
        TRAIN: (
            "Rename {old} in Documents to {new} with a command",
            "Use the shell to give {old} in Documents the name {new}",
            "Type a command that renames {old} in Documents to {new}",
            "In the terminal, change the name of {old} in Documents to {new}",
            "With the shell, call {old} in Documents {new} from now on",
            "Rename the file {old} of Documents to {new} from the command line",
            "The file {old} in Documents should be called {new}, use the terminal",
            "Enter the command that gives {old} in Documents the new name {new}",
            "{old} in Documents has the wrong name, make it {new} with the shell",
            "On the command line, let {old} in Documents be named {new}",
            "Please use a command to rename {old} in Documents, its new name is {new}",
            "Let the shell move {old} in Documents to the name {new}",
        ),
        HELD_OUT: (
            "In the terminal, rename {old} in Documents to {new}",
            "Give {old} in Documents the name {new} with a command",
        ),
    },
    "copy": {
        TRAIN: (
            "Copy {old} in Documents to {new} with a command",
            "Use the shell to make a copy {new} of {old} in Documents",
            "Type a command that copies {old} in Documents to {new}",
            "In the terminal, copy the file {old} in Documents, call the copy {new}",
            "With the shell, make {new} in Documents, a copy of {old}",
            "Copy {old} of Documents from the command line, the copy is called {new}",
            "Documents should have a copy of {old} called {new}, make it in the terminal",
            "Enter the command that copies {old} in Documents, name the copy {new}",
            "A second {old} is needed in Documents, copy it to {new} with the shell",
            "On the command line, keep {old} in Documents and make its copy {new}",
            "Please use a command to make a copy of {old} in Documents with the name {new}",
            "Let the shell copy the file {old} in Documents to a file {new}",
        ),
        HELD_OUT: (
            "In the terminal, make a copy {new} of {old} in Documents",
            "Copy the file {old} in Documents to {new} with a command",
        ),
    },
    "delete": {
        TRAIN: (
            "Delete {old} in Documents with a command",
            "Use the shell to remove {old} in Documents",
            "Type a command that deletes {old} in Documents",
            "In the terminal, remove the file {old} in Documents",
            "With the shell, throw {old} in Documents away",
            "Delete the file {old} of Documents from the command line",
            "The file {old} in Documents is not needed, delete it in the terminal",
            "Enter the command that removes {old} from Documents",
            "{old} should go from Documents, remove it with the shell",
            "On the command line, get rid of {old} in Documents",
            "Please use a command to delete the file {old} in Documents",
            "Let the shell remove {old} from Documents and nothing else",
        ),
        HELD_OUT: ("In the terminal, delete {old} in Documents", "Remove the file {old} in Documents with a command"),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
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
        instruction=random.choice(TEMPLATES[kind][split]).format(old=old, new=new, line=line),
        target=old if kind in ("rename", "copy", "delete") else "",
        wanted=new if kind != "delete" else "",
        files=tuple(files.items()),
        end=tuple(end.items()),
        words=(line,) if kind == "write" else (),
    )


def decide(view: View) -> Move:
    """The next move."""
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


FAMILY = of_files("terminal_files", ("terminal",), TEMPLATES, goal, opened=lambda _: [TERMINAL], decide=decide)
