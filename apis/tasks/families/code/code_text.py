"""Tasks on VS Code: change, append or delete a line of one of the files of a folder, and save.

Invariant: no line stands in a file twice. A task is solved only if every other line and file is as it was. The oracle
ends only when the editor shows the wanted text and says that it is saved, after a step that saves. From any other text
than the first one it goes on by writing the whole again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from apis.actions.gui import Click, Exit, Hotkey, Type, Wait
from apis.catalogue import call
from apis.tasks.families.code import code
from apis.tasks.families.code.code import Place
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Templates, end_of, ends_so
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.osworld import Step, data_url, opened
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TO_END = Hotkey(keys=("ctrl", "end"))
SELECT = Hotkey(keys=("shift", "end"))
_ASKS = ("Current Line", "Go to line", "Type a line")  # how the field that wants a line's number is called
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "change": {
        TRAIN: (
            "Change the line '{old}' of {file} to '{new}' in VS Code",
            "In VS Code, write '{new}' in place of the line '{old}' in {file}",
            "The line '{old}' in {file} is wrong, make it '{new}' with VS Code",
            "Correct {file} in VS Code: the line '{old}' should be '{new}'",
            "In the file {file} that VS Code lists, turn the line '{old}' into '{new}' and save it",
            "With VS Code, replace the line '{old}' of the file {file} by '{new}'",
        ),
        HELD_OUT: (
            "Replace the line '{old}' in {file} by '{new}' in VS Code",
            "In VS Code, make the line '{old}' of {file} say '{new}' and save it",
            "The file {file} should have the line '{new}' instead of '{old}', change it with VS Code",
        ),
    },
    "append": {
        TRAIN: (
            "Append the line '{new}' to {file} in VS Code",
            "In VS Code, add '{new}' below the last line of {file}",
            "With VS Code, write the line '{new}' at the end of {file} and save it",
            "The last line of {file} should be '{new}', add it in VS Code",
            "Use VS Code to put '{new}' at the bottom of {file}",
            "Open {file} in VS Code and add the line '{new}' after all others",
        ),
        HELD_OUT: (
            "Add the line '{new}' at the end of {file} in VS Code",
            "In VS Code, append '{new}' as the last line of {file} and save it",
            "Use VS Code to write '{new}' below everything in {file}",
        ),
    },
    "delete": {
        TRAIN: (
            "Delete the line '{old}' from {file} in VS Code",
            "In VS Code, remove the line '{old}' of {file}",
            "The line '{old}' does not belong in {file}, take it out with VS Code",
            "With VS Code, delete '{old}' from the file {file} and save it",
            "Use VS Code to drop the line '{old}' from {file}",
            "Open {file} in VS Code and delete the line that says '{old}'",
        ),
        HELD_OUT: (
            "Remove the line '{old}' from {file} in VS Code",
            "In VS Code, take the line '{old}' out of {file} and save it",
            "Use VS Code to delete the line '{old}' of the file {file}",
        ),
    },
}


def texts(random: Random, split: str, count: int) -> tuple[dict[str, list[str]], list[str]]:
    """`count` files of a few lines, and words that stand in none of them."""
    drawn = words(random, split, 5 * count + 2)
    files = {}
    for at in range(count):
        stem, *rest = drawn[5 * at : 5 * at + 5]
        lines = [" ".join(rest[:2]), rest[2], rest[3]][: random.choice((2, 3, 3))]
        random.shuffle(lines)
        files[text_file(random, stem)] = lines
    return files, drawn[-2:][: random.choice((1, 2))]


def content(lines: list[str]) -> str:
    """The lines as a file holds them."""
    return "".join(f"{text}\n" for text in lines)


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    files, fresh = texts(random, split, random.choice((2, 3)))
    target, new = random.choice(sorted(files)), " ".join(fresh)
    lines = files[target]
    at = len(lines) if kind == "append" else random.randrange(len(lines))
    old = "" if kind == "append" else lines[at]
    after = [*lines[:at], *([] if kind == "delete" else [new]), *lines[at + 1 :]]
    start = {name: content(held) for name, held in files.items()}
    return Goal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(file=target, old=old, new=new),
        target=target,
        wanted="" if kind == "delete" else new,
        files=tuple(start.items()),
        end=tuple((start | {target: content(after)}).items()),
        words=(old,),
    )


def of_documents(
    name: str,
    apps: tuple[str, ...],
    templates: Templates,
    goal: Callable[[Random, str], Goal],
    routes: Mapping[str, Decide],
    *,
    front: Callable[[Goal], str] = lambda _: "",
) -> Family:
    """A family that starts with Documents shown in VS Code and is done when it holds exactly the goal's `end`.

    `front` names the file that lies open before it in the text editor, where there is one.
    """

    def config(made: Goal) -> list[Step]:
        steps = code.shown((f"{DOCUMENTS}/{file}", data_url(text.encode())) for file, text in made.files)
        return [*steps, opened(f"{DOCUMENTS}/{note}")] if (note := front(made)) else steps

    return Family(name, apps, goal, config, ends_so, end_of, routes, templates, may=ITS_END)


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    return _next(view, tools=False)


def by_tools(view: View) -> Move:
    """The next move with VS Code's function that goes to a line; none of them edits."""
    return _next(view, tools=True)


