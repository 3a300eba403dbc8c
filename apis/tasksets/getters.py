"""What the getters of task files are asked for, and the values of metrics. A getter that is not here is lacking."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec.structs import replace as replace_in

from apis.plans.action import Call
from apis.tasks.osworld import Download, Evaluator, Getter, Step, Task
from apis.tasks.verify.verify import FileView, Read
from apis.tasksets import commands, states
from apis.tasksets.package import ADDRESS, LEFT_GETTERS, REFUSED_GETTERS, Lacking
from apis.tasksets.steps import Fixture, at_home, name_of

# Getters whose value is of the live browser: their pages, or nothing, can be had without a network.
LIVE = {
    "active_tab_info", "active_tab_url_parse", "active_url_from_accessTree", "macys_product_url_parse", "url_dashPart",
    "url_path_parse",
}  # fmt: skip


class AskedOfPackage(msgspec.Struct, frozen=True):
    """A getter that the published package carries out in its sandbox, of what is at hand."""

    getter: Getter
    files: dict[str, FileView] = {}
    address: str | None = None  # of the tab in front


def listed(value: Any) -> list[str]:
    """A path, or several, as a list."""
    return [str(part) for part in value] if isinstance(value, list) else [str(value)]


def _chosen(getter: Getter) -> list[int]:
    """Which of a getter's files a metric is given: `gives`, or the first of them."""
    return [int(number) for number in getter.get("gives", [0])]


def _several(getter: Getter) -> bool:
    return str(getter.get("multi", "")).lower() == "true"


def given_of(getter: Getter) -> list[str]:
    """Of `files_of` those that a metric is given; the others lie in the same folder. Raises Lacking."""
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


