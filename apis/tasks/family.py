"""What a generated family of tasks is made of, and what an episode on an instance may change.

Invariant: an instance is a function of its id alone (`family/split/seed`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from apis.applications import app_named
from apis.tasks.osworld import HOME, Download, Evaluator, Step, Task, data_of, data_url, in_home, launch, opened, put
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import FILE, Manifest
from apis.tasks.verify.verify import OFFICE, FileView, Read, wanted
from apis.tasks.view import Decide, Goal
from apis.tasks.words import TRAIN

DOCUMENTS = f"{HOME}/Documents"
TERMINAL = "terminal"  # what `setup` opens without a path


_ENDING = re.compile(r"\.(txt|md|log|xlsx|ods|csv|docx|odt|odp)$")
_VALUE = re.compile(r"[A-Za-z]+|[0-9]+(?:\.[0-9]+)?")

Templates = Mapping[str, Mapping[str, tuple[str, ...]]]  # kind -> split -> wordings
Check = tuple[str, str, dict[str, object]]  # a check's name, the path below Documents, its expectation
Files = Mapping[str, FileView]  # by path below HOME; what is not named is not there


Allows = Callable[[Goal], tuple[May, ...]]
Form = Callable[[FileView], bool]  # whether a file is as its program writes it
Leaves = Callable[[Goal, Manifest], Mapping[str, Form]]  # by path; the manifest is HOME after the set-up


@dataclass(frozen=True)
class Family:
    """A kind of task in thousands of instances, with everything that is known about it."""

    name: str  # ids are NAME/SPLIT/SEED
    apps: tuple[str, ...]  # all that an episode needs (names of apis.applications); the first is in front and reported
    drawn: Callable[[Random, str], Goal]  # what an instance of a split asks for, by the generator of its id
    config: Callable[[Any], list[Step]]  # how the desktop is set up for a goal
    evaluator: Callable[[Any], Evaluator]  # how success is decided
    solved: Callable[[Any], Files]  # the files that tell a done instance; folders know their names from these paths
    routes: Mapping[str, Decide]  # ways to do it: "gui" always, "api" where tools can; both make "mixed"
    templates: Templates  # a family without wordings for training is never trained on, and is reported apart
    values: Callable[[Goal], set[str]] = field(default_factory=lambda: words_of)  # what its instances are made of
    leaves: Leaves = lambda _goal, _before: {}  # files that its program writes when it does what is asked
    may: Allows = lambda _: ()  # what an episode may change in HOME besides what `solved` names and programs' own files

    @property
    def app(self) -> str:
        """The application it is reported under."""
        return self.apps[0]

    @property
    def trained(self) -> bool:
        """Whether there is a training split."""
        return any(by_split.get(TRAIN) for by_split in self.templates.values())

    @property
    def optional(self) -> bool:
        """Whether it needs an application that set-up does not install."""
        return any(app_named(app).optional for app in self.apps)

    def goal(self, task_id: str) -> Goal:
        """What instance `family/split/seed` asks for."""
        return replace(self.drawn(_seeded(task_id), task_id.split("/")[1]), family=self.name)

    def task(self, task_id: str) -> Task:
        """The instance in OSWorld's form."""
        goal = self.goal(task_id)
        return Task(
            id=task_id, snapshot=self.app, instruction=goal.instruction, source="generated", config=self.config(goal),
            trajectory="trajectories/", related_apps=list(self.apps), evaluator=self.evaluator(goal),
        )  # fmt: skip


def words_of(goal: Goal) -> set[str]:
    """Words and numbers of the names and texts of `goal`, endings of file names left out."""
    held = (*goal.files, *goal.end)
    texts = (goal.target, goal.wanted, *goal.words, *(part or "" for pair in held for part in pair))
    tokens = (_ENDING.sub("", token) for text in texts for token in text.split())
    return {found for token in tokens for found in _VALUE.findall(token)}


def _seeded(task_id: str) -> Random:
    """The generator that makes instance `task_id`."""
    return Random(hashlib.blake2b(task_id.encode(), digest_size=8).digest())  # noqa: S311 - instances, not secrets


def setup(goal: Goal, *paths: str) -> list[Step]:
    """Put the goal's files into Documents, then open each of `paths`, or `TERMINAL`; the last is in front."""
    steps = put((f"{DOCUMENTS}/{name}", data_url(text.encode())) for name, text in goal.files)
    return [*steps, *(launch(*app_named(TERMINAL).argv) if path == TERMINAL else opened(path) for path in paths)]


def all_of(*checks: Check) -> Evaluator:
    """Success when every check (its function, the path below Documents, its expectation) is met."""
    return Evaluator(
        func=[func for func, _, _ in checks],
        result=[dict(file_getter(path)) for _, path, _ in checks],
        expected=[expected for _, _, expected in checks],
    )


def exactly(files: Mapping[str, str | None]) -> Evaluator:
    """Success when Documents holds `files` with these texts, and nothing else.

    `files` are texts by their path below Documents; None is an empty folder.
    """
    folders: dict[str, set[str]] = {"": set()}
    for path, text in files.items():
        parts = path.split("/")
        for depth, name in enumerate(parts):
            is_folder = text is None or depth < len(parts) - 1
            folders.setdefault("/".join(parts[:depth]), set()).add(name + "/" * is_folder)
        if text is None:
            folders.setdefault(path, set())
    texts = [("file_text_is", path, rule(expected=text)) for path, text in files.items() if text is not None]
    return all_of(*(("folder_holds", path, rule(expected=sorted(names))) for path, names in folders.items()), *texts)


