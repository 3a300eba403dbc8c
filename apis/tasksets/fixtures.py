"""The fixtures that a task file names: the files that it starts with, and those that it expects.

A fixture belongs to its task, its URL and its name together. Some sets give one URL for all of their files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import msgspec

from apis.tasks.osworld import Download, Step, Task
from apis.tasksets import getters
from apis.tasksets.steps import name_of


class WantedFixture(msgspec.Struct, frozen=True, order=True):
    """A file that lies behind a URL."""

    task: str  # the file's own id, without its set and its domain
    url: str
    name: str  # of the file in the guest, or `dest` of a getter; "" where it has none

    @property
    def key(self) -> str:
        """What it is locked under: a sha256 in hex."""
        return hashlib.sha256("\0".join((self.task, self.url, self.name)).encode()).hexdigest()

    def __str__(self) -> str:
        return called(self.url, self.name)


def called(url: str, name: str) -> str:
    """A fixture for people: its URL, and its name where that says more."""
    return url if not name or url.endswith(f"/{name}") else f"{url} ({name})"


def downloads(steps: Iterable[Step]) -> Iterator[tuple[str, str, str]]:
    """Each file that `steps` put into the guest: its path there, its URL, its name."""
    for step in steps:
        if isinstance(step, Download):
            for file in step.parameters.files:
                yield file.path, file.url, name_of(file.path)


def named_by(task: Task) -> list[tuple[str, str]]:
    """The URL and the name of every file that `task` brings along or names, each once; `data:` URLs too."""
    found = [(url, name) for _, url, name in downloads([*task.config, *task.evaluator.postconfig])]
    found += [pair for getter in getters.sides(task.evaluator) for pair in getters.fixtures_of(getter)]
    return list(dict.fromkeys(found))


def wanted_by(task: Task) -> list[WantedFixture]:
    """Every fixture of `task`, each once; not those whose content is in their URL."""
    own = task.id.rpartition("/")[2]
    return [WantedFixture(own, *pair) for pair in named_by(task) if not pair[0].startswith("data:")]


def names_a_file(url: str) -> bool:
    """Whether `url` leads to more than a host: what a bare host serves is no file of a task."""
    parts = urlsplit(url)
    return bool(parts.path.strip("/") or parts.query)
