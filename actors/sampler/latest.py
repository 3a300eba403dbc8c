"""The newest weights that were announced to a sampler, and its pins, remembered across its restarts.

Invariant: the file names weights that were announced, or is not there. A torn write can't be seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from actors.sampler.messages import Canary
from runtime import disk
from runtime.messaging.message import Value, Version


class Latest(Value):
    """Weights and where they lie."""

    version: Version
    location: str
    digest: str = ""
    canary: Canary | None = None
    # The actor that forms a group for them. The files of runs have it under the key `gatherer`.
    group_owner: str = msgspec.field(name="gatherer", default="")


class Memory(Value):
    """What was announced to a sampler, and what it was asked to pin."""

    latest: Latest
    pins: dict[str, str] = {}  # version -> location


def remember(path: Path, latest: Latest, pins: Mapping[Version, str] = MappingProxyType({})) -> None:
    """Write `latest` and the pinned versions' locations at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    memory = Memory(latest=latest, pins={str(version): location for version, location in pins.items()})
    fresh.write_bytes(msgspec.json.encode(memory))
    os.replace(fresh, path)


def recall(path: Path, fallback: Latest) -> tuple[Latest, dict[Version, str]]:
    """What was remembered: the newest where it is newer than `fallback`, and pins; of both what can still be had.

    Weights can be had if they lie there. The newest can also be had if their group's owner writes them when it is asked
    to.
    """
    try:
        memory = msgspec.json.decode(disk.read_bytes(path), type=Memory)
    except (FileNotFoundError, msgspec.MsgspecError):
        return fallback, {}
    pins = {Version.parse(version): location for version, location in memory.pins.items() if there(location)}
    had = there(memory.latest.location) or (memory.latest.group_owner and not memory.latest.digest)
    usable = memory.latest.version > fallback.version and had
    return (memory.latest if usable else fallback), pins


def there(location: str) -> bool:
    """Whether a folder with weights lies there: it appears complete."""
    return (Path(location) / "config.json").exists()
