"""What a task may change, read from the files that tell that it is done.

Invariant: a path is named only where the task's own checks decide what it holds in the end, so a rule made here lets no
content pass that is not looked at.
"""

from __future__ import annotations

from apis.tasks import static
from apis.tasks.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.family import Family
from apis.tasks.osworld import Task
from apis.tasks.verify import wanted


def rules(family: Family, task: Task) -> tuple[May, ...]:
    """The rules for an instance: what its wanted end has and its start has not, and what the family declares."""
    goal = family.goal(task.id)
    start, end = static.at_start(task), family.solved(goal)
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
    return (*found, *(family.may(goal) if family.may is not None else ()))


def _literally(path: str) -> str:
    if "*" in path:
        raise ValueError(f"{path!r}: a task's file has no * in its name")
    return path
