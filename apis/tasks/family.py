"""What a generated family of tasks is made of.

Invariant: an instance is a function of its id alone (`family/split/seed`). Its task, verifier, oracles and wanted end
state can be made again from the id at any time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from apis.applications import app_named
from apis.tasks.data_url import data_url
from apis.tasks.goal import Goal
from apis.tasks.osworld import (
    HOME,
    CommandParameters,
    Download,
    DownloadParameters,
    Evaluator,
    Launch,
    Open,
    OpenParameters,
    Source,
    Step,
    Task,
)
from apis.tasks.verify.allowed import May
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import FileView
from apis.tasks.view import Decide

DOCUMENTS = f"{HOME}/Documents"
TERMINAL = "terminal"  # what `setup` opens without a path


_ENDING = re.compile(r"\.(txt|md|log|xlsx|ods|csv|docx|odt|odp)$")
_VALUE = re.compile(r"[A-Za-z]+|[0-9]+(?:\.[0-9]+)?")

Templates = Mapping[str, Mapping[str, tuple[str, ...]]]  # kind -> split -> wordings
Check = tuple[str, str, dict[str, object]]  # a check's name, the path below Documents, its expectation
Files = Mapping[str, FileView]  # by path below HOME; what is not named is not there


Allows = Callable[[Goal], tuple[May, ...]]
Leaves = Callable[[Goal, Manifest], tuple[str, ...]]  # by what lay in HOME after the set-up


def ITS_END(_: Goal) -> tuple[May, ...]:  # noqa: N802 - a value of `Family.may`
    """Nothing but what `Family.solved` names: the strictest, which a family takes by this name."""
    return ()


@dataclass(frozen=True)
class Family:
    """A kind of task in thousands of instances, with everything that is known about it."""

    name: str  # ids are NAME/SPLIT/SEED
    app: str  # the application it is reported under (a name of apis.applications)
    apps: tuple[str, ...]  # all applications an episode needs
    drawn: Callable[[Random, str], Goal]  # what an instance of a split asks for, by the generator of its id
    built: Callable[[str, Any], Task]  # the task of an id and its goal
    solved: Callable[[Goal], Files]  # the files that tell a done instance; folders know their names from these paths
    routes: Mapping[str, Decide]  # ways to do it: "gui" always, "api" where tools can; both make "mixed"
    templates: Templates
    trained: bool = True  # False: there is no training split, and it is reported apart
    values: Callable[[Goal], set[str]] = field(default_factory=lambda: words_of)  # what its instances are made of
    leaves: Leaves = lambda _goal, _before: ()  # files that its program writes when it does what is asked
    may: Allows | None = None  # what an episode may change in HOME beside programs' own files; None: as `ITS_END`

    def goal(self, task_id: str) -> Goal:
        """What instance `family/split/seed` asks for."""
        return self.drawn(_seeded(task_id), task_id.split("/")[1])

    def task(self, task_id: str) -> Task:
        """The instance in OSWorld's form."""
        return self.built(task_id, self.goal(task_id))

    @property
    def optional(self) -> bool:
        """Whether it needs an application that set-up does not install."""
        return any(app_named(app).optional for app in self.apps)


def words_of(goal: Goal) -> set[str]:
    """Words and numbers of the names and texts of `goal`, endings of file names left out."""
    held = (*goal.files, *goal.end)
    texts = (goal.target, goal.wanted, *goal.words, *(part or "" for pair in held for part in pair))
    tokens = (_ENDING.sub("", token) for text in texts for token in text.split())
    return {found for token in tokens for found in _VALUE.findall(token)}


def _seeded(task_id: str) -> Random:
    """The generator that makes instance `task_id`."""
    return Random(hashlib.blake2b(task_id.encode(), digest_size=8).digest())  # noqa: S311 - instances, not secrets


def setup(goal: Goal, *opened: str) -> list[Step]:
    """Put the goal's files into Documents, then open each of `opened`, a path or `TERMINAL`; the last is in front."""
    sources = [Source(url=data_url(text.encode()), path=f"{DOCUMENTS}/{name}") for name, text in goal.files]
    put: list[Step] = [Download(parameters=DownloadParameters(files=sources))] if sources else []
    return [*put, *(_opening(path) for path in opened)]


def _opening(path: str) -> Step:
    if path == TERMINAL:
        return Launch(parameters=CommandParameters(command=list(app_named(TERMINAL).argv)))
    return Open(parameters=OpenParameters(path=path))


def in_osworld_form(
    task_id: str, goal: Goal, config: list[Step], evaluator: Evaluator, apps: Sequence[str] = ()
) -> Task:
    """The task of `goal`, under the id it was made from; of `apps` the first is the one that is open first."""
    named = list(apps) or [goal.family]
    return Task(
        id=task_id,
        snapshot=named[0],
        instruction=goal.instruction,
        source="generated",
        config=config,
        trajectory="trajectories/",
        related_apps=named,
        evaluator=evaluator,
    )


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
    goal: Callable[[Random, str], Goal],
    *,
    opened: Callable[[Goal], Sequence[str]],
    decide: Decide,
    templates: Templates,
    trained: bool = True,
) -> Family:
    """A family that is done when Documents holds exactly the goal's `end`; `opened` is what `setup` opens."""

    def task(task_id: str, made: Goal) -> Task:
        return in_osworld_form(task_id, made, setup(made, *opened(made)), exactly(dict(made.end)), apps)

    def solved(made: Goal) -> Files:
        texts = in_documents({path: text for path, text in made.end if text is not None})
        return texts | {f"Documents/{path}": FileView("folder") for path, text in made.end if text is None}

    return Family(name, apps[0], apps, goal, task, solved, {"gui": decide}, templates, trained, may=ITS_END)


def in_documents(files: Mapping[str, str]) -> dict[str, FileView]:
    """Texts by their path below Documents, as a look at them would find them."""
    return {f"Documents/{name}": FileView("file", text.encode()) for name, text in files.items()}


def file_getter(name: str) -> dict[str, str]:
    """The getter of a file of Documents."""
    return {"type": "vm_file", "path": f"{DOCUMENTS}/{name}" if name else DOCUMENTS, "dest": name}


def rule(**rules: object) -> dict[str, object]:
    """An expectation that stands in the task itself."""
    return {"type": "rule", "rules": rules}
