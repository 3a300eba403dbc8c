"""The folders of checkpoints, weights and plans, and the newest weights taken from the rank.

Invariant: the actor `folders` lives with the main host, and so do the folders, wherever the learner is. Its requests
are carried out one after another: those of a lost learner are over before those of its successor begin. One export runs
at a time, and a folder never holds other weights than its name says.

Weights that go by collective are kept in the rank's memory. They are written once a part needs the folder: an engine
that starts or was in no group, an evaluation round, a checkpoint, the end of the run.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from actors.learner.messages import (
    ClearPlans,
    CountWeights,
    ExportWeights,
    FolderBytes,
    ForgetAfter,
    FoundCheckpoint,
    FoundCheckpoints,
    GetFolderBytes,
    ListCheckpoints,
    PruneCheckpoints,
    PruneWeights,
    Saved,
    WeightsCount,
    WriteKept,
)
from actors.sampler.messages import Weights
from policy import checkpoints
from policy.errors import NoModel
from runtime.actor import Actor, handles
from runtime.disk import store_error
from runtime.errors import ConfigError
from runtime.messaging.message import Done, Request, Version
from runtime.messaging.refs import Ref
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


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
LONG_WORK_S, ASK_S = 600.0, 900.0  # to remove a large checkpoint from a slow disk


class FoldersActor(Actor):
    """Carries out what the learner decides."""

    async def on_start(self) -> None:
        self._folders = RunFolders(self.ctx.run_dir)

    @handles(ListCheckpoints)
    async def checkpoints(self, _: ListCheckpoints) -> FoundCheckpoints:
        """Raises StoreError where a marker file can't be read."""
        found = await _on_disk(self._folders.checkpoints)
        return FoundCheckpoints(
            checkpoints=[FoundCheckpoint(version=version, location=str(path)) for version, path in found]
        )

    @handles(ForgetAfter, slow_after_s=LONG_WORK_S)
    async def forget_after(self, msg: ForgetAfter) -> Done:
        """What the ledger is about to undo must never be resumed from."""
        await _on_disk(self._folders.forget_after, msg.version)
        return Done()

    @handles(PruneCheckpoints, slow_after_s=LONG_WORK_S)
    async def prune_checkpoints(self, msg: PruneCheckpoints) -> Done:
        """The newest stay."""
        await _on_disk(self._folders.prune_checkpoints, msg.keep)
        return Done()

    @handles(CountWeights)
    async def weights_count(self, _: CountWeights) -> WeightsCount:
        """Those that are whole."""
        return WeightsCount(count=await _on_disk(self._folders.weights_count))

    @handles(PruneWeights, slow_after_s=LONG_WORK_S)
    async def prune_weights(self, msg: PruneWeights) -> Done:
        """The newest stay, and those that open evaluation rounds need."""
        await _on_disk(self._folders.prune_weights, msg.keep, set(msg.needed))
        return Done()

    @handles(ClearPlans, slow_after_s=LONG_WORK_S)
    async def clear_plans(self, _: ClearPlans) -> Done:
        """The rank has learned from them, or nothing ever will."""
        await _on_disk(self._folders.clear_plans)
        return Done()

    @handles(GetFolderBytes)
    async def folder_bytes(self, msg: GetFolderBytes) -> FolderBytes:
        """Of a model or a checkpoint."""
        return FolderBytes(size_bytes=await _on_disk(_bytes_of, Path(msg.location)))


class KeptFolders:
    """What the learner asks of the actor behind `ref`. Raises StoreError where the disk keeps it from its work."""

    def __init__(self, ref: Ref) -> None:
        self._ref = ref

    async def checkpoints(self) -> list[tuple[Version, Path]]:
        """The complete checkpoints, newest first."""
        return [(one.version, Path(one.location)) for one in (await self._ask(ListCheckpoints())).checkpoints]

    async def forget_after(self, version: Version) -> None:
        """Remove what is newer than `version` or half done. Only while no rank writes."""
        await self._ask(ForgetAfter(version=version))

    async def prune_checkpoints(self, keep: int) -> None:
        """Remove all but the newest `keep`."""
        await self._ask(PruneCheckpoints(keep=keep))

    async def weights_count(self) -> int:
        """How many exports there are."""
        return (await self._ask(CountWeights())).count

    async def prune_weights(self, keep: int, needed: Iterable[Version]) -> None:
        """Remove all exports but the newest `keep` and those in `needed`."""
        await self._ask(PruneWeights(keep=keep, needed=list(needed)))

    async def clear_plans(self) -> None:
        """Remove plans that went by a file."""
        await self._ask(ClearPlans())

    async def bytes_of(self, location: str) -> int:
        """The size of a folder with all in it."""
        return (await self._ask(GetFolderBytes(location=location))).size_bytes

    async def _ask(self, msg: Request[R]) -> R:
        return await self._ref.ask_until(msg, timeout_s=ASK_S, give_up_s=ASK_S)


async def _on_disk(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `work` returns. Raises StoreError, DiskRefuses where it may succeed later."""
    try:
        return await asyncio.to_thread(work, *args, **named)
    except OSError as error:
        raise store_error("the run's folders", error) from error


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


AskRank = Callable[[ExportWeights | WriteKept], Awaitable[Saved]]


class Exports:
    """Holds one version's description: the newest."""

    def __init__(self, ask_rank: AskRank, run_dir: Path, group_owner: str) -> None:
        """`run_dir` is the run's folder with the main host.

        `group_owner` names the actor that forms groups for these weights; empty where they go by disk alone.
        """
        self._ask_rank, self._run_dir, self._group_owner = ask_rank, run_dir, group_owner
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
        request = ExportWeights(version=version, location=location, keep=keep, write=write or not keep)
        saved = await self._ask_rank(request)
        self.newest = Weights(
            version=version,
            digest=saved.digest,
            location=location,
            canary=saved.canary,
            group_owner=self._group_owner,
        )
        return self.newest, saved.seconds

    async def _written(self, weights: Weights) -> Weights:
        if not weights.digest:
            saved = await self._ask_rank(WriteKept(version=weights.version, location=weights.location))
            self.newest = weights = msgspec.structs.replace(weights, digest=saved.digest)
        return weights
