"""Judges a task without a desktop: on the files it starts with, and on the files of its wanted end state.

Invariant: nothing is run. Folders are made of the paths given, as a look at such a HOME would show them.
"""

from __future__ import annotations

from apis.tasks.family import Files
from apis.tasks.osworld import Download, Task, data_of, in_home
from apis.tasks.verify.verify import FileView, Read


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
