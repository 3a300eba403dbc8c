"""Tasks whose instruction lacks what has to be read first: by a command, or in a note in the text editor."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from apis.actions.gui import Exit, Wait
from apis.tasks.families import files, kind_of, worded, wordings
from apis.tasks.families.document import EDITOR, noted, read_note
from apis.tasks.families.terminal import FOLDER, PROMPT, at, enter, entered, finish, go_in, output, ran, screen
from apis.tasks.family import DOCUMENTS, TERMINAL, of_files
from apis.tasks.oracle import switch
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import text_file, words


def _terminal_read(random: Random, split: str) -> Goal:
    kind = kind_of(random, "terminal_read")
    count = random.choice((2, 3))
    found, folder, *drawn = words(random, split, 2 * count + 2)
    names = [text_file(random, stem) for stem in drawn[:count]]
    files = dict(zip(names, (f"{text}\n" for text in drawn[count:]), strict=True))
    name = random.choice(names)
    end: dict[str, str | None] = dict(files)
    match kind:
        case "says":
            files[name] = end[name] = f"{found}\n"
            end[found] = None
        case "holds":
            found, name = _only(files, random)
            del end[found]
        case "lists":
            del files[name], end[name]
            name = folder
            files[f"{folder}/{found}"] = end[f"{folder}/{found}"] = f"{drawn[-1]}\n"
            end[found] = None
    return Goal(
        kind=kind,
        instruction=worded(random, "terminal_read", kind, split, name=name),
        target=name,
        wanted=found,
        files=tuple(files.items()),
        end=tuple(end.items()),
    )


def _only(files: dict[str, str], random: Random) -> tuple[str, str]:
    """One of `files` whose text is in no other, and that text."""
    alone = [name for name, text in files.items() if sum(text.strip() in other for other in files.values()) == 1]
    name = random.choice(alone)
    return name, files[name].strip()


def _read_decide(view: View) -> Move:
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


TERMINAL_READ = of_files(
    "terminal_read",
    ("terminal",),
    wordings("terminal_read"),
    _terminal_read,
    opened=lambda _: [TERMINAL],
    decide=_read_decide,
)


def _note_to_terminal(random: Random, split: str) -> Goal:
    kind = kind_of(random, "note_to_terminal")
    stems = words(random, split, 7)
    note, other, third, new = (text_file(random, stem) for stem in stems[:4])
    says = {"folder": stems[4], "delete": other, "write": " ".join(stems[4 : 5 + random.choice((0, 1))])}[kind]
    files = {note: f"{says}\n", other: f"{stems[5]}\n", third: f"{stems[6]}\n"}
    end: dict[str, str | None] = dict(files)
    match kind:
        case "folder":
            end[says] = None
        case "delete":
            del end[says]
        case "write":
            end[new] = f"{says}\n"
    return Goal(
        kind=kind,
        instruction=worded(random, "note_to_terminal", kind, split, note=note, new=new),
        target=note,
        wanted=new if kind == "write" else "",
        files=tuple(files.items()),
        end=tuple(end.items()),
        words=(says,),
        front=random.choice((EDITOR, TERMINAL)),
    )


def _terminal_decide(view: View) -> Move:
    goal = view.goal
    says = goal.words[0]
    if not noted(view, says):
        return read_note(view, goal.target, says)
    if view.observation.app != TERMINAL:
        return switch(view, TERMINAL)
    command = {
        "folder": f"mkdir {FOLDER}/{says}",
        "delete": f"rm {FOLDER}/{says}",
        "write": f"echo {says} > {FOLDER}/{goal.wanted}",
    }[goal.kind]
    return finish(view, f"noted {says} -> {goal.kind}", command)


def _opened(made: Goal) -> list[str]:
    note = f"{DOCUMENTS}/{made.target}"
    return [TERMINAL, note] if made.front == EDITOR else [note, TERMINAL]


NOTE_TO_TERMINAL = of_files(
    "note_to_terminal",
    (TERMINAL, EDITOR),
    wordings("note_to_terminal"),
    _note_to_terminal,
    opened=_opened,
    decide=_terminal_decide,
)


FILES = "file_manager"


def _note_to_files(random: Random, split: str) -> Goal:
    kind = kind_of(random, "note_to_files")
    stems = words(random, split, 7)
    note, *others = (text_file(random, stem) for stem in stems[:3])
    says = stems[3] if kind == "folder" else random.choice(others)
    files = {note: f"{says}\n"} | {name: f"{text}\n" for name, text in zip(others, stems[4:], strict=False)}
    end: dict[str, str | None] = dict(files)
    if kind == "folder":
        end[says] = None
    else:
        del end[says]
    return Goal(
        kind=kind,
        instruction=worded(random, "note_to_files", kind, split, note=note),
        target=note,
        files=tuple(files.items()),
        end=tuple(end.items()),
        words=(says,),
    )


def _note_files_decide(view: View) -> Move:
    says, folder = view.goal.words[0], view.goal.kind == "folder"
    if not noted(view, says):
        return read_note(view, view.goal.target, says)
    if view.observation.app != FILES:
        return switch(view, FILES)
    known = replace(view.goal, target="" if folder else says, wanted=says if folder else "")
    return files.manage_decide(replace(view, goal=known))


NOTE_TO_FILES = of_files(
    "note_to_files",
    (FILES, EDITOR),
    wordings("note_to_files"),
    _note_to_files,
    opened=lambda made: [DOCUMENTS, f"{DOCUMENTS}/{made.target}"],
    decide=_note_files_decide,
)

FAMILIES = (TERMINAL_READ, NOTE_TO_TERMINAL, NOTE_TO_FILES)
