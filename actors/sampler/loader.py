"""One load of weights into an engine, and the check of its result.

Invariant: after every load, the version that the engine reports is read back. Where the learner published
log-probabilities of a prompt, the engine's are compared with them. Between a load and that judgement nothing drawn is
handed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from actors.errors import EngineGone
from actors.learner.messages import Ticket
from actors.sampler import collective
from actors.sampler.client import EngineClient
from actors.sampler.config import SamplerSettings
from actors.sampler.health import Gate
from actors.sampler.messages import Canary, Weights
from policy import tensorfiles
from policy.errors import EngineBusy, EngineError
from policy.settings import ADAPTER
from runtime.messaging.message import Version

_DRAIN_MARGIN_S = 10.0
_BUSY_S = 0.2  # between two tries to score a canary in a full line
Asking = Callable[[], Awaitable[collective.Place | None]]  # for a place in a group; None: there is none, load from disk
Writing = Callable[[Weights], Awaitable[Weights]]  # see to it that weights lie on disk


# Mean differences of log-probabilities that are rounding at least, and at most. In bfloat16 two sound programs differ
# by 0.06 to 0.10 on arbitrary tokens, and by 0.4 on one of them (SmolLM2-135M; attention and heads of two kinds).
TOLERATED = {"float32": (1e-4, 1e-3), "bfloat16": (0.03, 0.3)}
GROWTH, TAIL = 3.0, 4.0  # of the first load's mean; of the mean, for the 99th percentile


class CanaryDifference(msgspec.Struct, frozen=True):
    """How an engine's log-probabilities of a canary differ from the learner's, in nats."""

    mean: float
    p99: float
    largest: float  # of one token: reported, and not judged

    def within(self, mean: float) -> bool:
        return self.mean <= mean and self.p99 <= TAIL * mean

    def __str__(self) -> str:
        return f"{self.mean:.3g} on average, {self.p99:.3g} at the 99th percentile, {self.largest:.3g} at most"


class WeightsVerdict(msgspec.Struct, frozen=True):
    """What the engine says of its weights: their version (None for a name that is none), and how it scores."""

    version: Version | None
    off_by: CanaryDifference | None  # None where there is no canary
    sound: bool
    way: str = "disk"  # or "collective", "shared", "adapter"
    missed: str = ""  # why it is "disk", where another was tried


class Loader:
    """Loads and judges.

    `judged` is set while no load waits for its judgement. `mixed` is set where a load broke off after it had begun. The
    engine may then hold parts of two versions under the older one's name.
    """

    def __init__(self, settings: SamplerSettings, gate: Gate) -> None:
        self._settings, self._gate = settings, gate
        self.judged = asyncio.Event()
        self.judged.set()
        self.mixed = False
        self.drained = False  # whether requests are kept out already
        self.measured: float | None = None  # mean difference of the first load that was sound

    def tolerance(self, canary: Canary) -> float:
        samplers = self._settings.samplers
        if samplers.canary_tolerance:
            return samplers.canary_tolerance
        least, most = TOLERATED["bfloat16" if "bfloat16" in (canary.dtype, samplers.engine.dtype) else "float32"]
        return most if self.measured is None else min(most, max(least, GROWTH * self.measured))

    async def load(
        self, client: EngineClient, latest: Weights, ask: Asking | None = None, written: Writing | None = None
    ) -> WeightsVerdict:
        """Put `latest` into the engine: its adapter, or all from the group where `ask` gives a place, else from disk.

        `written` is waited for before the disk is read. Raises EngineError where the engine refuses, EngineGone where
        it breaks.
        """
        settings, mode, place, way, missed = self._settings, self._settings.in_flight, None, "disk", ""
        adapter = adapter_of(latest) if settings.adapter_rank else None
        if adapter is None and self.adapter_name(latest.version):
            raise EngineError(f"{latest.location} holds no adapter, and SGLang keeps the first weights")
        late = ask is not None and mode == "drain"  # others would wait for what it still draws
        if adapter is not None:
            way, late = "adapter", False
            await self._compared(adapter, latest.adapter_digest)
        elif not late:
            place, latest = await self._source(latest, ask, written)
        # SGLang draws unfinished answers with the adapter that they began with.
        drains = mode == "drain" and (adapter is None or not settings.sglang)
        async with self.drain() if drains else contextlib.nullcontext():
            if late:
                place, latest = await self._source(latest, ask, written)
            self.judged.clear()
            try:
                if not settings.sglang:
                    await self._into_embedded(client, latest, adapter)
                elif adapter is not None:
                    limit_s = settings.load_limit_s(str(adapter))
                    await client.load_adapter(str(adapter), str(latest.version), limit_s)
                else:
                    async with self._paused(client, mode):
                        if place is not None:
                            way, missed = await self._from_group(client, latest, place)
                        if missed:
                            _, latest = await self._source(latest, None, written)
                        if way == "disk":
                            await self._from_disk(client, latest)
                verdict = await self.judge(client, latest)
                return msgspec.structs.replace(verdict, way=way, missed=missed)
            finally:
                self.judged.set()

    async def _source(
        self, latest: Weights, ask: Asking | None, written: Writing | None
    ) -> tuple[collective.Place | None, Weights]:
        """A place in a group; without one the weights have to lie on disk, and the engine goes on until they do."""
        if ask is not None and (place := await ask()) is not None:
            return place, latest
        if written is not None:
            latest = await written(latest)
        await self._compared(Path(latest.location), latest.digest)
        return None, latest

    async def _compared(self, folder: Path, digest: str) -> None:
        if self._settings.sglang:  # the embedded engine compares it
            await check_digest(folder, digest)

    async def _into_embedded(self, client: EngineClient, latest: Weights, adapter: Path | None) -> None:
        where, digest, more = latest.location, latest.digest, dict[str, str]()
        if adapter is not None:
            where, digest, more = self._settings.model, latest.adapter_digest, {"adapter_path": str(adapter)}
        retract, limit_s = self._settings.in_flight == "retract", self._settings.load_limit_s(where)
        await client.update(where, str(latest.version), limit_s, digest=digest, retract_running=retract, **more)

    def adapter_name(self, version: Version | None) -> str:
        """What SGLang calls the adapter of `version`; "" where it has none, which draws with the first weights."""
        first = version in (None, self._settings.version)
        return "" if first or not self._settings.sglang_adapters else str(version)

    async def judge(self, client: EngineClient, latest: Weights) -> WeightsVerdict:
        """Read the version back, and the canary's log-probabilities when the version is `latest`'s."""
        version = await self._version(client, latest)
        self.mixed = self.mixed and version != latest.version
        if latest.canary is None or version != latest.version:
            return WeightsVerdict(version, None, sound=True)
        scores = await self._score(client, latest.canary.ids, self.adapter_name(version))
        if (now := await self._version(client, latest)) != version:  # of others, in part
            return WeightsVerdict(now, None, sound=True)
        off_by = difference(scores, latest.canary.logprobs)
        return WeightsVerdict(version, off_by, sound=off_by.within(self.tolerance(latest.canary)))

    async def _version(self, client: EngineClient, latest: Weights) -> Version | None:
        if self.adapter_name(latest.version) and str(latest.version) in await client.adapters():
            return latest.version
        info = await client.model_info()
        try:
            return Version.parse(info.weight_version)
        except ValueError:
            return None

    async def _score(self, client: EngineClient, ids: list[int], adapter: str) -> list[float]:
        """A line that is full says nothing of the weights: ask again, as a request would. Raises EngineGone."""
        timeout_s = self._settings.samplers.load_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await client.score(ids, timeout_s, **({"adapter": adapter} if adapter else {}))
                    except EngineBusy:
                        await asyncio.sleep(_BUSY_S)
        except TimeoutError as error:
            raise EngineGone(f"a canary was not scored within {timeout_s:g} s") from error

    @property
    def _flush(self) -> bool:
        # A cache that running responses use can't be flushed; they go on with what the old weights made of it.
        return self._settings.in_flight != "in_place"

    async def _from_disk(self, client: EngineClient, latest: Weights) -> None:
        what, flush = (latest.location, str(latest.version)), self._flush
        timeout_s = self._settings.load_limit_s(latest.location)
        try:
            await client.update(*what, timeout_s, flush_cache=flush)
        except EngineError:
            # SGLang can't flush its cache for as long as its batch holds the response that it gave last, and says no
            # when it has the weights already: the next call finds the batch empty, or fails for a reason that stays.
            await client.update(*what, timeout_s, flush_cache=flush)

    async def _from_group(self, client: EngineClient, latest: Weights, place: collective.Place) -> tuple[str, str]:
        """The way it was done. Where the group failed, the second text says why, and the engine can still load from
        disk.
        """
        began = time.monotonic()
        try:
            if isinstance(place, Ticket):
                await collective.enter(client, place)
            self.mixed = True
            await collective.take(client, place, str(latest.version), flush=self._flush)
        except EngineError as error:
            return "disk", f"{error} ({time.monotonic() - began:.1f} s after it had a place)"
        return "collective" if isinstance(place, Ticket) else "shared", ""

    @contextlib.asynccontextmanager
    async def drain(self) -> AsyncIterator[None]:
        if self.drained:
            yield
            return
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


def difference(scores: list[float], expected: list[float]) -> CanaryDifference:
    """Of two lists of log-probabilities; infinite where they can't be compared."""
    pairs = sorted(abs(score - other) for score, other in zip(scores, expected, strict=False))
    if len(scores) != len(expected) or any(math.isnan(pair) for pair in pairs):
        return CanaryDifference(math.inf, math.inf, math.inf)
    if not pairs:
        return CanaryDifference(0.0, 0.0, 0.0)
    return CanaryDifference(math.fsum(pairs) / len(pairs), pairs[math.ceil(0.99 * len(pairs)) - 1], pairs[-1])


def adapter_of(weights: Weights) -> Path | None:
    """The folder of the adapter that `weights` have: announced, or next to the weights of a round."""
    beside = Path(weights.location, ADAPTER)
    return Path(weights.adapter) if weights.adapter else beside if beside.is_dir() else None


async def check_digest(folder: Path, expected: str) -> None:
    """Raise EngineError unless the tensors in `folder` have the `expected` digest; "" is that of any."""
    if not expected:
        return
    try:
        digest = await asyncio.to_thread(tensorfiles.digest, folder)
    except OSError as error:
        raise EngineError(f"can't read {folder}: {error}") from error
    if digest != expected:
        raise EngineError(f"{folder} has digest {digest}, not {expected}")
