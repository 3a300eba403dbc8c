"""The newest weights taken from the rank, and whether they lie on disk.

Invariant: one export runs at a time, and a folder never holds other weights than its name says.

Weights that go by collective are kept in the rank's memory. They are written once a part needs the folder:
- an engine that starts, or that was in no group,
- an evaluation round,
- a checkpoint beside it,
- the end of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from actors.learner.folders import weights_of
from actors.learner.messages import ExportWeights, Saved, WriteKept
from actors.sampler.messages import Weights
from policy.errors import NoModel
from runtime.messaging.message import Version

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
