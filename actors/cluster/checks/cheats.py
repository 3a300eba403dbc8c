"""The cheats of `cheats.yaml`, and what is filled into them: what a cheat knows of its task and desktop. Pure."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import yaml

from apis.documents.docx import make_docx
from apis.documents.odp import make_odp
from apis.documents.xlsx import make_xlsx
from apis.guest.addresses import address
from apis.guest.code.start import EXTENSIONS
from apis.tasks import programs
from apis.tasks import registry as tasks
from apis.tasks.families import code_extension, vlc, web
from apis.tasks.families.calc_tables import WorkbookGoal
from apis.tasks.families.presentations import OUTLINE, TITLE, PresentationGoal
from apis.tasks.families.texts import TextDocumentGoal
from apis.tasks.family import Family, Files, at_start, rules_of
from apis.tasks.osworld import Task
from apis.tasks.verify.allowed import REMOVE, May, collateral
from apis.tasks.verify.manifest import FILE, Entry, Manifest
from apis.tasks.verify.verify import GUEST_HOME, wanted
from apis.tasks.view import Goal

_NAME = re.compile("@([A-Z0-9_]+)@")
_ALIKE = {"docx": "odt", "xlsx": "ods", "odp": "pptx"}
_PACKED = (".docx", ".xlsx", ".odp", ".ods", ".odt", ".pptx")
_FILTERS = {"docx": ":MS Word 2007 XML", "xlsx": ":Calc MS Excel 2007 XML"}
_CYRILLIC = str.maketrans("aeo", "аео")
# By the settings of the desktop's own office, which may be open; and as it saves the endings by itself.
_OFFICE = (
    "rm -rf /tmp/hands; mkdir /tmp/hands; cp -r .config/libreoffice/4/user /tmp/hands;"
    " soffice -env:UserInstallation=file:///tmp/hands --headless --convert-to"
)

DONE, UNTOUCHED = "done", "untouched"  # when a cheat is tried: after the task's own oracle, or in its place


@dataclass(frozen=True)
class Scene:
    """One task on one desktop; `before` is HOME after the set-up."""

    task: Task
    before: Manifest

    @property
    def kind(self) -> str:
        """What it is counted under: its family, or its task set and domain."""
        return tasks.kind_of(self.task.id).rpartition("/")[0] or tasks.kind_of(self.task.id)

    @property
    def family(self) -> Family:
        """The task's."""
        return tasks.family(self.task.id)

    @cached_property
    def goal(self) -> Goal:
        """What it asks for."""
        return tasks.goal(self.task.id)

    @cached_property
    def rules(self) -> tuple[May, ...]:
        """What it lets change."""
        return rules_of(self.family, self.task)

    @cached_property
    def start(self) -> Files:
        """The files that it puts there."""
        return at_start(self.task)

    @cached_property
    def end(self) -> Files:
        """Those of its wanted end."""
        return tasks.solved(self.task.id)

    @cached_property
    def targets(self) -> list[str]:
        """Paths of the files in its end that its checks look at."""
        looked_at = {one.path for one in wanted(self.task)}
        return [path for path, view in self.end.items() if view.kind != "folder" and path in looked_at]

    @cached_property
    def goes(self) -> list[str]:
        """Paths that are to be there no more, and not elsewhere either."""
        gone = [path for path in self.start if May(path, (REMOVE,)) in self.rules]
        contents = {view.data for view in self.end.values()}
        return [path for path in gone if self.start[path].data not in contents]

    @cached_property
    def sought(self) -> tuple[str, ...]:
        """What no file may hold in the end."""
        return tasks.sought(self.task)

    @cached_property
    def others(self) -> list[str]:
        """Files that nothing may happen to, those that people keep first."""
        held = self.before.entries
        free = [
            path
            for path, entry in held.items()
            if entry.kind == FILE and entry.size and path not in self.end and not self._may_change(path, entry)
        ]
        return sorted(free, key=lambda path: (path.startswith("."), path))

    def _may_change(self, path: str, entry: Entry) -> bool:
        """Whether it may say something else, or be gone."""
        was, changed = Manifest({path: entry}), Manifest({path: Entry(FILE, entry.size + 1, entry.mode, "another")})
        return not all(collateral(was, after, self.rules, programs.RULES) for after in (changed, Manifest()))


def quoted(path: str) -> str:
    """A path below HOME, as the shell must be told it."""
    return shlex.quote(f"./{path}")


def put(path: str, data: bytes) -> str:
    """The command that writes a file."""
    folder = quoted(path.rpartition("/")[0] or ".")
    return f"mkdir -p {folder}; printf %s {base64.b64encode(data).decode()} | base64 -d > {quoted(path)}"


def in_guest(path: str) -> str:
    """The path as programs of the desktop call it."""
    return f"{GUEST_HOME}/{path}"


