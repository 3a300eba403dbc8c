"""The folders of checkpoints, weights and plans, and the newest weights taken from the rank.

Invariant: one export runs at a time, and a folder never holds other weights than its name says. Weights that go by
collective are kept in the rank's memory, and written once a part needs the folder: an engine that starts or was in no
group, an evaluation round, a checkpoint, the end of the run.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from actors.learner.messages import ExportWeights, Saved, WriteKept
from actors.sampler.messages import Weights
from policy import checkpoints
from policy.errors import NoModel
from runtime.disk import store_error
from runtime.errors import ConfigError
from runtime.messaging.message import Version
from runtime.program import program

CHECKPOINTS, WEIGHTS, PLANS = "checkpoints", "weights", "plans"  # in a run's folder
ADAPTERS = "adapters"


def weights_of(run_dir: Path, version: Version) -> Path:
    """Where the Hugging Face folder of `version` belongs."""
    return run_dir / WEIGHTS / str(version)


def checkpoint_of(run_dir: Path, version: Version) -> Path:
    """Where the checkpoint of `version` belongs."""
    return run_dir / CHECKPOINTS / str(version)


class RunFolders:
    """The learner's folders inside a run's."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._checkpoints, self._weights = run_dir / CHECKPOINTS, run_dir / WEIGHTS
        self._adapters = run_dir / ADAPTERS
        for folder in (self._checkpoints, self._weights, self._adapters):
            folder.mkdir(exist_ok=True)

    def checkpoints(self) -> list[tuple[Version, Path]]:
        return checkpoints.complete(self._checkpoints)[::-1]

    def forget_after(self, version: Version) -> list[Version]:
        """Remove complete checkpoints newer than `version`, and exports that killed ranks left half done.

        Returns the versions of those checkpoints. Only for a time when the rank writes nothing.
        """
        for partial in (*self._weights.glob(".*.partial"), *self._adapters.glob(".*.partial")):
            shutil.rmtree(partial)
        return checkpoints.forget_after(self._checkpoints, version)

    def prune_checkpoints(self, keep: int, needed_step: int | None = None) -> None:
        checkpoints.prune(self._checkpoints, keep, needed_step)

    def weights_count(self) -> int:
        return max(len(_versions(self._weights)), len(_versions(self._adapters)))

    def prune_weights(self, keep: int, needed: Collection[Version]) -> None:
        """Remove all exports but the newest `keep` and those of versions in `needed`."""
        for folder in (self._weights, self._adapters):
            for version in _versions(folder)[:-keep]:
                if version not in needed:
                    shutil.rmtree(folder / str(version))

    def clear_plans(self) -> None:
        """Remove the plan that the rank has learned from, and what a killed learner left."""
        shutil.rmtree(self._run_dir / PLANS, ignore_errors=True)


def _versions(folder: Path) -> list[Version]:
    return sorted(Version.parse(path.name) for path in folder.iterdir() if not path.name.startswith("."))


def newest_known(
    complete: Sequence[tuple[Version, Path]], digests: Sequence[str], trained: Version
) -> tuple[Version, Path | None, str]:
    """The newest checkpoint with a digest in the ledger, and that digest; no folder where there is none.

    `complete` is newest first, and `digests` are the ledger's in the same order. A newer checkpoint without a digest is
    of a learner that was killed before it could report it. Its steps are trained again. Raises ConfigError where steps
    were `trained` and the ledger has no digest of any checkpoint.
    """
    for (version, location), digest in zip(complete, digests, strict=True):
        if digest:
            return version, location, digest
    base = Version(lineage=0, step=0)
    if complete and trained != base:
        raise ConfigError(
            f"{complete[0][1]}: the ledger has no digest of this checkpoint, so it is not loaded (older builds recorded"
            f" none); begin a new run from the weights: {program()} export RUN DIR, then --set model.path=DIR"
        )
    return base, None, ""


P = ParamSpec("P")
T = TypeVar("T")


async def on_disk(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `work` returns, in a thread. Raises StoreError, DiskRefuses where it may succeed later."""
    try:
        return await asyncio.to_thread(work, *args, **named)
    except OSError as error:
        raise store_error("the run's folders", error) from error


AskRank = Callable[[ExportWeights | WriteKept], Awaitable[Saved]]


class Exports:
    """Holds one version's description: the newest."""

    def __init__(self, ask_rank: AskRank, run_dir: Path, group_owner: str, *, adapters: bool = False) -> None:
        """`run_dir` is the run's folder.

        `group_owner` names the actor that forms groups for these weights, or writes them when it is asked to; empty
        where they go by disk alone. With `adapters` an adapter is written of every version.
        """
        self._ask_rank, self._run_dir, self._group_owner, self._adapters = ask_rank, run_dir, group_owner, adapters
        self._one = asyncio.Lock()
        self.newest: Weights | None = None

    async def take(self, version: Version, *, write: bool) -> tuple[Weights, float]:
        """The rank's weights, which are `version`, as they are announced to samplers, and the seconds that it took.

        Weights by disk are always written, those by collective where `write` says so.
        """
        async with self._one:
            return await self._take(version, write=write)

    async def written(self, version: Version) -> Weights:
        """The newest weights, once they lie on disk. Raises NoModel when they are not `version`."""
        async with self._one:
            if self.newest is None or self.newest.version != version:
                raise NoModel(f"the newest weights are {self.newest and self.newest.version}, not {version}")
            return await self._written(self.newest)

    async def on_disk(self, version: Version) -> None:
        """See to it that the rank's weights, which are `version`, lie on disk."""
        async with self._one:
            if self.newest is None or self.newest.version != version:
                await self._take(version, write=True)
            else:
                await self._written(self.newest)

    async def _take(self, version: Version, *, write: bool) -> tuple[Weights, float]:
        location, keep = str(weights_of(self._run_dir, version)), bool(self._group_owner)
        adapter = str(self._run_dir / ADAPTERS / str(version)) if self._adapters else ""
        request = ExportWeights(version=version, location=location, keep=keep, write=write or not keep, adapter=adapter)
        saved = await self._ask_rank(request)
        self.newest = Weights(
            version=version,
            digest=saved.digest,
            location=location,
            canary=saved.canary,
            group_owner=self._group_owner,
            adapter=adapter,
            adapter_digest=saved.adapter_digest,
        )
        return self.newest, saved.seconds

    async def _written(self, weights: Weights) -> Weights:
        if not weights.digest:
            saved = await self._ask_rank(WriteKept(version=weights.version, location=weights.location))
            self.newest = weights = msgspec.structs.replace(weights, digest=saved.digest)
        return weights
