"""Tasks on VS Code: install an extension from a file of Documents, or uninstall one; and what its families share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import msgspec

from apis.actions.gui import Action, Exit, Hotkey, Tool, Wait, line
from apis.applications import app_named
from apis.apps.ranking import of_menu
from apis.catalogue import call
from apis.documents.zip import zipped
from apis.guest.code.start import EXTENSIONS
from apis.tasks.families import kind_of, worded, wordings
from apis.tasks.family import DOCUMENTS, Family, Files, Form, all_of, rule
from apis.tasks.oracle import click, keys
from apis.tasks.osworld import HOME, Evaluator, Step, data_url, launch, put, raised
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.media import listed_extension
from apis.tasks.verify.verify import GUEST_HOME, FileView, digest_of
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import words

CODE = "code"
SAVE = Hotkey(keys=("ctrl", "s"))
_ACTIVE = re.compile(r"^\* ~/Documents/([^\s/]+), line (\d+), character (\d+)(, not saved)?$", re.MULTILINE)
_HARMLESS = (line(Wait()), line(Hotkey(keys=("esc",))))


@dataclass(frozen=True)
class Place:
    """The file of Documents in front, and the caret in it, counted from 1."""

    name: str
    line: int
    character: int
    dirty: bool  # changed since it was saved

    def starts(self, number: int) -> bool:
        """Whether the caret is before the first character of line `number`."""
        return (self.line, self.character) == (number, 1)


def shown(files: Iterable[tuple[str, str]]) -> list[Step]:
    """Put files (path in the guest, URL) there and show Documents in VS Code."""
    # VS Code starts in HOME, so that the folder is found whatever HOME is called.
    folder = DOCUMENTS.rpartition("/")[2]
    return [*put(files), launch(*app_named(CODE).argv, folder), raised(f"{folder} - VS Code")]


def place(view: View) -> Place | None:
    """Where the caret is; None where no file of Documents is in front."""
    found = _ACTIVE.search(view.observation.info)
    return Place(found[1], int(found[2]), int(found[3]), bool(found[4])) if found else None


def menu(view: View) -> bool:
    """Whether a menu is open."""
    return any(map(of_menu, view.elements.values()))


def to_files(view: View) -> Move:
    """Show the list of files, or wait for it."""
    tab = view.find("page-tab", lambda e: e.name.startswith("Explorer") and "sel" not in e.states)
    return click(view, tab) if tab else ("wait for the files", Wait())


def did_last(view: View, action: Action) -> bool:
    """Whether nothing but waiting and Escape came after `action`."""
    did = (turn.line or "" for turn in reversed(view.history))
    return next((step for step in did if step and step not in _HARMLESS), "") == line(action)


def save(view: View) -> Move:
    """Save, and wait for the file once; a busy editor says later that it is written."""
    return ("wait for the file", Wait()) if view.did(SAVE) else keys("all there -> save", *SAVE.keys)


INSTALL, UNINSTALL = "Install Extension VSIX", "Uninstall"  # of menus
UNINSTALLED = "Uninstalled"  # a button's label, afterwards
CLOSE = "close this"
SEARCH = "Search Extensions"  # how the field above the list of extensions is called
DONE = {"install": ("is installed", "was installed already"), "uninstall": ("is removed", "is not installed")}
RECENT = 3  # steps after which a menu's effect is no longer waited for
_DONE: Move = ("it is done", Exit(success=True))
LIST = f"{EXTENSIONS}/extensions.json"
VERSION = "1.0.0"
MIME = "application/octet-stream"  # of a packed extension


def manifest(extension: str) -> str:
    """What tells VS Code about the extension `publisher.name`, which contributes nothing."""
    publisher, _, name = extension.partition(".")
    return json.dumps(
        {"name": name, "publisher": publisher, "displayName": name, "description": "An extension", "version": VERSION,
         "engines": {"vscode": "^1.80.0"}, "categories": ["Other"], "contributes": {}}
    )  # fmt: skip


def packed(extension: str) -> bytes:
    """The extension as a .vsix file, the same bytes every time."""
    return zipped({"extension/package.json": manifest(extension)})


def file_of(extension: str) -> str:
    """The name of its .vsix file."""
    return extension.partition(".")[2] + ".vsix"


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for: `words` are extensions, first those in Documents, then the others."""
    kind = kind_of(random, "code_extension")
    drawn = words(random, split, 12)
    names = [drawn[4 + at] + random.choice(("", f"-{drawn[8 + at]}")) for at in range(4)]
    extensions = [f"{publisher}.{name}" for publisher, name in zip(drawn, names, strict=False)]
    offered, there = (extensions[:2], extensions[2:3]) if kind == "install" else (extensions[:1], extensions[1:3])
    asked = random.choice(offered if kind == "install" else there)
    return Goal(
        kind=kind,
        instruction=worded(random, "code_extension", kind, split, file=file_of(asked), id=asked),
        target=file_of(asked),
        wanted=asked,
        files=tuple((file_of(extension), "") for extension in offered),
        words=(*offered, *there),
    )


def listed(made: Goal) -> list[str]:
    """The extensions that there are in the end."""
    there = set(made.words[len(made.files) :])
    return sorted(there | {made.wanted} if made.kind == "install" else there - {made.wanted})


