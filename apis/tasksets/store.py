"""Task sets and fixtures on this machine.

Invariant: what an id or a fixture means never changes under a run. A set's lock has the digest of each task file, a
fixture's that of its content. A file that differs from its lock is refused by its name. Equal contents lie once.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from apis.tasks import osworld
from apis.tasks.osworld import Task
from apis.tasksets.getters import WantedFixture, fixture_name
from apis.tasksets.package import Lacking
from apis.tasksets.steps import carried
from runtime import disk
from runtime.errors import ConfigError

PLACE = "COMPUTERRL_TASKS"  # the variable that names another folder for task sets and fixtures
LOCK = "lock.json"
STALE_S = 3600.0  # longer than any write takes
MOST_FIXTURE, MOST_LOCK = 512 << 20, 64 << 20  # bytes


PUBLISHED = ("osworld", "officeworld")  # sets that people publish, whose scores are to be those of others


class FixtureLock(msgspec.Struct, frozen=True):
    """What was got for a task's URL and name."""

    task: str
    url: str
    name: str
    size: int  # bytes
    sha256: str
    revision: str = ""


class SetLock(msgspec.Struct, frozen=True):
    """The task files of a set: sha256 by DOMAIN/ID."""

    tasks: dict[str, str]


def root() -> Path:
    """The folder of all task sets and fixtures."""
    named = os.environ.get(PLACE)
    return Path(named) if named else Path.home() / ".cache" / "computerrl" / "tasks"


def sha256(data: bytes) -> str:
    """The digest that locks hold."""
    return hashlib.sha256(data).hexdigest()


def content_place(digest: str) -> Path:
    """Where the content with this sha256 lies, once for all fixtures that hold it."""
    return root() / "fixtures" / "sha256" / digest[:2] / digest


def lock_place(wanted: WantedFixture) -> Path:
    """Where the lock of a fixture lies."""
    key = wanted.key
    return root() / "fixtures" / "locks" / key[:2] / f"{key}.json"


def _lock(wanted: WantedFixture) -> FixtureLock | None:
    try:
        return msgspec.json.decode(disk.read_bytes(lock_place(wanted)), type=FixtureLock)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def digest_of(wanted: WantedFixture) -> str:
    """The sha256 of what a fixture holds; "" where it was not fetched."""
    lock = _lock(wanted)
    try:
        return lock.sha256 if lock is not None and content_place(lock.sha256).stat().st_size == lock.size else ""
    except OSError:
        return ""


class Fixtures:
    """The fixtures of one task that are here."""

    def __init__(self, task: Task) -> None:
        self._task = task.id.rpartition("/")[2]

    def digest(self, url: str, name: str) -> str:
        """The sha256 of what the file holds; "" where it was not fetched and is not in the URL itself."""
        if url.startswith("data:"):
            return sha256(carried(url))
        return digest_of(WantedFixture(self._task, url, name))

    def at_hand(self, url: str, name: str) -> bool:
        """Whether the file was fetched, or is in the URL itself."""
        return url.startswith("data:") or bool(self.digest(url, name))

    def content(self, url: str, name: str) -> bytes:
        """What the file holds. Raises Lacking where it is not at hand, ConfigError where it is not what was fetched."""
        if url.startswith("data:"):
            return carried(url)
        lock = _lock(WantedFixture(self._task, url, name))
        if lock is None:
            raise Lacking("fixture", fixture_name(url, name))
        place = content_place(lock.sha256)
        try:
            data = disk.read_bytes(place, MOST_FIXTURE)
        except OSError:
            raise Lacking("fixture", fixture_name(url, name)) from None
        if sha256(data) != lock.sha256:
            raise ConfigError(
                f"{fixture_name(url, name)}: its file {place} is not what was fetched: remove it and fetch it again"
            )
        return data


