"""What a generated family of tasks is made of.

Invariant: an instance is a function of its id alone (`family/split/seed`), so whoever knows the id can rebuild the
task, its verifier, its oracles and the files of its wanted end state anywhere and at any time.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from apis.tasks.osworld import HOME, Download, DownloadParameters, Evaluator, Open, OpenParameters, Source, Step, Task
from apis.tasks.verify import FileView

if TYPE_CHECKING:
    from apis.tasks.demonstrator import Decide

DOCUMENTS = f"{HOME}/Documents"


@dataclass(frozen=True)
class Goal:
    """What an instance asks for. `kind` is the family's own word for the manner of task."""

    family: str
    kind: str
    instruction: str
    target: str = ""  # file or folder name the task is about
    wanted: str = ""  # text or name that shall be there in the end
    files: tuple[tuple[str, str], ...] = ()  # what lies in Documents at the start: name, content


_ENDING = re.compile(r"\.(txt|md|log|xlsx|ods|csv)$")
_VALUE = re.compile(r"[A-Za-z]+|[0-9]+(?:\.[0-9]+)?")

Templates = Mapping[str, Mapping[str, tuple[str, ...]]]  # kind -> split -> wordings
Files = Mapping[str, FileView]  # by path below HOME; what is not named is not there


@dataclass(frozen=True)
class Family:
    """A kind of task in thousands of instances, with everything that is known about it."""

    name: str  # ids are NAME/SPLIT/SEED
    app: str  # the application it is reported under (a name of apis.apps)
    apps: tuple[str, ...]  # all applications an episode needs
    goal: Callable[[str], Goal]
    task: Callable[[str], Task]
    solved: Callable[[Goal], Files]  # the files that tell a done instance; folders know their names from these paths
    routes: Mapping[str, Decide]  # ways to do it: "gui" always, "api" where an application's tools can
    templates: Templates
    trained: bool = True  # False: there is no training split, and it is reported apart
    values: Callable[[Goal], set[str]] = field(default_factory=lambda: words_of)  # what its instances are made of


def words_of(goal: Goal) -> set[str]:
    """Words and numbers of the names and texts of `goal`, endings of file names left out."""
    names = [goal.target, goal.wanted, *(name for name, _ in goal.files)]
    parts = [part for name in names for path in name.split() for part in _ENDING.sub("", path).split("/")]
    return {found for text in (*parts, *(text for _, text in goal.files)) for found in _VALUE.findall(text)}


def seeded(task_id: str) -> Random:
    """The generator that makes instance `task_id`."""
    return Random(hashlib.blake2b(task_id.encode(), digest_size=8).digest())  # noqa: S311 - instances, not secrets


def setup(goal: Goal, *opened: str) -> list[Step]:
    """Put the goal's files into Documents, then open each of `opened`; the last one is in front."""
    sources = [Source(url=data_url(text), path=f"{DOCUMENTS}/{name}") for name, text in goal.files]
    put: list[Step] = [Download(parameters=DownloadParameters(files=sources))] if sources else []
    return [*put, *(Open(parameters=OpenParameters(path=path)) for path in opened)]


def data_url(text: str) -> str:
    """`text` as a URL that carries it."""
    return "data:text/plain;base64," + b64encode(text.encode()).decode("ascii")


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


def all_of(*checks: tuple[str, str, dict[str, object]]) -> Evaluator:
    """Success when every check (its function, the path below Documents, its expectation) is met."""
    return Evaluator(
        func=[func for func, _, _ in checks],
        result=[dict(file_getter(path)) for _, path, _ in checks],
        expected=[expected for _, _, expected in checks],
    )


def in_documents(files: Mapping[str, str]) -> dict[str, FileView]:
    """Texts by their path below Documents, as a look at them would find them."""
    return {f"Documents/{name}": FileView("file", text.encode()) for name, text in files.items()}


def file_getter(name: str) -> dict[str, str]:
    """The getter of a file of Documents."""
    return {"type": "vm_file", "path": f"{DOCUMENTS}/{name}" if name else DOCUMENTS, "dest": name}


def rule(**rules: str | list[str]) -> dict[str, object]:
    """An expectation that stands in the task itself."""
    return {"type": "rule", "rules": rules}
