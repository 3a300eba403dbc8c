"""Demonstrations that come along, in place of new ones: what a soak breaks is in RL sooner.

Invariant: only demonstrations of the named families are taken, each as it was recorded.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from actors.cluster.config import deploy_files
from actors.replay.demos import demo_files
from actors.replay.rules.cold_start import family_of


def bundled() -> Path:
    """The main job's recording."""
    return deploy_files.bundled()["local"].parent / "demos" / "local.parquet"


def write(families: Collection[str], into: Path) -> list[str]:
    """Write the bundled demonstrations of `families` to the recording `into`; the task of each.

    Writes nothing and returns none where a family has none. Raises StoreError.
    """
    header, demos = demo_files.read(bundled())
    kept = [demo for demo in demos if family_of(demo.task) in families]
    tasks = [demo.task for demo in kept]
    if not set(families) <= {family_of(task) for task in tasks}:
        return []
    shown = [one for one in header.tasks if one.task in set(tasks)]
    demo_files.write(into, msgspec.structs.replace(header, demos=len(kept), tasks=shown), kept)
    return tasks
