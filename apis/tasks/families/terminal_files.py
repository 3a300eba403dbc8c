"""Tasks on the terminal: make, fill, rename, copy or delete a file or folder by a command.

Invariant: solved only if Documents holds exactly what the one command makes of it.
"""

from __future__ import annotations

from apis.tasks.families import terminal_files_oracle
from apis.tasks.family import TERMINAL, Goal, of_files, seeded
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "terminal_files"
EXTENSIONS = ("txt", "md", "log")

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "folder": {
        TRAIN: (
            "Make the folder {new} in Documents with a command",
            "Use the shell to create a folder {new} in Documents",
            "Type a command that makes the folder {new} in Documents",
            "In the terminal, make a new folder {new} in Documents",
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
        ),
        HELD_OUT: (
            "In the terminal, delete {old} in Documents",
            "Remove the file {old} in Documents with a command",
        ),
    },
}


def goal(task_id: str) -> Goal:
    """What instance `family/split/seed` asks for."""
    _, split, _ = task_id.split("/")
    random = seeded(task_id)
    kind = random.choice(sorted(TEMPLATES))
    count = random.choice((2, 3))
    drawn = words(random, split, 2 * count + 3)
    names = [f"{stem}.{random.choice(EXTENSIONS)}" for stem in drawn[:count]]
    files = dict(zip(names, (f"{text}\n" for text in drawn[count : 2 * count]), strict=True))
    old, line = random.choice(names), " ".join(drawn[-2:][: random.choice((1, 2))])
    new = drawn[-3] if kind == "folder" else f"{drawn[-3]}.{random.choice(EXTENSIONS)}"
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
        family=NAME,
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(old=old, new=new, line=line),
        target=old if kind in ("rename", "copy", "delete") else "",
        wanted=new if kind != "delete" else "",
        files=tuple(files.items()),
        end=tuple(end.items()),
        words=(line,) if kind == "write" else (),
    )


FAMILY = of_files(
    NAME,
    ("terminal",),
    goal,
    opened=lambda _: [TERMINAL],
    decide=terminal_files_oracle.decide,
    templates=TEMPLATES,
)
