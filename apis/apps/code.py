"""The functions of VS Code under their published names and parameters, and what a small model sees first.

Of labels within another element's only that one is listed, since the tree says most texts twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from apis.functions.declaration import Function, Param, Tool
from apis.observation import Element

MAX_LINE, MAX_CHARACTER, MAX_ID = 1_000_000, 10_000, 100


def _function(name: str, description: str, *params: Param) -> Function:
    return Function("CodeTools", name, Tool, params, description)


def _path(name: str, meaning: str) -> Param:
    return Param(name, "path", "str", (), meaning=meaning)


def _folder(name: str, meaning: str) -> Param:
    return Param(name, "folder", "str", (), meaning=meaning)


def _extension(meaning: str = "publisher and name, as list_extensions tells them", *endings: str) -> Param:
    return Param("extension_id", "extension", "str", (MAX_ID, *endings), meaning=meaning)


FUNCTIONS: tuple[Function, ...] = (
    _function("launch_vscode", "Open a file or a folder in the editor.", _folder("path", "a file or folder of yours")),
    _function(
        "compare_files",
        "Show two files side by side with their differences.",
        _path("file1", "the left file"),
        _path("file2", "the right file"),
    ),
    _function("add_folder", "Add a folder to the window's workspace.", _folder("folder", "the folder to add")),
    _function(
        "goto_file",
        "Open a file at a place in it.",
        _path("file_path", "the file"),
        Param("line", "integer", "int", (1, MAX_LINE), 1, "1 is the first line"),
        Param("character", "integer", "int", (1, MAX_CHARACTER), 1, "1 is the first character of the line"),
    ),
    _function(
        "perform_merge",
        "Open the merge editor on two versions of a file.",
        _path("path1", "one version"),
        _path("path2", "the other version"),
        _path("base", "what both came from"),
        _path("result", "the file that takes the result"),
    ),
    _function(
        "remove_folder", "Take a folder out of the window's workspace.", _folder("folder", "the folder to remove")
    ),
    _function(
        "install_extension",
        "Install an extension.",
        _extension("publisher and name, or a .vsix file of yours", ".vsix"),
        Param("pre_release", "boolean", "bool", (), False, "True for its version under test"),
    ),
    _function("uninstall_extension", "Remove an extension.", _extension()),
    _function(
        "list_extensions",
        "List the extensions that are installed.",
        Param("show_versions", "boolean", "bool", (), False, "True to tell the versions, too"),
        Param("category", "text", "Optional[str]", (MAX_ID,), None, "only those of a category; None: all"),
    ),
    _function("update_extensions", "Bring all extensions up to date."),
    _function("disable_extension", "Switch an extension off.", _extension()),
    _function(
        "toggle_sync",
        "Switch the synchronisation of settings on or off.",
        Param("state", "choice", "str", ("on", "off"), meaning="'on' or 'off'"),
    ),
)


APPLICATION_MENU = "Application Menu"  # an item that shows while no menu is open
_LABELS = {"static", "section", "heading"}
_RANKS = {"entry": 1, "text": 1, "list-item": 2, "tree-item": 3, "alert": 4, "page-tab": 5, "push-button": 6}
_OTHERS, _LABEL = 7, 8


def ranked(elements: Sequence[Element]) -> list[Element]:
    """An open menu, fields (the text above all), lists, files, tabs, buttons, and labels that say something more."""
    said = [element.label for element in elements if element.tag not in _LABELS]
    kept = [
        element
        for element in elements
        if not element.tag.startswith("document")
        and (element.tag not in _LABELS or not any(element.label in other for other in said))
    ]
    return sorted(kept, key=_rank)


def of_menu(element: Element) -> bool:
    """Whether it is an item of a menu that is open."""
    return element.tag.endswith("menu-item") and element.name != APPLICATION_MENU


def _rank(element: Element) -> int:
    if of_menu(element):
        return 0
    return _LABEL if element.tag in _LABELS else _RANKS.get(element.tag, _OTHERS)
