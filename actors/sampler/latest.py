"""The newest weights a sampler was told of, remembered across its restarts.

Invariant: the file names weights that were told, or is not there; a torn write can't be seen.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from actors.sampler.messages import Canary
from runtime.message import Value, Version


class Latest(Value):
    """Weights and where they lie."""

    version: Version
    location: str
    digest: str = ""
    canary: Canary | None = None
    gatherer: str = ""  # who gathers a group for them


def remember(path: Path, latest: Latest) -> None:
    """Write `latest` at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(latest))
    os.replace(fresh, path)


def recall(path: Path, fallback: Latest) -> Latest:
    """What was remembered, where it is newer than `fallback` and its weights still lie there."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Latest)
    except (FileNotFoundError, msgspec.MsgspecError):
        return fallback
    usable = found.version > fallback.version and (Path(found.location) / "config.json").exists()
    return found if usable else fallback
