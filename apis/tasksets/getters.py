"""What the getters of task files are asked for, and the values that metrics are given.

Invariant: files come from outside, after the freeze. Only the commands that a task file names run in the guest, before
it. A getter that is not here is lacking, never an empty value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace as replace_in

from apis.plans.action import Call
from apis.tasks.metrics.metric import UnreadableResult, document
from apis.tasks.osworld import Evaluator, Getter
from apis.tasks.verify.verify import FileView, Read
from apis.tasksets import commands, states
from apis.tasksets.needs import Lacking
from apis.tasksets.steps import Fixture, at_home, name_of

CHROMIUM = ".config/chromium/Default"
PREFERENCES = f"{CHROMIUM}/Preferences"
# Getters that read live pages, and what else no sandbox has.
_NETWORK = {
    "active_tab_html_parse", "active_tab_url_parse", "url_dashPart", "page_info", "pdf_from_url", "info_from_website",
    "gotoRecreationPage_and_get_html_content", "active_tab_info", "open_tabs_info", "active_url_from_accessTree",
    "url_path_parse", "macys_product_url_parse", "rule_relativeTime",
}  # fmt: skip
_GNOME = {"vm_wallpaper", "vm_terminal_output", "vm_screen_size"}


def listed(value: Any) -> list[str]:
    """A path, or several, as a list."""
    return [str(part) for part in value] if isinstance(value, list) else [str(value)]


def _chosen(getter: Getter) -> list[int]:
    """Which of a getter's files a metric is given: `gives`, or the first of them."""
    return [int(number) for number in getter.get("gives", [0])]


def _several(getter: Getter) -> bool:
    return str(getter.get("multi", "")).lower() == "true"


def given_of(getter: Getter) -> list[str]:
    """Of `files_of` those that a metric is given; the others lie beside them. Raises Lacking."""
    paths = files_of(getter)
    return [paths[number] for number in _chosen(getter)] if paths and _several(getter) else paths


def _picked(getter: Getter, views: list[FileView]) -> Any:
    """One value, or a list of those that `gives` names, which know the others."""
    if not _several(getter):
        return views[0] if len(views) == 1 else views
    names = [name.rpartition("/")[2] for name in listed(getter.get("dest", getter["path"]))]
    beside = dict(zip(names, views, strict=False))
    views = [replace_in(view, name=name, beside=beside) for name, view in beside.items()]
    picked = [views[number] for number in _chosen(getter)]
    return picked[0] if len(picked) == 1 else picked


def called(getter: Getter, value: Any) -> Any:
    """A value of `getter` whose files bear the names that the task gives them."""
    views = value if isinstance(value, list) else [value]
    if not all(isinstance(view, FileView) for view in views) or not (getter.get("dest") or getter.get("path")):
        return value
    names = [name.rpartition("/")[2] for name in listed(getter.get("dest") or getter["path"])]
    named = [view if view.name else replace_in(view, name=name) for view, name in zip(views, names, strict=False)]
    return named if isinstance(value, list) else named[0]


_SETTINGS = {"vlc_config": ".config/vlc/vlcrc"}
# Databases of the browser's: the file, the table, and which of its columns a metric is given.
_DATABASES = {
    "cookie_data": ("Cookies", "cookies", ("name", "host_key")),
    "history": ("History", "urls", ("url", "title", "last_visit_time")),
}
# Getters that ask before the freeze, and what: an application, by the class of its functions, or the whole desktop.
_ASKED = {
    "vlc_playing_info": Call("application_state", {"owner": "VLCTools"}),
    "vscode_config": Call("application_state", {"owner": "CodeTools"}),
    "accessibility_tree": Call("accessible"),
}


def files_of(getter: Getter) -> list[str]:
    """Paths below HOME that `getter` reads. Raises Lacking."""
    kind = getter.get("type")
    if kind == "vm_file":
        return [at_home(path) for path in listed(getter["path"])]
    if kind == "list_directory":
        return [at_home(str(getter["path"]))]
    if kind in _SETTINGS:
        return [_SETTINGS[kind]]
    if kind == "gimp_config_file":
        return [f".config/GIMP/2.10/{getter['file_name']}"]
    if kind in _PREFERENCES:
        return [PREFERENCES]
    if kind == "bookmarks":
        return [f"{CHROMIUM}/Bookmarks"]
    if kind in _DATABASES:
        return [f"{CHROMIUM}/{_DATABASES[kind][0]}"]
    return []


def read_as(getter: Getter, reads: str) -> str:
    """What the files of `getter` are read as for a metric that looks at `reads`."""
    return "database" if getter.get("type") in _DATABASES else reads


def commands_of(evaluator: Evaluator, home: str) -> list[Call]:
    """The commands that run in the guest before the freeze, each kept under the text that names it. Raises Lacking."""
    found = []
    for getter in sides(evaluator):
        if getter.get("type") in ("vm_command_line", "vm_command_error"):
            if "command" not in getter:
                raise Lacking("getter", f"{getter['type']} without a command")
            words = commands.words_of(getter["command"], getter.get("shell", False))
            commands.refused(" ".join(words))
            (call,) = commands.run_to_end(_aliased(words), home)
            found.append(replace(call, kept=_named(getter)))
        elif asked := _ASKED.get(str(getter.get("type"))):
            found.append(replace(asked, kept=_named(getter)))
    return found


