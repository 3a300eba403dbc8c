"""Tasks on the text editor: replace a text or a word, add a line, or save under another name.

A word that is replaced comes twice or more, inside no other word, and the new one nowhere.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Exit, Hotkey, Type
from apis.tasks.families import kind_of, worded, wordings
from apis.tasks.family import DOCUMENTS, Family, Files, exactly, in_documents, of_files, setup
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.osworld import Evaluator, Step
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import text_file, words

UNSAVED = "*"  # the title begins with it


def _text_editor(random: Random, split: str) -> Goal:
    kind = kind_of(random, "text_editor")
    drawn = words(random, split, 8)
    name = text_file(random, drawn[0])
    line = " ".join(drawn[1 : 1 + random.choice((1, 2, 2, 3))])
    old = [" ".join(drawn[4:6]), drawn[6], drawn[7]][: random.choice((1, 2, 2, 3))]
    wanted = {"replace": [line], "append": [*old, line], "prepend": [line, *old]}[kind]
    return Goal(
        kind=kind,
        instruction=worded(random, "text_editor", kind, split, file=name, line=line),
        target=name,
        wanted="\n".join(wanted),
        files=((name, "".join(f"{text}\n" for text in old)),),
    )


def editor_config(made: Goal) -> list[Step]:
    """The file is open."""
    return setup(made, f"{DOCUMENTS}/{made.target}")


def editor_evaluator(made: Goal) -> Evaluator:
    """Documents holds the file alone, with the text."""
    return exactly({made.target: made.wanted})


def editor_solved(made: Goal) -> Files:
    """The files when it is done."""
    return in_documents(dict(made.files) | {made.target: made.wanted + "\n"})


def _text_decide(view: View) -> Move:
    select_first, save_by_menu = view.route.random() < 0.35, view.route.random() < 0.35
    field, menu = view.field(), view.find("menu-item", lambda e: True)
    if field is None:
        return keys("close this", "esc")
    if view.elements[field].text.rstrip("\n") == view.goal.wanted:
        return save(view, menu, save_by_menu)
    if menu is not None:
        return keys("close this", "esc")
    return _write(view, field, select_first)


def save(view: View, menu: str | None, by_menu: bool) -> Move:
    """Save the text, which is as it should be, by the open `menu`, the File menu or the keys; once saved, end."""
    if not view.title.startswith(UNSAVED):
        return "saved -> done", Exit(success=True)
    if menu is not None:
        item = view.find("menu-item", lambda e: e.label.strip() == "Save")
        return click(view, item) if item else keys("close this", "esc")
    file_menu = view.labelled("menu", "File")
    return click(view, file_menu, "save") if by_menu and file_menu else keys("save", "ctrl", "s")


def _write(view: View, field: str, select_first: bool) -> Move:
    old = view.goal.files[0][1]
    added = (
        view.goal.wanted.removeprefix(old) if view.goal.kind == "append" else view.goal.wanted.removesuffix(old[:-1])
    )
    untouched = view.elements[field].text == old
    if view.goal.kind == "append" and untouched:
        if view.did(Hotkey(keys=("ctrl", "end"))):
            return "at the end -> add", Type(text=added)
        return keys("go to the end", "ctrl", "end")
    if view.goal.kind == "prepend" and untouched:
        if view.did(Hotkey(keys=("ctrl", "home"))):
            return "at the top -> insert", Type(text=added.removesuffix("\n"), enter=True)
        return keys("go to the top", "ctrl", "home")
    return _replaced(view, field, select_first)


def _replaced(view: View, field: str, select_first: bool) -> Move:
    if not select_first:
        return f"{field} text -> replace", Type(coordinates=field, text=view.goal.wanted, overwrite=True)
    if view.did(Hotkey(keys=("ctrl", "a"))):
        return "all selected -> replace", Type(text=view.goal.wanted)
    return keys("select all", "ctrl", "a")


TEXT_EDITOR = Family(
    "text_editor",
    ("text_editor",),
    _text_editor,
    editor_config,
    editor_evaluator,
    editor_solved,
    {"gui": _text_decide},
    wordings("text_editor"),
)


FIND_DIALOG = "Find and Replace"


def _editor_find(random: Random, split: str) -> Goal:
    old, new, *others = _apart(words(random, split, 9))
    text = [old] * random.choice((2, 2, 3)) + others[: random.choice((2, 3))]
    random.shuffle(text)
    cut = random.randrange(1, len(text))
    lines = "".join(f"{' '.join(part)}\n" for part in (text[:cut], text[cut:]))
    name = text_file(random, others[-1])
    wanted = " ".join(new if word == old else word for word in lines.replace("\n", " \n ").split(" "))
    wanted = wanted.replace(" \n ", "\n")
    return Goal(
        kind="word",
        instruction=worded(random, "editor_find", "word", split, file=name, old=old, new=new),
        target=name,
        wanted=wanted.rstrip("\n"),
        files=((name, lines),),
        end=((name, wanted),),
        words=(old, new),
    )


def _apart(drawn: list[str]) -> list[str]:
    """Those of `drawn` that neither hold the first two nor stand in them, since the editor finds parts of words."""
    old, *others = drawn
    return [old, *(word for word in others if old not in word and word not in old)]


def _find_decide(view: View) -> Move:
    by_dialog, save_by_menu, select_first = (view.route.random() < part for part in (0.75, 0.2, 0.3))
    if view.title == FIND_DIALOG:
        return _dialog(view)
    field, menu = view.field(), view.find("menu-item", lambda e: True)
    if field is None:
        return keys("close this", "esc")
    shown = view.elements[field].text.rstrip("\n")
    if shown == view.goal.wanted:
        return save(view, menu, save_by_menu and not by_dialog)
    if menu is not None:
        return keys("close this", "esc")
    if by_dialog and shown == view.goal.files[0][1].rstrip("\n"):
        return keys(pointed(view, field, "replace"), "ctrl", "r")
    return _replaced(view, field, select_first)


def _dialog(view: View) -> Move:
    old, new = view.goal.words
    if any(window.title.startswith(UNSAVED) for window in view.observation.windows):
        return keys("replaced -> close", "esc")
    fields = [name for name, element in view.elements.items() if element.tag == "text" and element.editable]
    every = view.labelled("check-box", "Replace all")
    button = view.labelled("push-button", "Replace")
    if len(fields) != 2 or every is None or button is None:
        return keys("close this", "esc")
    if [view.elements[name].text for name in fields] != [old, new]:
        return f"{fields[0]} text -> {old}, {new}", Type(coordinates=fields[0], text=f"{old}\t{new}", overwrite=True)
    if view.elements[button].label != "Replace All":
        return click(view, every)
    return click(view, button)


EDITOR_FIND = of_files(
    "editor_find",
    ("text_editor",),
    wordings("editor_find"),
    _editor_find,
    opened=lambda made: [f"{DOCUMENTS}/{made.target}"],
    decide=_find_decide,
)


COPY_DIALOG = "Save As"


def _editor_copy(random: Random, split: str) -> Goal:
    old, new, *text = words(random, split, 2 + random.choice((2, 3, 4)))
    names = [text_file(random, stem) for stem in (old, new)]
    content = f"{' '.join(text)}\n"
    return Goal(
        kind="copy",
        instruction=worded(random, "editor_copy", "copy", split, old=names[0], new=names[1]),
        target=names[0],
        wanted=names[1],
        files=((names[0], content),),
        end=tuple((name, content) for name in names),
    )


def _copy_decide(view: View) -> Move:
    by_menu = view.route.random() < 0.4
    entry = view.labelled("menu-item", "Save As")
    if view.title == COPY_DIALOG:
        name = view.find("text", lambda e: e.editable)
        if name is None:
            return keys("close this", "esc")
        text = Type(coordinates=name, text=view.goal.wanted, overwrite=True, enter=True)
        return f"{pointed(view, name, view.goal.wanted)}", text
    if view.title.startswith(f"{view.goal.wanted} "):
        return "saved -> done", Exit(success=True)
    if entry is not None:
        return click(view, entry)
    file_menu = view.labelled("menu", "File")
    if view.find("menu-item", lambda e: True) or file_menu is None:
        return keys("close this", "esc")
    return click(view, file_menu, "save as") if by_menu else keys("save as", "ctrl", "shift", "s")


EDITOR_COPY = of_files(
    "editor_copy",
    ("text_editor",),
    wordings("editor_copy"),
    _editor_copy,
    opened=lambda made: [f"{DOCUMENTS}/{made.target}"],
    decide=_copy_decide,
)

FAMILIES = (TEXT_EDITOR, EDITOR_FIND, EDITOR_COPY)
