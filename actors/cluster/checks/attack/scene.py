"""What a cheat knows of the task and the desktop that it is tried on. Pure."""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass
from functools import cached_property

from apis.tasks import programs
from apis.tasks import registry as tasks
from apis.tasks.family import Family, Files, at_start, rules_of
from apis.tasks.osworld import Task
from apis.tasks.verify.allowed import REMOVE, May, collateral
from apis.tasks.verify.manifest import FILE, Entry, Manifest
from apis.tasks.verify.verify import GUEST_HOME, wanted
from apis.tasks.view import Goal

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