def _aliased(words: list[str]) -> list[str]:
    return [commands.ALIASES.get(words[0], words[0]), *words[1:]] if words else words


def _named(getter: Getter) -> str:
    return json.dumps(getter.get("command", getter["type"]))


def sides(evaluator: Evaluator) -> Iterator[Getter]:
    """All getters of an evaluator, results first."""
    rows = evaluator.rows()
    yield from (row[1] for row in rows if row[1])
    yield from (row[2] for row in rows if row[2])


def fixtures_of(getter: Getter) -> list[tuple[str, str]]:
    """The files that `getter` compares with: each its URL and its name, "" where the task gives none."""
    if getter.get("type") != "cloud_file":
        return []
    names = listed(getter.get("dest", ""))
    return [(url, name_of(name)) for url, name in zip_longest(listed(getter["path"]), names, fillvalue="") if url]


def is_read(getter: Getter | None) -> bool:
    """Whether the value of `getter` comes from the desktop, where the policy may have changed it."""
    return getter is not None and getter.get("type") not in ("rule", "cloud_file")


def refuse_lacking(getter: Getter) -> None:
    """Raise Lacking for a getter that can't be had here."""
    kind = str(getter.get("type"))
    try:
        files_of(getter)
        if kind == "cache_file":
            str(getter["path"])
        if kind == "vscode_config" and getter["vscode_extension_command"] != "OpenProject":
            raise Lacking("getter", f"vscode_config {getter['vscode_extension_command']}")
        if _several(getter):
            [listed(getter["path"])[number] for number in _chosen(getter)]
    except (LookupError, TypeError, ValueError) as error:
        raise Lacking("getter", f"{kind} without {error}") from None
    if kind in KNOWN:
        return
    if kind in _NETWORK:
        raise Lacking("network", kind)
    if kind in _GNOME:
        raise Lacking("application", f"gnome ({kind})")
    if kind == "googledrive_file":
        raise Lacking("account", "a Google Drive")
    raise Lacking("getter", kind)


def value_of(getter: Getter, read: Read, told: Mapping[str, str], fixture: Fixture) -> Any:
    """The value of `getter`: by `read` from HOME, from `told` (outputs by command) or from `fixture`.

    Raises Lacking for a fixture that is not at hand.
    """
    kind = str(getter.get("type"))
    match kind:
        case "rule":
            return getter.get("rules", {})
        case "cloud_file":
            return _picked(getter, [FileView("file", data=fixture(*one), of_task=True) for one in fixtures_of(getter)])
        case "vm_command_line" | "vm_command_error" | "accessibility_tree":
            return told.get(_named(getter))
        case "cache_file":
            out = told.get(str(getter["path"]))
            return FileView("missing") if out is None else FileView("file", data=out.encode())
        case "list_directory":
            view = read(files_of(getter)[0])
            return _tree(files_of(getter)[0], view)
        case "bookmarks":
            return _json(read(files_of(getter)[0])).get("roots", {})
        case "vlc_playing_info":
            return states.playing(told.get(_named(getter)))
        case "vscode_config":
            return states.project(told.get(_named(getter)))
    if kind in _DATABASES:
        return _rows(read(files_of(getter)[0]), *_DATABASES[kind][1:])
    if kind in _PREFERENCES:
        return _PREFERENCES[kind](_json(read(PREFERENCES)))
    return _picked(getter, [read(path) for path in files_of(getter)])


def _tree(path: str, view: FileView) -> dict[str, Any]:
    """A folder as the published getter tells it: its own names, one level deep."""
    children = [{"type": "directory" if n.endswith("/") else "file", "name": n.rstrip("/")} for n in view.names]
    return {"type": "directory", "name": path.rpartition("/")[2], "children": children}


def _rows(view: FileView, table: str, columns: tuple[str, ...]) -> Any:
    """Rows of a table; None where there is no such."""
    try:
        return document(view, "database").rows(table, *columns)
    except UnreadableResult:
        return None


def _json(view: FileView) -> dict[str, Any]:
    """The object that a file of Chromium's holds; an empty one for anything else."""
    try:
        found = json.loads(view.data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _yes(value: Any) -> str:
    return "true" if value is True else "false"


_PREFERENCES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "enable_do_not_track": lambda p: _yes(_at(p, "enable_do_not_track")),
    "enable_enhanced_safety_browsing": lambda p: _yes(_at(p, "safebrowsing", "enhanced")),
    "enable_safe_browsing": lambda p: _yes(_at(p, "safebrowsing", "enabled")),
    "profile_name": lambda p: _at(p, "profile", "name"),
    "default_search_engine": lambda p: (
        _at(p, "default_search_provider_data", "template_url_data", "short_name") or "Google"
    ),
    "new_startup_page": lambda p: "true" if _at(p, "session", "restore_on_startup") in (None, 5) else "false",
    "chrome_font_size": lambda p: _at(p, "webkit", "webprefs") or {"default_font_size": 16},
}
KNOWN = {
    "rule", "cloud_file", "vm_file", "cache_file", "vm_command_line", "vm_command_error", "list_directory", "bookmarks",
    "gimp_config_file", *_SETTINGS, *_PREFERENCES, *_DATABASES, *_ASKED,
}  # fmt: skip
