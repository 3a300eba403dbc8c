"""Exports that evaluation rounds need, kept where nobody else deletes them.

Invariant: a folder under `pinned/` is complete from the moment it has its name, and goes when no round needs it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from runtime.errors import StoreError
from runtime.message import Version


class PinnedFolders:
    """`<run_dir>/pinned/<version>`: links to the learner's exports, or copies across file systems."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "pinned"

    def location(self, version: Version) -> Path:
        """Where `version` is pinned."""
        return self._folder / str(version)

    def pin(self, version: Version, export: Path) -> Path:
        """Keep `export`. Raises StoreError when it is gone, because the learner removed it meanwhile."""
        target = self.location(version)
        if target.exists():
            return target
        scratch = self._folder / f".{version}.part"
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(export, scratch, copy_function=_link)
            os.replace(scratch, target)
        except (OSError, shutil.Error) as error:
            raise StoreError(f"can't keep the weights {version} from {export}: {error}") from error
        return target

    def release(self, needed: Collection[Version]) -> list[Version]:
        """Delete all versions not in `needed`; which they were."""
        gone = []
        for path in sorted(self._folder.glob("[0-9]*")):
            version = Version.parse(path.name)
            if version not in needed:
                shutil.rmtree(path)
                gone.append(version)
        return gone


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
