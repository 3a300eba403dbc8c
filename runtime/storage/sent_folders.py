"""Folders that travel between a run's machines, file by file.

Invariant: a folder that was sent lies at its path whole and as its digests say, or not at all; a power cut leaves no
other. No name in it leads out of it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from runtime.disk import flush
from runtime.errors import StoreError
from runtime.messaging.message import Value

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


class FileEntry(Value):
    """A file of a folder, by its path there, and what it holds: blake2b-128, hex."""

    name: str
    size: int
    digest: str


def entries(folder: Path, *, weights: bool, nested: bool = False) -> list[FileEntry]:
    """The regular files of `folder`, with weights or without, by name; with `nested` those of its folders, too."""
    paths = sorted(path for path in (folder.rglob("*") if nested else folder.iterdir()) if path.is_file())
    return [
        FileEntry(name=path.relative_to(folder).as_posix(), size=path.stat().st_size, digest=_digest(path))
        for path in paths
        if weights or not is_weights(path.name)
    ]


def is_weights(name: str) -> bool:
    """Whether a file of this name holds weights."""
    return name.endswith(WEIGHTS)


def inner(folder: Path, name: str) -> Path:
    """The file `name` of `folder`. Raises StoreError for a name that is none."""
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise StoreError(f"{name!r} is no file of {folder}")
    return folder.joinpath(*parts)


def begin(folder: Path) -> None:
    """Make room for what is to lie at `folder`, in the place of an earlier beginning."""
    partial = _partial(folder)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def add(folder: Path, name: str, data: bytes) -> None:
    """Append to a file of a folder that was begun. Raises StoreError for a name that leads out of it."""
    path = inner(_partial(folder), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def finish(folder: Path, files: Sequence[FileEntry]) -> None:
    """Put what was begun at `folder`, replacing what is there. Raises StoreError unless it is `files`."""
    partial = _partial(folder)
    if entries(partial, weights=True, nested=True) != list(files):
        raise StoreError(f"{folder} is not what was sent")
    for path in (*partial.rglob("*"), partial):
        flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    flush(folder.parent)


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