def _next(view: View, *, tools: bool) -> Move:
    anew, double = view.route.random() < 0.25, view.route.random() < 0.5
    start, wanted = (dict(held)[view.goal.target] or "" for held in (view.goal.files, view.goal.end))
    number = _number(view)
    if code.menu(view):
        return keys("close this", "esc")
    if view.find("entry", lambda e: e.name.startswith(_ASKS)):
        asked = Type(text=str(number), enter=True)
        return keys("close this", "esc") if tools else (f"line {number}", asked)
    place = code.place(view)
    if place is None or place.name != view.goal.target:
        return _to_line(view, number) if tools else _to_file(view, double=double)
    field = view.find("entry", lambda e: e.editable and e.name.startswith(view.goal.target))
    if field is None:
        return "wait for the text", Wait()
    text = view.elements[field].text.rstrip("\n")
    if text == wanted.rstrip("\n"):
        done = code.did_last(view, code.SAVE) and not place.dirty
        return ("saved -> done", Exit(success=True)) if done else code.save(view)
    if text != start.rstrip("\n") or (anew and not tools):
        whole = Type(coordinates=field, text=wanted.rstrip("\n"), overwrite=True)
        return pointed(view, field, "replace"), whole
    return _edit(view, field, place, tools=tools)


def _number(view: View) -> int:
    """The line that is edited, in the text as it was at first."""
    lines = (dict(view.goal.files)[view.goal.target] or "").splitlines()
    return len(lines) + 1 if view.goal.kind == "append" else lines.index(view.goal.words[0]) + 1


def _to_file(view: View, *, double: bool) -> Move:
    item = view.find("tree-item", lambda e: e.name == view.goal.target)
    if item is None:
        return code.to_files(view)
    return pointed(view, item, "open"), Click(coordinates=item, num_clicks=2 if double else 1)


def _to_line(view: View, number: int) -> Move:
    there = call("CodeTools", "goto_file", file_path=f"~/Documents/{view.goal.target}", line=number)
    return f"{view.goal.target} line {number} -> go", there


def _edit(view: View, field: str, place: Place, *, tools: bool) -> Move:
    number, kind = _number(view), view.goal.kind
    inside = "foc" in view.elements[field].states
    if kind == "append" and not tools:
        if inside and code.did_last(view, TO_END):
            return "at the end -> add", Type(text=view.goal.wanted)
        return keys("to the end", *TO_END.keys) if inside else click(view, field)
    if kind == "change" and inside and place.line == number and view.did(SELECT):
        return "selected -> change", Type(text=view.goal.wanted)
    if not inside or not place.starts(number):
        return _to_line(view, number) if tools else keys(f"to line {number}", "ctrl", "g")
    if kind == "append":
        return "at the end -> add", Type(text=view.goal.wanted)
    if kind == "delete":
        return keys(f"line {number} -> delete", "ctrl", "shift", "k")
    return keys(f"line {number} -> select", *SELECT.keys)


FAMILY = of_documents("code_text", (code.CODE,), TEMPLATES, goal, {"gui": by_gui, "mixed": by_tools})