def keep(wanted: WantedFixture, data: bytes, revision: str = "") -> FixtureLock:
    """Keep the content of a fixture. Raises ConfigError where another content was kept before."""
    lock = FixtureLock(wanted.task, wanted.url, wanted.name, len(data), sha256(data), revision)
    before = _lock(wanted) or lock
    if before.sha256 != lock.sha256:
        raise ConfigError(
            f"{wanted} of task {wanted.task}: it has changed: sha256 {lock.sha256[:12]}, locked is {before.sha256[:12]}"
        )
    _write(content_place(lock.sha256), data)
    _write(lock_place(wanted), msgspec.json.encode(lock))
    return lock


def _write(place: Path, data: bytes) -> None:
    """Write a file as a whole or not at all; its folder is made."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(place)


def clear() -> None:
    """Remove what fetches that were killed have left half-written."""
    for part in root().rglob("*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > STALE_S:
                part.unlink()


def set_place(name: str) -> Path:
    """The folder of a set."""
    return root() / "sets" / name


def is_set(name: str) -> bool:
    """Whether a set of this name is here."""
    return bool(name) and "/" not in name and not name.startswith(".") and (set_place(name) / LOCK).is_file()


def is_published(task_id: str) -> bool:
    """Whether it is a task of a set that people publish."""
    return task_id.partition("/")[0] in PUBLISHED


def names() -> list[str]:
    """The sets that are here."""
    return sorted(place.parent.name for place in (root() / "sets").glob(f"*/{LOCK}"))


def lock_of(name: str) -> SetLock:
    """The lock of a set. Raises ConfigError."""
    try:
        return msgspec.json.decode(disk.read_bytes(set_place(name) / LOCK, MOST_LOCK), type=SetLock)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"task set {name}: {error}") from None


def ids(name: str) -> list[str]:
    """The ids SET/DOMAIN/ID of a set. Raises ConfigError."""
    return [f"{name}/{key}" for key in sorted(lock_of(name).tasks)]


def adopt(name: str, files: Sequence[Path], *, pinned: bool) -> str:
    """Make task files a set; its name.

    A set of one's own files (not `pinned`) is called after what it holds, so an id always means the same. Raises
    ConfigError for a file that is no task, for an id that comes twice, and for a pinned set's file that has changed.
    """
    found: dict[str, bytes] = {}
    for file in files:
        try:
            data = disk.read_bytes(file, osworld.FILE_MAX)
            task = osworld.load(data)
        except (OSError, ConfigError) as error:
            raise ConfigError(f"{file}: {error}") from None
        key = _key(file, task)
        if found.setdefault(key, data) != data:
            raise ConfigError(f"{file}: {key} is also the id of another file")
    lock = SetLock({key: sha256(data) for key, data in sorted(found.items())})
    if not pinned:
        name = f"{name}-{sha256(msgspec.json.encode(lock))[:8]}"
    elif is_set(name):
        before = lock_of(name).tasks
        changed = [key for key, digest in lock.tasks.items() if before.get(key, digest) != digest]
        if changed:
            raise ConfigError(f"task set {name}: {changed[0]} has changed since it was locked")
        lock = SetLock({**before, **lock.tasks})
    place = set_place(name)
    for key, data in found.items():
        _write(place / f"{key}.json", data)
    _write(place / LOCK, msgspec.json.format(msgspec.json.encode(lock)))
    return name


def _key(file: Path, task: Task) -> str:
    """DOMAIN/ID: the file's folder and the task's own id, with nothing in them that a path could be made of."""
    parts = [file.parent.name or "tasks", task.id]
    return "/".join("".join(c if c.isalnum() or c in "-_." else "_" for c in part).lstrip(".") or "_" for part in parts)


@lru_cache(maxsize=1024)
def task(task_id: str) -> Task:
    """The task SET/DOMAIN/ID, under that id. Raises ConfigError."""
    name, _, key = task_id.partition("/")
    locked = lock_of(name).tasks.get(key)
    if locked is None:
        raise ConfigError(f"there is no task {task_id}: task set {name} has no {key}")
    place = set_place(name) / f"{key}.json"
    try:
        data = disk.read_bytes(place, osworld.FILE_MAX)
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}") from None
    if sha256(data) != locked:
        raise ConfigError(f"task {task_id}: its file {place} has changed since it was locked")
    return msgspec.structs.replace(osworld.load(data), id=task_id)
