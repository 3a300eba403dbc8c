"""How to edit a line in VS Code: by mouse and keyboard, or by VS Code's function and then by keys.

Invariant: it ends only when the editor shows the wanted text and says that it is saved, after a step that saves. From
any other text than the first one it goes on by writing the whole anew.
"""

from __future__ import annotations

from apis.actions.gui import Click, Exit, Hotkey, Type, Wait
from apis.apps.catalogue import call
from apis.tasks.families.code import code
from apis.tasks.families.code.code import Place
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Move, View

TO_END = Hotkey(keys=("ctrl", "end"))
SELECT = Hotkey(keys=("shift", "end"))
_ASKS = ("Current Line", "Go to line", "Type a line")  # how the field that wants a line's number is called


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
