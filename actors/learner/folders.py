"""Where a run keeps checkpoints, exported weights and plans.

Invariant: the newest checkpoints and weights always stay, and so does what an open evaluation round needs. The rest is
removed, so the settings bound the use of the disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from policy import checkpoints
from runtime.errors import ConfigError
from runtime.messaging.message import Version
from runtime.program import program

CHECKPOINTS, WEIGHTS, PLANS = "checkpoints", "weights", "plans"  # in a run's folder


def weights_of(run_dir: Path, version: Version) -> Path:
    """Where the Hugging Face folder of `version` belongs."""
    return run_dir / WEIGHTS / str(version)


def checkpoint_of(run_dir: Path, version: Version) -> Path:
    """Where the checkpoint of `version` belongs."""
    return run_dir / CHECKPOINTS / str(version)


def plan_of(run_dir: Path, version: Version) -> Path:
    """Where a large plan for the step to `version` belongs."""
    return run_dir / PLANS / str(version)


class RunFolders:
    """The learner's folders inside a run's, on the disk of this machine."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._checkpoints, self._weights = run_dir / CHECKPOINTS, run_dir / WEIGHTS
        self._checkpoints.mkdir(exist_ok=True)
        self._weights.mkdir(exist_ok=True)

    def checkpoints(self) -> list[tuple[Version, Path]]:
        """The complete checkpoints, newest first."""
        return checkpoints.complete(self._checkpoints)[::-1]

    def forget_after(self, version: Version) -> list[Version]:
        """Remove complete checkpoints newer than `version`, and exports that killed ranks left half done.

        Returns the versions of those checkpoints. Only for a time when the rank writes nothing.
        """
        for partial in self._weights.glob(".*.partial"):
            shutil.rmtree(partial)
        return checkpoints.forget_after(self._checkpoints, version)

    def prune_checkpoints(self, keep: int) -> None:
        """Remove all but the newest `keep`."""
        checkpoints.prune(self._checkpoints, keep)

    def weights_count(self) -> int:
        """How many exports lie there."""
        return len(self._exports())

    def prune_weights(self, keep: int, needed: Collection[Version]) -> None:
        """Remove all exports but the newest `keep` and those of versions in `needed`."""
        for version in sorted(self._exports())[:-keep]:
            if version not in needed:
                shutil.rmtree(weights_of(self._run_dir, version))

    def clear_plans(self) -> None:
        """Remove the plan that the rank has learned from, and what a killed learner left."""
        shutil.rmtree(self._run_dir / PLANS, ignore_errors=True)

    def _exports(self) -> list[Version]:
        return [Version.parse(path.name) for path in self._weights.iterdir() if not path.name.startswith(".")]


def newest_known(
    found: Sequence[tuple[Version, Path]], digests: Sequence[str], trained: Version
) -> tuple[Version, Path | None, str]:
    """The newest checkpoint with a digest in the ledger, and that digest; no folder where there is none.

    `found` is newest first, and `digests` are the ledger's in the same order. A newer checkpoint without a digest is of
    a learner that was killed before it could report it. Its steps are trained again. Raises ConfigError where steps
    were `trained` and the ledger has no digest of any checkpoint.
    """
    for (version, location), digest in zip(found, digests, strict=True):
        if digest:
            return version, location, digest
    base = Version(lineage=0, step=0)
    if found and trained != base:
        raise ConfigError(
            f"{found[0][1]}: the ledger has no digest of this checkpoint, so it is not loaded (older builds recorded"
            f" none); begin a new run from the weights: {program()} export RUN DIR, then --set model.path=DIR"
        )
    return base, None, ""
