"""Which checkpoints a folder holds, and whether one is what was saved, without loading any of them.

Invariant: only a folder with the marker file counts; it is written last. A checkpoint's files hold pickles, so none is
loaded before `verify` has passed them as those that were saved.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
from pathlib import Path, PurePosixPath

import msgspec

from policy.settings import LoraConfig
from runtime import disk
from runtime.errors import ConfigError, StoreError
from runtime.messaging.message import Version

MARKER = "complete.json"


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the marker file says."""

    version: str  # "LINEAGE.STEP"
    has_reference: bool
    dtype: str
    lora: LoraConfig = LoraConfig()
    vision: str = "frozen"
    files: dict[str, str] = {}  # digest by name of all others below the folder, named last


def read_info(folder: Path) -> CheckpointInfo:
    """Raises StoreError unless `folder` is a complete checkpoint."""
    try:
        return msgspec.json.decode(disk.read_bytes(folder / MARKER, disk.MODEL), type=CheckpointInfo)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise StoreError(f"{folder} is not a complete checkpoint: {error}") from error


def complete(folder: Path) -> list[tuple[Version, Path]]:
    """Complete checkpoints in `folder`, oldest first; none when there is no such folder."""
    folders = [marker.parent for marker in folder.glob(f"*/{MARKER}") if not marker.parent.name.startswith(".")]
    return sorted((Version.parse(read_info(path).version), path) for path in folders)


def digests(folder: Path) -> dict[str, str]:
    """blake2b-128 (hex) of each file below `folder`, by its path there.

    Raises StoreError for a file that can't be read, and for anything that is neither a folder nor a plain file.
    """
    by_path: dict[str, str] = {}
    try:
        for path in sorted(folder.rglob("*")):
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise StoreError(f"{path} is no plain file")
            with path.open("rb") as file:
                content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            by_path[str(path.relative_to(folder))] = content
    except OSError as error:
        raise StoreError(f"{folder} can't be read: {error}") from error
    return by_path


def digest(folder: Path) -> str:
    """blake2b-128 (hex) of the names and contents of all files below `folder`. Raises StoreError as `digests`."""
    return total(digests(folder))


def total(files: dict[str, str]) -> str:
    """`digest` of a folder that has these `digests`, in any order."""
    whole = hashlib.blake2b(digest_size=16)
    for path, content in sorted(files.items(), key=lambda item: PurePosixPath(item[0])):
        name = path.encode("utf-8", "surrogateescape")
        whole.update(len(name).to_bytes(4, "little") + name + bytes.fromhex(content))
    return whole.hexdigest()


def verify(folder: Path, expected: str) -> None:
    """Raise ConfigError unless the files of checkpoint `folder` have the digest `expected`; it names one that differs.

    Raises StoreError when the folder is not a complete checkpoint.
    """
    info, actual = read_info(folder), digests(folder)
    if total(actual) != expected:
        raise ConfigError(
            f"{folder}: {_difference(info.files, actual)}: its files are not those that the run saved, and a changed"
            " one could run code while it is loaded; put the saved files back, or remove this folder to go on from an"
            " older checkpoint"
        )


def _difference(saved: dict[str, str], actual: dict[str, str]) -> str:
    """The first file that is not as the marker says; the marker itself, where all are."""
    for path in sorted((saved | actual).keys() - {MARKER}):
        if path not in actual:
            return f"{path} is missing"
        if actual[path] != saved.get(path):
            return f"{path} differs" if path in saved else f"{path} is new"
    return f"{MARKER} differs"


def prune(folder: Path, keep: int, needed_step: int | None = None) -> None:
    """Remove all complete checkpoints but the newest `keep` and those of optimizer step `needed_step`.

    Also what killed writers left half done.
    """
    for version, old in complete(folder)[:-keep]:
        if version.step != needed_step:
            _remove(old)
    for partial in folder.glob(".*.partial"):
        shutil.rmtree(partial)


def forget_after(folder: Path, version: Version) -> list[Version]:
    """Remove all complete checkpoints newer than `version`; returns which."""
    surplus = [(newer, path) for newer, path in complete(folder) if newer > version]
    for _, path in surplus:
        _remove(path)
    return [newer for newer, _ in surplus]


def _remove(checkpoint: Path) -> None:
    # Renamed first: a removal cut short leaves nothing that looks complete, and what it leaves is pruned like the rest.
    partial = checkpoint.with_name(f".{checkpoint.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    checkpoint.rename(partial)
    shutil.rmtree(partial)
