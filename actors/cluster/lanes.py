"""Which tasks each lane plays, spelled out.

Invariant: every id names a task that exists, and no held-out task is ever trained or demonstrated.
"""

from __future__ import annotations

import msgspec

from actors.replay.config import TaskList, TasksConfig, expand
from apis import tasks
from runtime.errors import ConfigError


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Task ids by lane."""

    train: list[str]
    eval: list[str]
    demo: list[str]


def lanes_of(config: TasksConfig) -> Lanes:
    """The tasks of a deploy file. Raises ConfigError for an unknown, empty, repeated or leaked one."""
    lanes = Lanes(train=_lane("train", config.train), eval=_lane("eval", config.eval), demo=_lane("demo", config.demo))
    for name, ids in (("train", lanes.train), ("demo", lanes.demo)):
        leaked = set(ids) & set(lanes.eval)
        if leaked:
            raise ConfigError(f"tasks.{name}: {min(leaked)} is also in tasks.eval, which must be held out")
    return lanes


def _lane(name: str, listed: TaskList) -> list[str]:
    for entry in listed:
        if not isinstance(entry, str) and (entry.count < 1 or entry.first < 0):
            raise ConfigError(f"tasks.{name}: a range begins at 0 or later and holds at least one task")
    try:
        ids = expand(listed)
        # All ids of a range differ in their number alone, so the first stands for them.
        for entry in listed:
            tasks.task(entry if isinstance(entry, str) else f"{entry.family}/{entry.split}/{entry.first}")
    except ConfigError as error:
        raise ConfigError(f"tasks.{name}: {error}") from None
    return ids
