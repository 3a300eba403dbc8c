"""What an episode on a task file may change in HOME, by the file itself and by what its author allows (`changes`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from apis.tasks.osworld import Download, Getter, Task
from apis.tasks.verify.allowed import CHANGE, CREATE, NARROW, REMOVE, May
from apis.tasks.verify.manifest import Deed
from apis.tasksets import getters
from apis.tasksets.package import Lacking
from apis.tasksets.steps import Fixture, at_home, name_of

SCRIPT_BYTES = 64 << 10  # of a file that the task brings along to judge by
_CONTENT = (CREATE, CHANGE, REMOVE, NARROW, Deed.EMPTIED)
_RIGHTS = (Deed.LOCKED, Deed.OPENED)
_BELOW = (CREATE, CHANGE, REMOVE, NARROW, Deed.MARKED)
_AT_HOME = re.compile(r"(?:/home/user|~|\$HOME|\$\{HOME\})/([^\s'\"`;|&<>()*?$]+)")
_RELATIVE = re.compile(
    r"(?<![\w./~$-])([\w-][\w.-]*(?:(?:/[\w.-]+)+|/(?=\s|$))|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,5})(?![\w/])"
)
_NAMED = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,5}")
_OF_RIGHTS = re.compile(r"\b(?:executable|permissions?|chmod|read-only|writable|writeable)\b|-perm\b|%[aA]\b")
# What a line of shell runs by its path.
_RUN = re.compile(
    r"(?:\b(?:(?:ba|da)?sh|python3?|source)\s+(?:-\w+\s+)*|(?:^|[;&|(])\s*(?=[\w.~/-]*/))([^\s;|&()<>'\"]+)",
    re.MULTILINE,
)
_OF_SCRIPTS = re.compile(r"\b(?:scripts?|programs?|code|functions?|bugs?)\b", re.IGNORECASE)
# Where a program keeps what people keep in it: a task on one of its files is about all of it.
_PLACES = (".thunderbird", ".vscode", ".local/share/applications", ".local/share/Trash")


def rules(task: Task, fixture: Fixture) -> tuple[May, ...]:
    """What the results, commands and words of `task` let change, and what its author does (`changes`)."""
    asked = "\n".join(_commands(task, fixture))
    files = [path for getter in _results(task) for path in _files(getter)]
    paths = {*_AT_HOME.findall(asked), *_RELATIVE.findall(asked)}
    names = {*_NAMED.findall(task.instruction)}
    judges = set() if _OF_SCRIPTS.search(task.instruction) else {*map(name_of, _RUN.findall(asked))} - names
    own = {name_of(path) for path, _, _ in getters.downloads(task.config)} & judges  # what set-up brings to judge by
    of_commands = {path.strip("/") for path in paths if name_of(path) not in own} - {""}
    rights = _RIGHTS if _OF_RIGHTS.search(f"{task.instruction}\n{asked}") else ()
    kept = _kept(task, {PurePosixPath(path).name for path in (*files, *of_commands)} | names)
    found = [May(_plain(path), (*_CONTENT, *rights)) for path in files]
    found += [May(_plain(path), (*_CONTENT, *_RIGHTS, Deed.MARKED), loosely=True) for path in of_commands]
    found += [May(f"{_plain(path)}/**", (*_BELOW, *rights), but=kept) for path in (*files, *of_commands)]
    found += [May(f"**/{_plain(name)}", (CREATE, REMOVE)) for name in names]
    places = [place for place in _PLACES if any(path.startswith(f"{place}/") for path in files) or place in asked]
    places += [".vscode"] * ("--list-extensions" in asked)
    found += [May(f"{place}/**", (*_BELOW, Deed.EMPTIED), loosely=True) for place in places]
    return (*found, *(May(path, (*_CONTENT, *_RIGHTS), loosely=True) for path in task.changes))


def _results(task: Task) -> list[Getter]:
    return [row[1] for row in task.evaluator.rows() if row[1]]


def _files(getter: Getter) -> list[str]:
    try:
        return getters.files_of(getter)
    except Lacking:
        return []


def _commands(task: Task, fixture: Fixture) -> Iterator[str]:
    """The texts that judge: of getters' commands, of steps after the last action, and of what these bring along."""
    for getter in getters.sides(task.evaluator):
        words = getter.get("command", "")
        yield words if isinstance(words, str) else " ".join(map(str, words))
    for step in task.evaluator.postconfig:
        if isinstance(step, Download):
            for file in step.files:
                yield file.path
                yield _script(file.url, file.path, fixture)
        else:
            words = getattr(step, "command", "")
            yield words if isinstance(words, str) else " ".join(words)


def _script(url: str, path: str, fixture: Fixture) -> str:
    try:
        data = fixture(url, path)
    except Lacking:
        return ""
    return data.decode("utf-8", "replace") if len(data) <= SCRIPT_BYTES and b"\0" not in data else ""


def _kept(task: Task, named: Iterable[str]) -> tuple[str, ...]:
    """The files of set-up that the task does not name."""
    put = [file.path for step in task.config if isinstance(step, Download) for file in step.files]
    names = {*named}
    found = []
    for path in put:
        try:
            inside = at_home(path)
        except Lacking:
            continue
        if PurePosixPath(inside).name not in names:
            found.append(_plain(inside))
    return tuple(found)


def _plain(path: str) -> str:
    """A path as a pattern; one with a sign of patterns in it reaches what the sign matches, too."""
    return path.rstrip("/")