@dataclass(frozen=True)
class Cheat:
    """A way to pass for one who has done a task."""

    name: str
    when: str
    about: str
    text: str
    files: bool = False
    harmless: bool = False
    idle: bool = False

    def script(self, scene: Scene) -> str | None:
        """The program for `sh` in HOME; None where the cheat does not go with the task."""
        values = {name: VALUES[name](scene) for name in _NAME.findall(self.text)}
        if None in values.values():
            return None
        return _NAME.sub(lambda name: str(values[name[1]]), self.text)


def _loaded(path: Path) -> Iterator[Cheat]:
    file: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    for section, when in (("oracle", DONE), ("nothing", UNTOUCHED)):
        for name, fields in file[section].items():
            yield Cheat(name, when, text=fields.pop("script"), **fields)
    for ending, edits in file["edits"].items():
        for name, body in edits.items():
            saved = name not in file["raw"]
            text = file["edit_saved" if saved else "edit_raw"].replace("@EDIT@", file["edit"].replace("@BODY@", body))
            text = text.replace("@DOCUMENT@", f"@{ending.upper()}@").replace("@ENDING@", ending)
            text = text.replace("@SAVE@", _saving(ending))
            yield Cheat(f"{ending}: {name}", DONE, "saved once more" if saved else "edited", text)


def _saving(kind: str) -> str:
    return f"{_OFFICE} {shlex.quote(kind + _FILTERS.get(kind, ''))}"


def _document(scene: Scene, *endings: str) -> str | None:
    return next((path for path in scene.targets if path.endswith(tuple(f".{one}" for one in endings or _ALIKE))), None)


def _quoted(path: str | None) -> str | None:
    return quoted(path) if path else None


def _first(paths: list[str]) -> str | None:
    return quoted(paths[0]) if paths else None


def _result(scene: Scene) -> str | None:
    return next((path for path in scene.targets if path.startswith("Documents/")), None)


def _renamed(change: Callable[[str], str], scene: Scene) -> str | None:
    """The result's path with a changed name; None where the change leaves it as it is."""
    folder, _, name = (_result(scene) or "").rpartition("/")
    return quoted(f"{folder}/{change(name)}") if change(name) != name else None


def _gone(scene: Scene) -> str | None:
    return base64.b64encode(scene.start[scene.goes[0]].data).decode() if scene.goes else None


def _elsewhere(scene: Scene) -> str | None:
    files = {path: view for path, view in scene.end.items() if view.kind == "file" and view.data}
    return "; ".join(put(f"Desktop/{path}", view.data) for path, view in files.items()) or None


def _linked(scene: Scene) -> str | None:
    """The right content behind a link in the place of the file."""
    fresh = [
        (path, view.data)
        for path, view in scene.end.items()
        if view.kind == "file" and (path not in scene.start or scene.start[path].data != view.data)
    ]
    return "; ".join(
        f"{put(f'Desktop/{number}', data)}; ln -sf ~/Desktop/{number} {quoted(path)}"
        for number, (path, data) in enumerate(fresh)
    ) or None  # fmt: skip


def _asked(scene: Scene) -> str:
    """The words of the instruction, and what the checks ask for."""
    return f"{scene.task.instruction} {scene.task.evaluator.expected}"


def _listed(path: str, scene: Scene) -> str | None:
    """The file `path` as its program writes it, where the task's end has it."""
    return put(path, scene.end[path].data) if path in scene.end else None


def _judged_by(func: str, scene: Scene, script: Callable[[Scene], str | None]) -> str | None:
    return script(scene) if scene.task.evaluator.func == func else None


def _plain_bookmarks(scene: Scene) -> str:
    """As someone writes them who knows what is compared, without a checksum."""
    rules: Any = scene.task.evaluator.expected
    kept: dict[str, list[object]] = {}
    for folder, title, path in rules["rules"]["expected"]:
        kept.setdefault(folder, []).append({"name": title, "type": "url", "url": f"file://{in_guest(path)}"})
    loose = kept.pop("", [])
    folders = [{"name": name, "type": "folder", "children": pages} for name, pages in kept.items()]
    roots = {name: {"name": "", "type": "folder", "children": children}
             for name, children in (("bookmark_bar", loose), ("other", folders), ("synced", []))}  # fmt: skip
    return put(web.BOOKMARKS, json.dumps({"roots": roots, "version": 1}).encode())


def _false_bookmarks(scene: Scene) -> str:
    return put(web.BOOKMARKS, scene.end[web.BOOKMARKS].data.replace(b'"checksum": "', b'"checksum": "0', 1))


def _names(scene: Scene) -> str:
    return put(f"{vlc.FOLDER}/{scene.goal.wanted}", "".join(f"{name}\n" for name in scene.goal.words).encode())


def _playlist(scene: Scene) -> str | None:
    data = scene.end[scene.targets[0]].data if scene.targets else None
    return put(f"{vlc.FOLDER}/{scene.goal.wanted}", data) if data is not None else None


def _refers(goal: object) -> bool:
    return isinstance(goal, WorkbookGoal) and any(write.refers for write in goal.writes)


