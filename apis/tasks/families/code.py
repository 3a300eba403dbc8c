"""Tasks on VS Code: change, append or delete a line of a file, and save; or append what a note says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from apis.actions.gui import Click, Exit, Hotkey, Type, Wait
from apis.catalogue import call
from apis.tasks.families import code_extension, kind_of, worded, wordings
from apis.tasks.families.code_extension import CODE, Place
from apis.tasks.families.document import EDITOR, after_note
from apis.tasks.family import DOCUMENTS, Family, end_of, ends_so
from apis.tasks.oracle import click, keys, pointed, switch
from apis.tasks.osworld import Step, data_url, opened
from apis.tasks.view import Decide, Goal, Move, View
from apis.tasks.words import text_file, words

TO_END = Hotkey(keys=("ctrl", "end"))
SELECT = Hotkey(keys=("shift", "end"))
_ASKS = ("Current Line", "Go to line", "Type a line")  # how the field that wants a line's number is called


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


def _code_text(random: Random, split: str) -> Goal:
    kind = kind_of(random, "code_text")
    files, fresh = texts(random, split, random.choice((2, 3)))
    target, new = random.choice(sorted(files)), " ".join(fresh)
    lines = files[target]
    at = len(lines) if kind == "append" else random.randrange(len(lines))
    old = "" if kind == "append" else lines[at]
    after = [*lines[:at], *([] if kind == "delete" else [new]), *lines[at + 1 :]]
    start = {name: content(held) for name, held in files.items()}
    return Goal(
        kind=kind,
        instruction=worded(random, "code_text", kind, split, file=target, old=old, new=new),
        target=target,
        wanted="" if kind == "delete" else new,
        files=tuple(start.items()),
        end=tuple((start | {target: content(after)}).items()),
        words=(old,),
    )


def of_documents(
    name: str,
    apps: tuple[str, ...],
    goal: Callable[[Random, str], Goal],
    routes: Mapping[str, Decide],
    *,
    front: Callable[[Goal], str] = lambda _: "",
) -> Family:
    """A family that starts with Documents shown in VS Code and is done when it holds exactly the goal's `end`.

    `front` names the file that lies open before it in the text editor, where there is one.
    """

    def config(made: Goal) -> list[Step]:
        steps = code_extension.shown((f"{DOCUMENTS}/{file}", data_url(text.encode())) for file, text in made.files)
        return [*steps, opened(f"{DOCUMENTS}/{note}")] if (note := front(made)) else steps

    return Family(name, apps, goal, config, ends_so, end_of, routes, wordings(name))


def _by_gui(view: View) -> Move:
    return _next(view, tools=False)


def _by_tools(view: View) -> Move:
    return _next(view, tools=True)


def _next(view: View, *, tools: bool) -> Move:
    again, double = view.route.random() < 0.25, view.route.random() < 0.5
    start, wanted = (dict(held)[view.goal.target] or "" for held in (view.goal.files, view.goal.end))
    number = _number(view)
    if code_extension.menu(view):
        return keys("close this", "esc")
    if view.find("entry", lambda e: e.name.startswith(_ASKS)):
        asked = Type(text=str(number), enter=True)
        return keys("close this", "esc") if tools else (f"line {number}", asked)
    place = code_extension.place(view)
    if place is None or place.name != view.goal.target:
        return _to_line(view, number) if tools else _to_file(view, double=double)
    field = view.find("entry", lambda e: e.editable and e.name.startswith(view.goal.target))
    if field is None:
        return "wait for the text", Wait()
    text = view.elements[field].text.rstrip("\n")
    if text == wanted.rstrip("\n"):
        done = code_extension.did_last(view, code_extension.SAVE) and not place.dirty
        return ("saved -> done", Exit(success=True)) if done else code_extension.save(view)
    if text != start.rstrip("\n") or (again and not tools):
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
        return code_extension.to_files(view)
    return pointed(view, item, "open"), Click(coordinates=item, num_clicks=2 if double else 1)


def _to_line(view: View, number: int) -> Move:
    there = call("CodeTools", "goto_file", file_path=f"~/Documents/{view.goal.target}", line=number)
    return f"{view.goal.target} line {number} -> go", there


def _edit(view: View, field: str, place: Place, *, tools: bool) -> Move:
    number, kind = _number(view), view.goal.kind
    inside = "foc" in view.elements[field].states
    if kind == "append" and not tools:
        if inside and code_extension.did_last(view, TO_END):
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


CODE_TEXT = of_documents("code_text", (code_extension.CODE,), _code_text, {"gui": _by_gui, "mixed": _by_tools})


def _code_from_note(random: Random, split: str) -> Goal:
    files, fresh = texts(random, split, random.choice((2, 3)))
    note, *others = files
    target, says = random.choice(others), " ".join(fresh)
    start = {note: f"{says}\n"} | {name: content(files[name]) for name in others}
    return Goal(
        kind="append",
        instruction=worded(random, "code_from_note", "append", split, note=note, file=target),
        target=target,
        wanted=says,
        files=tuple(start.items()),
        end=tuple((start | {target: f"{start[target]}{says}\n"}).items()),
        words=(note,),
    )


def _in_code(edit: Decide) -> Decide:
    return after_note(lambda view: edit(view) if view.observation.app == CODE else switch(view, CODE))


CODE_FROM_NOTE = of_documents(
    "code_from_note",
    (CODE, EDITOR),
    _code_from_note,
    {"gui": _in_code(_by_gui), "mixed": _in_code(_by_tools)},
    front=lambda made: made.words[0],
)

FAMILIES = (CODE_TEXT, CODE_FROM_NOTE)
