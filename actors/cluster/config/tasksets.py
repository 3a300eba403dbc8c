"""Task sets as commands and deploy files name them; only what can be played here is chosen."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path

from msgspec.structs import replace

from actors.cluster.config import suites
from actors.cluster.config.suggest import hint
from actors.desktop.providers import home
from actors.replay.config import EVERY, TaskRange
from apis.tasks import registry as tasks
from apis.tasks.osworld import Task
from apis.tasksets import store
from apis.tasksets.coverage import Covered, Present, covered, unsound
from apis.tasksets.getters import fixture_name, named_by
from apis.tasksets.package import Need
from runtime.errors import ConfigError
from runtime.program import program

SCHEMAS = Path("/usr/share/glib-2.0/schemas")


def programs() -> Present:
    """Which programs desktops of this machine have."""

    def present(name: str) -> bool:
        if name == "code":
            return not home.editor_lacking()
        if "." in name and name in schemas():
            return True
        return shutil.which(name, path="/usr/bin:/bin:/usr/games") is not None

    return present


@lru_cache(maxsize=1)
def schemas() -> frozenset[str]:
    """The settings by name that `gsettings` knows on desktops of this machine."""
    known: set[str] = set()
    for file in SCHEMAS.glob("*.xml"):
        with contextlib.suppress(OSError):
            known.update(re.findall(r"<schema [^>]*\bid=[\"']([\w.-]+)", file.read_text(errors="replace")))
    return frozenset(known)


def bundled() -> dict[str, Path]:
    """Name -> folder of the task files that come with the program."""
    folder = Path(str(resources.files("deploy"))) / "tasks"
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}


def is_of_files(name: str) -> bool:
    """Whether `name` means a task set, a folder of task files or a file of them, there or not."""
    named = name in suites.bundled() or name in tasks.FAMILIES
    of_files = name.endswith(".json") or os.path.isdir(name) or store.is_set(name) or name in bundled()
    return not named and of_files


def files_at(name: str) -> list[Path]:
    """The task files that `name` is or has below it, at least one. Raises ConfigError with the nearest name."""
    if store.is_set(name) and not os.path.isdir(name):
        return [store.set_place(name) / f"{task_id.partition('/')[2]}.json" for task_id in store.ids(name)]
    path = Path(name) if os.path.isdir(name) else bundled().get(name, Path(name))
    if os.path.isdir(path):
        found = sorted(file for file in path.rglob("*.json") if file.name != store.LOCK)
        if not found:
            raise ConfigError(f"{name}: no task files (*.json) there")
        return found
    if not os.path.isfile(path):
        near = sorted(map(str, path.parent.glob("*.json"))) if path.parent.is_dir() else []
        raise ConfigError(f"{name}: no such task file; {hint(name, near) if near else 'there are none in its folder'}")
    return [path]


@lru_cache(maxsize=64)
def set_of(name: str) -> str:
    """The task set that `name` means; a file or folder becomes one. Raises ConfigError."""
    if store.is_set(name) and not os.path.isdir(name):
        return name
    if not is_of_files(name):
        raise ConfigError(
            f"there is no task set {name}, nor such a file or folder; {hint(name, [*bundled(), *store.names()])}"
        )
    files = files_at(name)
    return store.adopt(Path(name).resolve().stem, files, pinned=False)


def verdicts(name: str, **there: bool) -> list[Covered]:
    """The verdict on each task of the set `name`, under its id; `there` is what `covered` takes. Raises ConfigError."""
    return [verdict_on(tasks.task(task_id), **there) for task_id in store.ids(set_of(name))]


def verdict_on(task: Task, **there: bool) -> Covered:
    """The verdict on one task: what it lacks here, else whether it is sound by its own files. Raises ConfigError."""
    found = covered(task, store.Fixtures(task).at_hand, programs(), **there)
    trouble = _trouble(task) if found.verdict == "runnable" else ""
    return replace(found, verdict="unsound", needs=[Need("task", trouble)]) if trouble else found


def _trouble(task: Task) -> str:
    fixtures = store.Fixtures(task)
    if not tasks.of_set(task.id):
        return unsound(task, fixtures.content)
    return _trouble_of(task.id, tuple(fixtures.digest(*one) for one in named_by(task)))


@lru_cache(maxsize=1024)
def _trouble_of(task_id: str, _: tuple[str, ...]) -> str:
    task = tasks.task(task_id)
    return unsound(task, store.Fixtures(task).content)


def refuse_unsound(task_id: str) -> None:
    """Raise ConfigError for a task of a set that its own files contradict."""
    if trouble := _trouble(tasks.task(task_id)):
        raise ConfigError(f"{task_id}: {trouble}")


def chosen(wanted: TaskRange, *, train: bool = False, **there: bool) -> list[str]:
    """The tasks of a range over a set: of those that can be played here, to `train` also solved. Raises ConfigError."""
    every = verdicts(wanted.set, **there)
    playable = [one.id for one in every if (one.solvable if train else one.verdict == "runnable")]
    if not playable:
        raise ConfigError(
            f"task set {wanted.set} has no task that can be played here: {program()} tasks check {wanted.set} --static"
            " says what each lacks"
        )
    last = wanted.first + (1 if wanted.count == EVERY else wanted.count)
    if last > len(playable):
        raise ConfigError(f"task set {wanted.set} has {len(playable)} tasks that can be played here, not {last}")
    return playable[wanted.first : wanted.first + wanted.count]


def refuse_leaks(lane: str, ids: Sequence[str], held_out: Sequence[str]) -> None:
    """Raise ConfigError where a task file of `lane` is one of `held_out` by id, instruction or fixture."""
    evaluated = {mark: task_id for task_id in held_out if tasks.of_set(task_id) for mark in _marks(tasks.task(task_id))}
    for task_id in ids:
        if not tasks.of_set(task_id):
            continue
        for mark in _marks(tasks.task(task_id)):
            if mark in evaluated:
                kind = mark.partition(":")[0]
                raise ConfigError(f"{lane}: {task_id} has the {kind} of {evaluated[mark]}, which must be held out")


def _marks(task: Task) -> set[str]:
    """What two tasks must not share: the file's own id, the words of the instruction, what a fixture holds."""
    fixtures, words = store.Fixtures(task), " ".join(task.instruction.lower().split())
    held = {f"fixture:{fixtures.digest(*one) or fixture_name(*one)}" for one in named_by(task)}
    return {f"id:{task.id.rpartition('/')[2]}", f"instruction:{words}", *held}