def _made(scene: Scene) -> str | None:
    """The document as a script makes it, saved by no program for documents."""
    goal = scene.goal
    path = f"Documents/{goal.target}"
    if isinstance(goal, TextDocumentGoal) and not any(line.looks or line.layout for line in goal.finish):
        return put(path, make_docx([line.text for line in goal.finish]))
    if isinstance(goal, PresentationGoal):
        return put(path, make_odp([[(TITLE, title), (OUTLINE, outline)] for title, outline in goal.finish]))
    if isinstance(goal, WorkbookGoal) and not _refers(goal):
        cells = goal.finish
        rows = [[cells.get(address(row, column)) for column in range(12)] for row in range(len(goal.grid) + 6)]
        return put(path, make_xlsx({goal.renamed or goal.sheet: rows}))
    return None


def _plain_extensions(scene: Scene) -> str | None:
    if code_extension.LIST not in scene.end:
        return None
    rows = [
        {"identifier": {"id": each}, "version": code_extension.VERSION} for each in code_extension.listed(scene.goal)
    ]
    return put(code_extension.LIST, json.dumps(rows).encode())


def _kept(scene: Scene) -> str:
    return " ".join(f"! -path {quoted(p)}" for p in (*scene.end, *scene.family.leaves(scene.goal, scene.before)))


def _saved_as(alike: bool, scene: Scene) -> str | None:
    ending = (_document(scene) or "").rpartition(".")[2]
    return _saving(_ALIKE[ending] if alike else ending) if ending else None


# Of a scene, what each name in a cheat stands for; None where the task has no such thing.
VALUES: dict[str, Callable[[Scene], str | None]] = {
    "OTHER": lambda scene: _first(scene.others),  # a file that nothing may happen to
    "TARGET": lambda scene: _first(scene.targets),  # a file that the task's checks look at
    "TEXT": lambda scene: _first(
        [path for path in scene.targets if scene.end[path].kind == "file" and not path.endswith(_PACKED)]
    ),
    "RESULT": lambda scene: _quoted(_result(scene)),
    "LOOKALIKE": partial(_renamed, lambda name: name.translate(_CYRILLIC)),
    "CAPITALS": partial(_renamed, str.upper),
    "KEPT": _kept,
    "GONE": lambda scene: shlex.quote(scene.goes[0].rpartition("/")[2]) if scene.goes else None,
    "GONE64": _gone,
    "SOUGHT64": lambda scene: _gone(scene) if scene.sought else None,
    "GOING": lambda scene: " ".join(map(quoted, scene.goes)) or None,
    "ELSEWHERE": _elsewhere,
    "LINKED": _linked,
    "PROGRAM": lambda scene: shlex.quote(f"#!/bin/sh\necho {shlex.quote(_asked(scene))}\n"),
    "MODULE": lambda scene: shlex.quote(f"print({_asked(scene)!r})"),
    "BOOKMARKS": lambda scene: _judged_by("bookmarks_are", scene, partial(_listed, web.BOOKMARKS)),
    "PLAIN_BOOKMARKS": lambda scene: _judged_by("bookmarks_are", scene, _plain_bookmarks),
    "FALSE_BOOKMARKS": lambda scene: _judged_by("bookmarks_are", scene, _false_bookmarks),
    "TWIN": lambda _: quoted(web.TWIN),
    "SETTING": lambda scene: f"{scene.goal.kind}={scene.goal.wanted}" if vlc.SETTINGS in scene.end else None,
    "SETTINGS": lambda _: quoted(vlc.SETTINGS),
    "NAMES": lambda scene: _judged_by("playlist_is", scene, _names),
    "PLAYLIST": lambda scene: _judged_by("playlist_is", scene, _playlist),
    "MUSIC": lambda scene: _judged_by("playlist_is", scene, lambda _: ":"),
    "DIALOGS": lambda _: quoted(vlc.DIALOGS),
    "DOCUMENT": lambda scene: _quoted(_document(scene)),
    "DOCX": lambda scene: _quoted(_document(scene, "docx")),
    "XLSX": lambda scene: _quoted(_document(scene, "xlsx")),
    "ODP": lambda scene: _quoted(_document(scene, "odp")),
    "SAVE": partial(_saved_as, False),
    "SAVE_ALIKE": partial(_saved_as, True),
    "WANTED": lambda scene: put(path, scene.end[path].data) if (path := _document(scene)) else None,
    "MADE": _made,
    "FORMULAS": lambda scene: _first(scene.targets) if _refers(scene.goal) else None,
    "PLAIN_EXTENSIONS": _plain_extensions,
    "LISTED_EXTENSIONS": partial(_listed, code_extension.LIST),
    "EXTENSIONS": lambda scene: EXTENSIONS if code_extension.LIST in scene.end else None,
}
CHEATS = tuple(_loaded(Path(__file__).with_name("cheats.yaml")))