_SETTINGS = {"vlc_config": ".config/vlc/vlcrc", "default_video_player": ".config/mimeapps.list"}
_BROWSER = Call("application_state", {"owner": "BrowserTools"})
# Getters that ask before the freeze, and what: an application, by the class of its functions, or the whole desktop.
_ASKED = {
    "vlc_playing_info": Call("application_state", {"owner": "VLCTools"}),
    "vscode_config": Call("application_state", {"owner": "CodeTools"}),
    "accessibility_tree": Call("accessible"),
    "open_tabs_info": _BROWSER,
    **dict.fromkeys(LIVE, _BROWSER),
    "vm_terminal_output": Call("terminal_text"),
    "vm_screen_size": Call("window_size"),
}
# Getters that are a command.
_COMMANDS = {"shortcuts_on_desktop": shlex.split("find Desktop -maxdepth 1 -name '*.desktop' -exec grep -HZ '' {} +")}
_ERRORS = "vm_command_error"  # asks for the errors that a command writes in place of its output
# What metrics are given of an answer.
_SAYS: dict[str, Callable[[str | None], Any]] = {
    **dict.fromkeys(("vm_command_line", _ERRORS, "accessibility_tree", "vm_terminal_output"), lambda out: out),
    **dict.fromkeys(("vm_screen_size", "vm_window_size"), states.size),
    "shortcuts_on_desktop": states.shortcuts,
    "open_tabs_info": states.tabs,
    "active_tab_info": states.front,
    "vlc_playing_info": states.playing,
    "vscode_config": states.project,
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
    if (named := LEFT_GETTERS.get(str(kind), "")) not in ("", ADDRESS):
        return [at_home(str(getter[named]))]
    return states.files_of(str(kind))


def left(getter: Getter) -> bool:
    """Whether the published package carries it out."""
    return getter.get("type") in LEFT_GETTERS


def read_as(getter: Getter, reads: str) -> str:
    """What the files of `getter` are read as for a metric that looks at `reads`."""
    return "database" if getter.get("type") in states.DATABASES else reads


def commands_of(evaluator: Evaluator, home: str) -> list[Call]:
    """The commands and questions of getters, each kept under the text that names it. Raises Lacking."""
    found = []
    for getter in sides(evaluator):
        kind = str(getter.get("type"))
        asked = _ASKED.get(kind)
        if kind in ("vm_command_line", _ERRORS):
            if "command" not in getter:
                raise Lacking("getter", f"{kind} without a command")
            argv = commands.argv_of(getter["command"], getter.get("shell", False))
            commands.refused(" ".join(argv), judges=True)
            (asked,) = commands.run_to_end(argv, home)
            asked = replace(asked, args={**asked.args, "errors": kind == _ERRORS})
        elif kind in _COMMANDS:
            (asked,) = commands.run_to_end(_COMMANDS[kind], home)
        elif kind == "vm_window_size":
            asked = Call("window_size", {"window_class": str(getter.get("app_class_name", ""))})
        if asked is not None:
            found.append(replace(asked, kept=_named(getter)))
    return found


def _named(getter: Getter) -> str:
    of = getter.get("command") or getter.get("app_class_name") or getter["type"]
    return json.dumps([_ERRORS, of] if getter["type"] == _ERRORS else of)


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
        if kind == "vm_window_size":
            str(getter["app_class_name"])
        if _several(getter):
            [listed(getter["path"])[number] for number in _chosen(getter)]
    except (LookupError, TypeError, ValueError) as error:
        raise Lacking("getter", f"{kind} without {error}") from None
    if kind in REFUSED_GETTERS:
        need, why = REFUSED_GETTERS[kind]
        raise Lacking(need, why)
    if kind not in KNOWN:
        raise Lacking("getter", kind)


def value_of(getter: Getter, read: Read, answers: Mapping[str, str], fixture: Fixture) -> Any:
    """The value of `getter`: by `read` from HOME, from `answers` (outputs by command) or from `fixture`.

    Raises Lacking for a fixture that is not at hand.
    """
    kind = str(getter.get("type"))
    if kind == "rule":
        return getter.get("rules", {})
    if kind == "cloud_file":
        return _picked(getter, [FileView("file", data=fixture(*one), of_task=True) for one in fixtures_of(getter)])
    if kind == "cache_file":
        out = answers.get(str(getter["path"]))
        return FileView("missing") if out is None else FileView("file", data=out.encode())
    if kind == "list_directory":
        view = read(files_of(getter)[0])
        return _tree(files_of(getter)[0], view)
    if kind == "default_video_player":
        return states.player(read(files_of(getter)[0]))
    if kind in _SAYS:
        return _SAYS[kind](answers.get(_named(getter)))
    if kind == "active_url_from_accessTree":
        return _address(getter, answers)
    if kind in states.KNOWN:
        return states.value_of(getter, read)
    if kind in LEFT_GETTERS:
        return AskedOfPackage(getter, {path: read(path) for path in files_of(getter)}, _address(getter, answers))
    return _picked(getter, [read(path) for path in files_of(getter)])


def _address(getter: Getter, answers: Mapping[str, str]) -> str | None:
    return states.address(answers.get(_named(getter)), str(getter.get("goto_prefix", "https://")))


def _tree(path: str, view: FileView) -> dict[str, Any]:
    """A folder as the published getter tells it: its own names, one level deep."""
    children = [{"type": "directory" if n.endswith("/") else "file", "name": n.rstrip("/")} for n in view.names]
    return {"type": "directory", "name": path.rpartition("/")[2], "children": children}


KNOWN = {
    "rule", "cloud_file", "vm_file", "cache_file", "vm_command_line", _ERRORS, "list_directory",
    "vm_window_size", "gimp_config_file", *_SETTINGS, *_ASKED, *_COMMANDS, *states.KNOWN, *LEFT_GETTERS,
}  # fmt: skip


class WantedFixture(msgspec.Struct, frozen=True, order=True):
    """A file that lies behind a URL."""

    task: str  # the file's own id, without its set and its domain
    url: str
    name: str  # of the file in the guest, or `dest` of a getter; "" where it has none

    @property
    def key(self) -> str:
        """What it is locked under: a sha256 in hex."""
        return hashlib.sha256("\0".join((self.task, self.url, self.name)).encode()).hexdigest()

    def __str__(self) -> str:
        return fixture_name(self.url, self.name)


def fixture_name(url: str, name: str) -> str:
    """A fixture for people: its URL, and its name where that says more."""
    return url if not name or url.endswith(f"/{name}") else f"{url} ({name})"


def downloads(steps: Iterable[Step]) -> Iterator[tuple[str, str, str]]:
    """Each file that `steps` put into the guest: its path there, its URL, its name."""
    for step in steps:
        if isinstance(step, Download):
            for file in step.files:
                yield file.path, file.url, name_of(file.path)


def named_by(task: Task) -> list[tuple[str, str]]:
    """The URL and the name of every file that `task` brings along or names, each once; `data:` URLs too."""
    found = [(url, name) for _, url, name in downloads([*task.config, *task.evaluator.postconfig])]
    found += [pair for getter in sides(task.evaluator) for pair in fixtures_of(getter)]
    return list(dict.fromkeys(found))


def wanted_by(task: Task) -> list[WantedFixture]:
    """Every fixture of `task`, each once; not those whose content is in their URL."""
    own = task.id.rpartition("/")[2]
    return [WantedFixture(own, *pair) for pair in named_by(task) if not pair[0].startswith("data:")]


def names_a_file(url: str) -> bool:
    """Whether `url` leads to more than a host: what a bare host serves is no file of a task."""
    parts = parts_of(url)
    return bool(parts.path.strip("/") or parts.query)


def parts_of(url: str) -> SplitResult:
    """The parts of an address, none where it is no address."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
