"""Tasks on VS Code: install an extension from a file of Documents, or uninstall one.

Invariant: a task is solved only if the editor lists exactly the wanted extensions and Documents holds what it held. The
two splits share no wording and, since words are split by their hash, no extension.
"""

from __future__ import annotations

import json
from random import Random

import msgspec

from apis.actions.gui import Exit, Tool, Wait, line
from apis.catalogue import call
from apis.documents.zip import zipped
from apis.guest.code.start import EXTENSIONS
from apis.tasks.families.code import code
from apis.tasks.family import DOCUMENTS, Family, Files, Form, all_of, rule
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys
from apis.tasks.osworld import HOME, Evaluator, Step, data_url
from apis.tasks.verify import code as verify_code
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import GUEST_HOME, FileView, digest_of
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, words

INSTALL, UNINSTALL = "Install Extension VSIX", "Uninstall"  # of menus
UNINSTALLED = "Uninstalled"  # a button's label, afterwards
SEARCH = "Search Extensions"  # how the field above the list of extensions is called
DONE = {"install": ("is installed", "was installed already"), "uninstall": ("is removed", "is not installed")}
RECENT = 3  # steps after which a menu's effect is no longer waited for
_DONE: Move = ("it is done", Exit(success=True))
LIST = f"{EXTENSIONS}/extensions.json"
VERSION = "1.0.0"
MIME = "application/octet-stream"  # of a packed extension

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "install": {
        TRAIN: (
            "Install the extension {file} of Documents in VS Code",
            "VS Code lacks an extension, install it from {file} in Documents",
            "Add the extension in Documents/{file} to VS Code",
            "In VS Code, install {file}, it lies in Documents",
            "The extension that Documents holds as {file} should be installed in VS Code",
        ),
        HELD_OUT: (
            "Install {file} from Documents as an extension of VS Code",
            "VS Code should have the extension that lies in Documents as {file}, install it",
        ),
    },
    "uninstall": {
        TRAIN: (
            "Uninstall the extension {id} from VS Code",
            "Remove VS Code's extension {id}",
            "The extension {id} is not needed in VS Code, uninstall it",
            "In VS Code, get rid of the extension {id}",
            "VS Code should no longer have the extension {id}",
        ),
        HELD_OUT: ("Remove the extension {id} from VS Code", "Nobody needs {id} in VS Code, uninstall that extension"),
    },
}


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
    kind = random.choice(sorted(TEMPLATES))
    drawn = words(random, split, 12)
    names = [drawn[4 + at] + random.choice(("", f"-{drawn[8 + at]}")) for at in range(4)]
    extensions = [f"{publisher}.{name}" for publisher, name in zip(drawn, names, strict=False)]
    offered, there = (extensions[:2], extensions[2:3]) if kind == "install" else (extensions[:1], extensions[1:3])
    asked = random.choice(offered if kind == "install" else there)
    return Goal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(file=file_of(asked), id=asked),
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
    return code.shown([*files, *((path, data_url(about.encode())) for path, about in packages.items())])


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
    rows = [verify_code.listed(each, VERSION, GUEST_HOME) for each in listed(made)]
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
    except (msgspec.DecodeError, UnicodeDecodeError):
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


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    if _told(view):
        return _DONE
    return _install(view) if view.goal.kind == "install" else _uninstall(view)


def by_tools(view: View) -> Move:
    """The next move with VS Code's functions."""
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
    if item is not None or code.menu(view):
        return click(view, item) if item else keys("close this", "esc")
    if _row(view) is not None:
        return _DONE
    if any(INSTALL in turn.answer for turn in view.history[-RECENT:]):
        return ("wait for the list", Wait()) if _in_list(view) else keys("look at the list", "ctrl", "shift", "x")
    file = view.find("tree-item", lambda e: e.name == view.goal.target)
    return code.to_files(view) if file is None else click(view, file, "menu", button="right")


def _uninstall(view: View) -> Move:
    item = view.labelled("menu-item", UNINSTALL)
    if item is not None or code.menu(view):
        return click(view, item) if item else keys("close this", "esc")
    asked = any(f"menu-item {UNINSTALL} " in turn.answer for turn in view.history)
    row = _row(view)
    if view.labelled("push-button", UNINSTALLED) or (asked and _in_list(view) and row is None):
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


FAMILY = Family(
    "code_extension", (code.CODE,), goal, config, evaluator, solved, {"gui": by_gui, "api": by_tools}, TEMPLATES,
    values, leaves, may,
)  # fmt: skip