def config(made: Goal) -> list[Step]:
    """The extensions of Documents lie there, the others in their places."""
    offered, there = made.words[: len(made.files)], made.words[len(made.files) :]
    files = [(f"{DOCUMENTS}/{file_of(each)}", data_url(packed(each), MIME)) for each in offered]
    # VS Code makes its list of those that lie in their places when it starts for the first time.
    packages = {f"{HOME}/{EXTENSIONS}/{each}-{VERSION}/package.json": manifest(each) for each in there}
    return shown([*files, *((path, data_url(about.encode())) for path, about in packages.items())])


def evaluator(made: Goal) -> Evaluator:
    """The editor's list and the files of Documents."""
    offered = made.words[: len(made.files)]
    names = sorted(map(file_of, offered))
    same = [("file_bytes_are", file_of(each), rule(expected=digest_of(packed(each)))) for each in offered]
    files = all_of(("folder_holds", "", rule(expected=names)), *same)
    extensions = {"type": "vm_file", "path": f"{HOME}/{LIST}", "dest": "extensions.json"}
    return Evaluator(
        func=["extensions_are", *files.func],
        result=[extensions, *files.result],
        expected=[rule(expected=[f"{each}@{VERSION}" for each in listed(made)]), *files.expected],
    )


def solved(made: Goal) -> Files:
    """The files when it is done."""
    rows = [listed_extension(each, VERSION, GUEST_HOME) for each in listed(made)]
    offered = {f"Documents/{file_of(each)}": FileView("file", packed(each)) for each in made.words[: len(made.files)]}
    return {LIST: FileView("file", json.dumps(rows).encode())} | offered


def leaves(made: Goal, _: Manifest) -> dict[str, Form]:
    """What the editor unpacks when it installs; its note of what it no longer needs when it uninstalls."""
    if made.kind == "install":
        return {f"{EXTENSIONS}/{made.wanted}-{VERSION}/package.json": _is_object}
    return {f"{EXTENSIONS}/.obsolete": _is_object}


def _is_object(view: FileView) -> bool:
    """Whether a file is an object of JSON."""
    try:
        return isinstance(msgspec.json.decode(view.data), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def may(made: Goal) -> tuple[May, ...]:
    """The extension's own folder, and what the editor notes when it removes one."""
    folder = f"{EXTENSIONS}/{made.wanted}-{VERSION}/**"
    if made.kind == "install":
        return (May(folder, (CREATE, CHANGE)),)
    return (May(folder, (REMOVE,)), May(f"{EXTENSIONS}/.obsolete", (CREATE, CHANGE, REMOVE)))


def values(made: Goal) -> set[str]:
    """The words that an instance is made of."""
    return {word for extension in made.words for word in extension.replace("-", ".").split(".")}


def _by_gui(view: View) -> Move:
    if _told(view):
        return _DONE
    return _install(view) if view.goal.kind == "install" else _uninstall(view)


def _by_tools(view: View) -> Move:
    return _DONE if _told(view) else (f"{view.goal.wanted} -> {view.goal.kind}", wish(view.goal))


def wish(goal: Goal) -> Tool:
    """The function that does what is asked for."""
    if goal.kind == "install":
        return call("CodeTools", "install_extension", extension_id=f"~/Documents/{goal.target}")
    return call("CodeTools", "uninstall_extension", extension_id=goal.wanted)


def _told(view: View) -> bool:
    """Whether the answer to just this call said that it is done; one with another argument tells nothing."""
    asked, ends = line(wish(view.goal)), DONE[view.goal.kind]
    return any(turn.line == asked and any(end in turn.result for end in ends) for turn in view.history)


def _install(view: View) -> Move:
    item = view.labelled("menu-item", INSTALL)
    if item is not None or menu(view):
        return click(view, item) if item else keys(CLOSE, "esc")
    if _row(view) is not None:
        return _DONE
    if any(INSTALL in turn.answer for turn in view.history[-RECENT:]):
        return ("wait for the list", Wait()) if _in_list(view) else keys("look at the list", "ctrl", "shift", "x")
    file = view.find("tree-item", lambda e: e.name == view.goal.target)
    return to_files(view) if file is None else click(view, file, "menu", button="right")


def _uninstall(view: View) -> Move:
    item = view.labelled("menu-item", UNINSTALL)
    if item is not None or menu(view):
        return click(view, item) if item else keys(CLOSE, "esc")
    _, _, since = "\n".join(turn.answer for turn in view.history).partition(f"menu-item {UNINSTALL} ")
    row = _row(view)
    # The row of what is removed goes, says so, or stays with a menu that does not offer it.
    if view.labelled("push-button", UNINSTALLED) or (since and _in_list(view) and (row is None or CLOSE in since)):
        return _DONE
    if row is None:
        return ("wait for the list", Wait()) if _in_list(view) else keys("extensions -> list", "ctrl", "shift", "x")
    return click(view, row, "menu", button="right")


def _in_list(view: View) -> bool:
    return view.find("entry", lambda e: e.name.startswith(SEARCH)) is not None


def _row(view: View) -> str | None:
    """The extension that is asked for, among those that are listed."""
    publisher, _, name = view.goal.wanted.partition(".")
    return view.find("list-item", lambda e: e.name.startswith(f"{name}, ") and f"Publisher {publisher}" in e.name)


CODE_EXTENSION = Family(
    "code_extension",
    (CODE,),
    goal,
    config,
    evaluator,
    solved,
    {"gui": _by_gui, "api": _by_tools},
    wordings("code_extension"),
    values,
    leaves,
    may,
)

FAMILIES = (CODE_EXTENSION,)
