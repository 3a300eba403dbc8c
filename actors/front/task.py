"""A task for a program: `computerrl.Task`.

Invariant: an id means here what it means in a deploy file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.cluster.config import suites, tasksets
from actors.replay.config import EVERY, TaskRange
from apis.tasks import registry as tasks
from apis.tasks.osworld import Task
from apis.tasks.words import TRAIN

if TYPE_CHECKING:
    from actors.front.playing import Seen


class TaskHandle:
    """The task `FAMILY/SPLIT/NUMBER`, or `SET/DOMAIN/ID` of a task set; `FAMILY` alone is its first task.

    Raises ConfigError with the nearest id.
    """

    def __init__(self, task_id: str) -> None:
        found = task_id if tasks.of_set(task_id) else suites.instance(task_id)
        self.file: Task = tasks.task(found)  # in OSWorld's form: set-up and verifier, too
        self.id = self.file.id
        self.instruction = self.file.instruction
        self.apps = tuple(self.file.related_apps)
        self.feasible = self.file.feasible  # where it is not, giving up is the solution

    def __repr__(self) -> str:
        return f"Task({self.id!r})"

    def oracle(self, seed: int = 0, route: str = "") -> Callable[[Seen], str]:
        """The policy that shows how it is done, by "gui", "api" or "mixed"; without a route `seed` chooses.

        Raises ConfigError for a route that its family does not have, and for a task of a task set.
        """
        oracle = tasks.oracle(self.id, seed, route=route)
        return lambda seen: oracle.answer(seen.observation, seen.history, seen.form)

    @staticmethod
    def listed(suite: str, split: str = TRAIN, *, first: int = 0, count: int = 20) -> list[TaskHandle]:
        """`count` tasks of each family of a suite from number `first` on; or of a task set, a folder or a file.

        A family that is never trained on has held-out tasks only. Raises ConfigError.
        """
        if tasksets.is_of_files(suite):
            found = tasksets.chosen(TaskRange(set=suite, count=EVERY, first=first))[:count]
        else:
            loaded = suites.load(suite)
            names = [name for name in loaded.families if split in suites.splits_of(tasks.FAMILIES[name])]
            found = [task_id for name in names for task_id in loaded.ids(name, split, first, count)]
        return [TaskHandle(task_id) for task_id in found]


def task_of(task: str | TaskHandle) -> TaskHandle:
    """A task by its id, or as it is. Raises ConfigError."""
    return task if isinstance(task, TaskHandle) else TaskHandle(task)
