"""What a generated family of tasks is made of.

Invariant: an instance is a function of its id alone (`family/split/seed`), so whoever knows the id can rebuild the
task, its verifier and its oracle anywhere and at any time.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from dataclasses import dataclass
from random import Random

from apis.tasks.osworld import HOME, Download, DownloadParameters, Evaluator, Open, OpenParameters, Source, Step, Task

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


def seeded(task_id: str) -> Random:
    """The generator that makes instance `task_id`."""
    return Random(hashlib.blake2b(task_id.encode(), digest_size=8).digest())  # noqa: S311 - instances, not secrets


def setup(goal: Goal, opened: str) -> list[Step]:
    """Put the goal's files into Documents, then open `opened`."""
    sources = [Source(url=data_url(text), path=f"{DOCUMENTS}/{name}") for name, text in goal.files]
    put: list[Step] = [Download(parameters=DownloadParameters(files=sources))] if sources else []
    return [*put, Open(parameters=OpenParameters(path=opened))]


def data_url(text: str) -> str:
    """`text` as a URL that carries it."""
    return "data:text/plain;base64," + b64encode(text.encode()).decode("ascii")


def in_osworld_form(task_id: str, goal: Goal, opened: str, evaluator: Evaluator) -> Task:
    """The task of `goal`, under the id it was made from."""
    return Task(
        id=task_id,
        snapshot=goal.family,
        instruction=goal.instruction,
        source="generated",
        config=setup(goal, opened),
        trajectory="trajectories/",
        related_apps=[goal.family],
        evaluator=evaluator,
    )


def file_getter(name: str) -> dict[str, str]:
    """The getter of a file of Documents."""
    return {"type": "vm_file", "path": f"{DOCUMENTS}/{name}" if name else DOCUMENTS, "dest": name}


def rule(**rules: str | list[str]) -> dict[str, object]:
    """An expectation that stands in the task itself."""
    return {"type": "rule", "rules": rules}
