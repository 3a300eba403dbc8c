"""What a generated family of tasks is made of.

Invariant: an instance is a function of its id alone (`family/split/seed`). Its task, verifier, oracles and wanted end
state can be made again from the id at any time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from apis.applications import app_named
from apis.tasks.goal import Goal
from apis.tasks.osworld import HOME, Evaluator, Step, Task, data_url, launch, opened, put
from apis.tasks.verify.allowed import May
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import FileView
from apis.tasks.view import Decide
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


def ITS_END(_: Goal) -> tuple[May, ...]:  # noqa: N802 - a value of `Family.may`
    """Nothing but what `Family.solved` names: the strictest, which a family takes by this name."""
    return ()


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
    may: Allows | None = None  # what an episode may change in HOME beside programs' own files; None: as `ITS_END`

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

    `files` are texts by their path below Documents; None stands for an empty folder.
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
        may=ITS_END,
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


def rule(**rules: object) -> dict[str, object]:
    """An expectation that stands in the task itself."""
    return {"type": "rule", "rules": rules}