def of_files(
    name: str,
    apps: tuple[str, ...],
    templates: Templates,
    goal: Callable[[Random, str], Goal],
    *,
    opened: Callable[[Goal], Sequence[str]],
    decide: Decide,
) -> Family:
    """A family that is done when Documents holds exactly the goal's `end`; `opened` is what `setup` opens."""
    return Family(
        name, apps, goal, lambda made: setup(made, *opened(made)), ends_so, end_of, {"gui": decide}, templates,
    )  # fmt: skip


def ends_so(goal: Goal) -> Evaluator:
    """Success when Documents holds exactly the goal's `end`."""
    return exactly(dict(goal.end))


def end_of(goal: Goal) -> Files:
    """The files and folders of the goal's `end`."""
    texts = in_documents({path: text for path, text in goal.end if text is not None})
    return texts | {f"Documents/{path}": FileView("folder") for path, text in goal.end if text is None}


def in_documents(files: Mapping[str, str]) -> dict[str, FileView]:
    """Texts by their path below Documents, as a look at them would find them."""
    return {f"Documents/{name}": FileView("file", text.encode()) for name, text in files.items()}


def file_getter(name: str) -> dict[str, str]:
    """The getter of a file of Documents."""
    return {"type": "vm_file", "path": f"{DOCUMENTS}/{name}" if name else DOCUMENTS, "dest": name}


def home_getter(path: str) -> dict[str, str]:
    """The getter of a file of HOME."""
    return {"type": "vm_file", "path": f"{HOME}/{path}", "dest": path.rpartition("/")[2]}


def rule(**rules: object) -> dict[str, object]:
    """An expectation in the task itself."""
    return {"type": "rule", "rules": rules}


def at_start(task: Task) -> Files:
    """The files that `task` puts into HOME. Raises ValueError for one that does not carry its content."""
    steps = (step for step in task.config if isinstance(step, Download))
    files = (source for step in steps for source in step.files)
    return {in_home(source.path): FileView("file", data_of(source.url)) for source in files}


def reader(files: Files) -> Read:
    """Looks at a HOME that holds `files` and the folders above them; Documents is always there."""
    folders: dict[str, set[str]] = {"Documents": set()}
    for path, view in files.items():
        parts = path.split("/")
        for depth, name in enumerate(parts):
            below = view.kind == "folder" or depth < len(parts) - 1
            folders.setdefault("/".join(parts[:depth]), set()).add(name + "/" * below)
        if view.kind == "folder":
            folders.setdefault(path, set())

    def read(path: str) -> FileView:
        if path in folders:
            return FileView("folder", names=tuple(sorted(folders[path])))
        return files.get(path, FileView("missing"))

    return read


SOUGHT_BYTES = (3, 200)  # of a line: shorter ones may be anywhere, and of longer ones so much is enough


def sought_of(family: Family, task: Task) -> tuple[str, ...]:
    """Of each file that is to be gone a line that is to be nowhere else in HOME, as bytes in hexadecimal digits."""
    start, end = at_start(task), family.solved(family.goal(task.id))
    gone = {rule.paths for rule in rules_of(family, task) if rule.deeds == (REMOVE,)}
    least, most = SOUGHT_BYTES
    found = []
    for path in start.keys() & gone:
        line = b" ".join(max(start[path].data.split(b"\n"), key=len).split())[:most]
        stays = any(line in view.data for files in (end, start) for other, view in files.items() if other != path)
        if len(line) >= least and not stays:
            found.append(line.hex())
    return tuple(sorted(found))


def rules_of(family: Family, task: Task) -> tuple[May, ...]:
    """The rules for an instance: what its wanted end has and its start has not, and what the family declares."""
    goal = family.goal(task.id)
    start, end = at_start(task), family.solved(goal)
    looked_at = {one.path for one in wanted(task)}
    found = []
    for path, view in end.items():
        if path not in start:
            found.append(May(_literally(path), (CREATE,) if view.kind == "folder" else (CREATE, CHANGE)))
        elif view.kind != "file" or view.data != start[path].data:
            found.append(May(_literally(path), (CHANGE,)))
    # Gone may be what lay in a folder all of whose names are compared.
    gone = (path for path in start.keys() - end.keys() if path.rpartition("/")[0] in looked_at)
    found += [May(_literally(path), (REMOVE,)) for path in gone]
    return (*found, *family.may(goal))


def made_otherwise(family: Family, task: Task, read: Read, before: Manifest, after: Manifest) -> str:
    """How what is wanted came there without the program that should make it; "" where it did not."""
    for path in (one.path for one in wanted(task) if one.as_ == OFFICE):
        compared = read(path).office
        if compared is not None and compared.unsaved and before.entries.get(path) != after.entries.get(path):
            return f"{path}: it was not saved by LibreOffice"
    for path, formed in family.leaves(family.goal(task.id), before).items():
        entry = after.entries.get(path)
        if entry is None or entry.kind != FILE or entry == before.entries.get(path) or not formed(read(path)):
            return f"{path}: the program that should have done it has not written it"
    return ""


def _literally(path: str) -> str:
    if "*" in path:
        raise ValueError(f"{path!r}: a task's file has no * in its name")
    return path
