"""Which checkpoints a folder holds, without loading any of them.

Invariant: only a folder with the marker file counts; it is written last.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from runtime.errors import StoreError
from runtime.message import Version

MARKER = "complete.json"


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the marker file says."""

    version: str  # "LINEAGE.STEP"
    has_reference: bool
    dtype: str


def read_info(folder: Path) -> CheckpointInfo:
    """Raises StoreError unless `folder` is a complete checkpoint."""
    try:
        return msgspec.json.decode((folder / MARKER).read_bytes(), type=CheckpointInfo)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{folder} is not a complete checkpoint: {error}") from error


def complete(folder: Path) -> list[tuple[Version, Path]]:
    """Complete checkpoints in `folder`, oldest first; none when there is no such folder."""
    found = [marker.parent for marker in folder.glob(f"*/{MARKER}") if not marker.parent.name.startswith(".")]
    return sorted((Version.parse(read_info(path).version), path) for path in found)


def prune(folder: Path, keep: int) -> None:
    """Remove all complete checkpoints but the newest `keep`, and what killed writers left half done."""
    for _, old in complete(folder)[:-keep]:
        _remove(old)
    for partial in folder.glob(".*.partial"):
        shutil.rmtree(partial)


def forget_after(folder: Path, version: Version) -> list[Version]:
    """Remove all complete checkpoints newer than `version`; returns which."""
    found = [(newer, path) for newer, path in complete(folder) if newer > version]
    for _, path in found:
        _remove(path)
    return [newer for newer, _ in found]


def _remove(checkpoint: Path) -> None:
    # Renamed first: a removal cut short leaves nothing that looks complete, and what it leaves is pruned like the rest.
    partial = checkpoint.with_name(f".{checkpoint.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    checkpoint.rename(partial)
    shutil.rmtree(partial)
