"""Exports that evaluation rounds need, kept where no other part deletes them.

Invariant: a folder under `pinned/` or `kept/` is complete from the moment it has its name. A pinned folder goes when
no round needs it. The kept folders are the weights of a few named rounds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from runtime.errors import StoreError
from runtime.messaging.message import Version

PINNED = "pinned"  # in a run's folder


class PinnedFolders:
    """`<run_dir>/pinned/<version>`: links to the learner's exports, or copies across file systems.

    `<run_dir>/kept/<version>` likewise, for weights that stay after the run.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / PINNED
        self._kept = run_dir / "kept"

    def clear(self) -> None:
        """Remove what a killed supervisor left half done."""
        for folder in (self._folder, self._kept):
            for part in folder.glob(".*.part"):
                shutil.rmtree(part)

    def location(self, version: Version) -> Path:
        """Where `version` is pinned."""
        return self._folder / str(version)

    def pin(self, version: Version, export: Path) -> Path:
        """Keep `export`. Raises StoreError when it is gone, because the learner removed it meanwhile."""
        return self._take(version, export, self.location(version))

    def keep(self, version: Version, export: Path) -> Path:
        """Keep `export` after its round, too. Raises StoreError like `pin`."""
        return self._take(version, export, self._kept / str(version))

    def forget(self, wanted: Collection[Version]) -> None:
        """Delete what is kept of versions not in `wanted`: a resume abandoned their rounds."""
        for version in _all_but(self._kept, wanted):
            shutil.rmtree(self._kept / str(version))

    def _take(self, version: Version, export: Path, target: Path) -> Path:
        if target.exists():
            return target
        scratch = target.with_name(f".{version}.part")
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(export, scratch, copy_function=_link)
            os.replace(scratch, target)
        except (OSError, shutil.Error) as error:
            raise StoreError(f"can't keep the weights {version} from {export}: {error}") from error
        return target

    def surplus(self, needed: Collection[Version]) -> list[Version]:
        """The pinned versions that are not in `needed`."""
        return _all_but(self._folder, needed)

    def release(self, version: Version) -> None:
        """Delete a pinned version, once no engine serves it any more."""
        shutil.rmtree(self.location(version))


def _all_but(folder: Path, needed: Collection[Version]) -> list[Version]:
    versions = sorted(Version.parse(path.name) for path in folder.glob("[0-9]*"))
    return [version for version in versions if version not in needed]


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
