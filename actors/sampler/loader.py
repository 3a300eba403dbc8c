"""How weights get into one engine, and how it is known that they did.

Invariant: after every load the engine's own word for its weights is read back, and where the learner said what they
make of a prompt, so is what the engine makes of it. Between a load and that judgement nothing drawn is handed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from actors.sampler.client import EngineClient
from actors.sampler.config import SamplerSettings
from actors.sampler.gate import Gate
from actors.sampler.latest import Latest
from runtime.errors import EngineError, EngineGone
from runtime.message import Version

_DRAIN_MARGIN_S = 10.0
Way = Callable[[EngineClient, Latest], Awaitable[None]]  # puts weights into an engine that draws nothing meanwhile


class Verdict(msgspec.Struct, frozen=True):
    """What the engine says of its weights: their version (None for a name that is none), and how it scores."""

    version: Version | None
    off_by: float | None  # largest difference of a canary's log-probability; None where there is no canary
    sound: bool


class Loader:
    """Loads and judges. `judged` is set while no load is waiting for its judgement."""

    def __init__(self, settings: SamplerSettings, gate: Gate) -> None:
        self._settings, self._gate = settings, gate
        self.judged = asyncio.Event()
        self.judged.set()

    async def load(self, client: EngineClient, latest: Latest, way: Way | None = None) -> Verdict:
        """Put `latest` into the engine, from disk unless `way` is given.

        Raises EngineError where the engine refuses, EngineGone where it breaks.
        """
        if self._settings.sglang and way is None:
            await check_digest(latest)
        mode = self._settings.updating
        async with self._drained() if mode == "drain" else contextlib.nullcontext():
            self.judged.clear()
            try:
                if not self._settings.sglang:
                    await client.update(
                        latest.location,
                        str(latest.version),
                        self._settings.load_timeout_s,
                        digest=latest.digest,
                        retract=mode == "retract",
                    )
                else:
                    async with self._paused(client, mode):
                        await (way or self._from_disk)(client, latest)
                return await self.judge(client, latest)
            finally:
                self.judged.set()

    async def judge(self, client: EngineClient, latest: Latest) -> Verdict:
        """Read the version back, and the canary's log-probabilities when the version is `latest`'s."""
        info = await client.model_info()
        try:
            version = Version.parse(info.weight_version)
        except ValueError:
            version = None
        if latest.canary is None or version != latest.version:
            return Verdict(version, None, sound=True)
        found = await client.score(latest.canary.ids, self._settings.load_timeout_s)
        off_by = difference(found, latest.canary.logprobs)
        return Verdict(version, off_by, sound=off_by <= self._settings.samplers.canary_tolerance)

    async def _from_disk(self, client: EngineClient, latest: Latest) -> None:
        # A cache that running responses use can't be flushed; they go on with what the old weights made of it.
        flush = self._settings.updating != "in_place"
        await client.update_from_disk(latest.location, str(latest.version), self._settings.load_timeout_s, flush=flush)

    @contextlib.asynccontextmanager
    async def _drained(self) -> AsyncIterator[None]:
        # A request ends within its own limit, so this one is never reached unless the engine is lost.
        limit_s = self._settings.samplers.generate_timeout_s + _DRAIN_MARGIN_S
        try:
            async with self._gate.closed(limit_s):
                yield
        except TimeoutError as error:
            raise EngineGone(f"requests have not ended within {limit_s:g} s") from error

    @contextlib.asynccontextmanager
    async def _paused(self, client: EngineClient, mode: str) -> AsyncIterator[None]:
        """Without a pause SGLang would wait for running responses to end; drained there are none."""
        if mode == "drain":
            yield
            return
        await client.pause(mode)
        try:
            yield
        finally:
            await client.resume()


def difference(found: list[float], expected: list[float]) -> float:
    """The largest difference of two lists of log-probabilities; infinite where they can't be compared."""
    if len(found) != len(expected):
        return float("inf")
    pairs = [abs(one - other) for one, other in zip(found, expected, strict=True)]
    return max((float("inf") if pair != pair else pair for pair in pairs), default=0.0)  # noqa: PLR0124 - NaN


async def check_digest(latest: Latest) -> None:
    """Raise EngineError unless the weights' file has the digest that the learner said, where it said one."""
    if not latest.digest:
        return
    found = await asyncio.to_thread(_digest, Path(latest.location))
    if found != latest.digest:
        raise EngineError(f"{latest.location} has digest {found}, not {latest.digest}")


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
    except OSError as error:
        raise EngineError(f"can't read {folder}: {error}") from error
    return digest.hexdigest()
