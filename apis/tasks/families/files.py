"""Tasks on the file manager: rename a file, make a folder, delete a file, move one into a folder or out of it."""

from __future__ import annotations

from random import Random

from apis.actions.gui import Click, Exit, Hotkey, Type, Wait, line
from apis.tasks.families import kind_of, worded, wordings
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import text_file, words

FOLDER = "Documents"


def _file_manager(random: Random, split: str) -> Goal:
    kind = kind_of(random, "file_manager")
    count = random.choice((3, 4, 5))
    drawn = words(random, split, 2 * count + 1)
    names = [text_file(random, stem) for stem in drawn[:count]]
    target = random.choice(names)
    wanted = drawn[-1] if kind == "folder" else text_file(random, drawn[-1])
    files = tuple(zip(names, (f"{text}\n" for text in drawn[count : 2 * count]), strict=True))
    end: dict[str, str | None] = {name: text for name, text in files if kind == "folder" or name != target}
    if kind != "delete":
        end[wanted] = None if kind == "folder" else dict(files)[target]
    return Goal(
        kind=kind,
        instruction=worded(random, "file_manager", kind, split, old=target, new=wanted),
        target=target if kind != "folder" else "",
        wanted=wanted if kind != "delete" else "",
        files=files,
        end=tuple(end.items()),
    )


def to_documents(view: View) -> Move | None:
    """The next step to the folder of the task's files; None when its window shows it."""
    if view.title == FOLDER:
        return None
    field, up = view.field(), view.labelled("push-button", "Parent Folder")
    if field is None or up is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if f"/{FOLDER}/" in view.elements[field].text:
        return click(view, up)
    inside = view.find("icon", lambda e: e.label == FOLDER)
    if inside is not None:
        return pointed(view, inside, "open"), Click(coordinates=inside, num_clicks=2)
    home = view.labelled("push-button", "Home Folder")
    return click(view, home) if home else keys("close this", "esc")


NAME_DIALOGS = {"rename": "Rename File", "folder": "Creating New Folder"}
ENTRY_OF_MENU = {"rename": ("Rename",), "delete": ("Delete", "Move to Trash")}
YES = "push-button Yes"  # what the thought of confirming a deletion says


def manage_decide(view: View) -> Move:
    """The next move."""
    by_menu, by_mouse = view.route.random() < 0.3, view.route.random() < 0.4
    kind, goal = view.goal.kind, view.goal
    if view.title == NAME_DIALOGS.get(kind):
        return _name(view, by_mouse)
    yes = view.labelled("push-button", "Yes")
    if yes is not None and kind == "delete" and view.find("label", lambda e: f"'{goal.target}'" in e.label):
        return click(view, yes) if by_mouse else keys("yes -> enter", "enter")
    if yes is not None or view.field() is None:
        return keys("close this", "esc")
    away = to_documents(view)
    if away is not None:
        return away
    if _done(view):
        return "done", Exit(success=True)
    if kind == "folder":
        return keys("new folder", "ctrl", "shift", "n")
    return _reach(view, by_menu)


def _name(view: View, by_mouse: bool) -> Move:
    """Fill in and confirm the dialog that asks for a name."""
    field, ok = view.field(), view.labelled("push-button", "OK")
    if field is None or ok is None:
        return keys("close this", "esc")
    named = view.elements[field].label
    if named == view.goal.wanted:
        return click(view, ok)
    if view.goal.kind == "rename" and named != view.goal.target:
        return keys("close this", "esc")  # the dialog is about another file
    typed = Type(coordinates=field, text=view.goal.wanted, overwrite=True, enter=not by_mouse)
    return f"{field} text -> {view.goal.wanted}", typed


def _done(view: View) -> bool:
    """What shows lags behind the disk, and icons keep old names for a while after a change.

    So what was confirmed in a dialog counts as done; and a file that can't be seen counts as gone only after some
    steps towards that, because a folder that was just opened shows no icons yet.
    """
    if _confirmed(view):
        return True
    icons = {element.label for element in view.elements.values() if element.tag == "icon"}
    if view.goal.kind == "folder":
        return view.goal.wanted in icons
    if view.find("menu-item", lambda e: True):  # an open menu covers icons
        return False
    return view.goal.target not in icons and len({turn.line for turn in view.history} - {line(Wait())}) > 1


def _confirmed(view: View) -> bool:
    if view.goal.kind == "delete":
        return any(turn.line == line(Hotkey(keys=("enter",))) or YES in turn.answer for turn in view.history)
    typed = f"text={view.goal.wanted!r}"
    lines = [turn.line or "" for turn in view.history]
    at = max((n for n, text in enumerate(lines) if typed in text), default=-1)
    return at >= 0 and line(Hotkey(keys=("esc",))) not in lines[at:]


def _reach(view: View, by_menu: bool) -> Move:
    """Open what renames or removes the target, by its context menu or by selecting it and pressing a key."""
    entry = view.find("menu-item", lambda e: e.label.startswith(ENTRY_OF_MENU[view.goal.kind]))
    icon = view.find("icon", lambda e: e.label == view.goal.target)
    if entry is not None:
        right = view.has_menu_of(view.goal.target) if icon is None else "sel" in view.elements[icon].states
        return click(view, entry) if right else keys("close this", "esc")
    if icon is None:
        return "wait for the files", Wait()
    selected = "sel" in view.elements[icon].states
    if by_menu:
        return click(view, icon, "menu", button="right")
    if not selected:
        return click(view, icon)
    return keys("rename", "f2") if view.goal.kind == "rename" else keys("delete", "delete")


