"""What a task may change, read from the files that tell that it is done.

Invariant: a path is named only where the task's own checks decide what it holds in the end. So a rule made here lets no
unchecked content pass. Nothing is run to judge a task without a desktop.
"""

from __future__ import annotations

from apis.tasks.family import Family, Files
from apis.tasks.osworld import Download, Task, data_of, in_home
from apis.tasks.verify.allowed import CHANGE, CREATE, REMOVE, May
from apis.tasks.verify.manifest import FILE, Manifest
from apis.tasks.verify.verify import OFFICE, FileView, Read, wanted


def at_start(task: Task) -> Files:
    """The files that `task` puts into HOME. Raises ValueError for one that does not carry its content."""
    steps = (step for step in task.config if isinstance(step, Download))
    files = (source for step in steps for source in step.parameters.files)
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


def sought(family: Family, task: Task) -> tuple[str, ...]:
    """Of each file that is to be gone a line that is to be nowhere else in HOME, as bytes in hexadecimal digits."""
    start, end = at_start(task), family.solved(family.goal(task.id))
    gone = {rule.paths for rule in rules(family, task) if rule.deeds == (REMOVE,)}
    least, most = SOUGHT_BYTES
    found = []
    for path in start.keys() & gone:
        line = b" ".join(max(start[path].data.split(b"\n"), key=len).split())[:most]
        stays = any(line in view.data for files in (end, start) for other, view in files.items() if other != path)
        if len(line) >= least and not stays:
            found.append(line.hex())
    return tuple(sorted(found))


def rules(family: Family, task: Task) -> tuple[May, ...]:
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
    return (*found, *(family.may(goal) if family.may is not None else ()))


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