FILE_MANAGER = of_files(
    "file_manager",
    ("file_manager",),
    wordings("file_manager"),
    _file_manager,
    opened=lambda _: [DOCUMENTS],
    decide=manage_decide,
)


CUT, PASTE = Hotkey(keys=("ctrl", "x")), Hotkey(keys=("ctrl", "v"))


def _files_move(random: Random, split: str) -> Goal:
    count, folders = random.choice((2, 3, 4)), random.choice((1, 1, 2))
    drawn = words(random, split, 2 * count + 3 * folders)
    stems, drawn = drawn[:count], drawn[count:]
    texts, drawn = drawn[:count], drawn[count:]
    files = [(text_file(random, stem), f"{text}\n") for stem, text in zip(stems, texts, strict=True)]
    kept = [
        (text_file(random, f"{folder}/{stem}"), f"{text}\n")
        for folder, stem, text in zip(drawn[::3], drawn[1::3], drawn[2::3], strict=True)
    ]
    target, folder = random.choice(files)[0], drawn[0]
    end = [(f"{folder}/{name}" if name == target else name, text) for name, text in files]
    return Goal(
        kind="into",
        instruction=worded(random, "files_move", "into", split, file=target, folder=folder),
        target=target,
        wanted=folder,
        files=(*files, *kept),
        end=(*end, *kept),
    )


def into(view: View) -> Move:
    """The next move towards the file's being in the folder `wanted`."""
    return _move(view, FOLDER, view.goal.wanted)


def out(view: View) -> Move:
    """The next move towards the file's being next to the folder `wanted` that it is in."""
    return _move(view, view.goal.wanted, FOLDER)


def _move(view: View, origin: str, aim: str) -> Move:
    by_menu, by_button = view.route.random() < 0.4, view.route.random() < 0.6
    entry = view.labelled("menu-item", "Cut")
    if view.title not in (origin, aim):
        return to_documents(view) or keys("close this", "esc")
    icon = view.find("icon", lambda e: e.label == view.goal.target)
    if view.title == aim:
        if icon is not None:
            return pointed(view, icon, "done"), Exit(success=True)
        if entry is not None or view.find("menu-item", lambda e: True):
            return keys("close this", "esc")
        if not _was_cut(view):
            return _go(view, aim, origin, by_button)
        return ("wait for the file", Wait()) if view.did(PASTE) else keys(f"{aim} -> paste", "ctrl", "v")
    if _was_cut(view):
        return keys("close this", "esc") if entry is not None else _go(view, origin, aim, by_button)
    if entry is not None:
        right = view.has_menu_of(view.goal.target) if icon is None else "sel" in view.elements[icon].states
        cut = f"icon {view.goal.target} -> cut, {entry}"
        return (cut, click(view, entry)[1]) if right else keys("close this", "esc")
    if icon is None:
        return "wait for the files", Wait()
    selected = "sel" in view.elements[icon].states
    if by_menu:
        return click(view, icon, "menu", button="right")
    return keys(pointed(view, icon, "cut"), "ctrl", "x") if selected else click(view, icon)


def _was_cut(view: View) -> bool:
    """Whether this file was cut, by the thought that went with it: that can't be seen afterwards."""
    thought = f"icon {view.goal.target} -> cut"
    at = max((n for n, turn in enumerate(view.history) if turn.line and thought in turn.answer), default=-1)
    return at >= 0 and all(turn.line != line(CUT) for turn in view.history[at + 1 :])


def _go(view: View, here: str, there: str, by_button: bool) -> Move:
    """From one folder to the other."""
    if there == FOLDER:
        up = view.labelled("push-button", "Parent Folder")
        return click(view, up) if by_button and up else keys(f"{here} -> up", "alt", "up")
    folder = view.find("icon", lambda e: e.label == there)
    if folder is None:
        return "wait for the files", Wait()
    return pointed(view, folder, "open"), Click(coordinates=folder, num_clicks=2)


FILES_MOVE = of_files(
    "files_move", ("file_manager",), wordings("files_move"), _files_move, opened=lambda _: [DOCUMENTS], decide=into
)


def _files_out(random: Random, split: str) -> Goal:
    count = random.choice((2, 3))
    folder, above_it, text, *drawn = words(random, split, 2 * count + 3)
    names = [text_file(random, stem) for stem in drawn[:count]]
    inside = dict(zip(names, (f"{text}\n" for text in drawn[count:]), strict=True))
    above = {text_file(random, above_it): f"{text}\n"}
    target = random.choice(names)
    end = above | {target: inside[target]} | {f"{folder}/{n}": text for n, text in inside.items() if n != target}
    return Goal(
        kind="out",
        instruction=worded(random, "files_out", "out", split, file=target, folder=folder),
        target=target,
        wanted=folder,
        files=(*above.items(), *((f"{folder}/{name}", text) for name, text in inside.items())),
        end=tuple(end.items()),
    )


FILES_OUT = of_files(
    "files_out",
    ("file_manager",),
    wordings("files_out"),
    _files_out,
    opened=lambda made: [f"{DOCUMENTS}/{made.wanted}"],
    decide=out,
)

FAMILIES = (FILE_MANAGER, FILES_MOVE, FILES_OUT)
