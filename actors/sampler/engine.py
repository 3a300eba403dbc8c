"""The engine that one sampler actor talks to: a process of its own, or a server somewhere.

Invariant: `up` leaves a connected client whose engine has generated a token; `down` leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Protocol

import aiohttp

from actors.errors import EngineGone, SamplerError
from actors.sampler.client import EngineClient
from actors.sampler.config import SamplerSettings, SglangConfig, attached_key
from actors.sampler.messages import Weights
from actors.sampler.process import EngineProcess, SglangProcess
from policy.errors import EngineBusy, EngineError
from runtime.clock import Clock

_PROBE_PERIOD_S = 5.0
_EXIT_AFTER_BREAK_S = 5.0
_PROBE_TOKEN = 0
_KNOCK_S = 0.5  # between two tries to reach a server that does not listen yet


class Engine(Protocol):
    """What the actor needs of an engine."""

    kind: str
    client: EngineClient

    @property
    def pid(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def last_output(self) -> list[str]: ...

    async def up(self, latest: Weights) -> None:
        """Start or reach it, return after its first generated token. Raises SamplerError, ConfigError."""

    async def lost(self) -> str:
        """Return the cause, once the engine is gone."""

    async def condemn(self) -> None:
        """It does not answer any more: make `lost` return."""

    async def down(self) -> None:
        """End or leave it."""


class StartedEngine:
    """A child process serving the newest weights from its start: the embedded engine's or a real SGLang server's."""

    client: EngineClient

    def __init__(self, settings: SamplerSettings, name: str, run_dir: Path, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._name, self._run_dir = name.replace("/", "-"), run_dir
        self.kind = "sglang" if settings.sglang else "embedded"
        self._process = self._make()

    def _make(self) -> EngineProcess | SglangProcess:
        engine = self._settings.samplers.engine
        log = self._run_dir / "logs" / f"{self._name}.engine.log"
        if isinstance(engine, SglangConfig):
            return SglangProcess(self._settings, engine, self._name, log)
        return EngineProcess(self._settings, self._name, self._run_dir / "sockets", log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    @property
    def last_output(self) -> list[str]:
        return list(self._process.last_lines)

    async def up(self, latest: Weights) -> None:
        """Start the process with `latest`."""
        self._process = self._make()
        await self._process.serve(latest.location, str(latest.version))
        self.client = EngineClient(self._process.base_url, self._process.connector(), self._process.token)
        answered = asyncio.ensure_future(self._first_token())
        ended = asyncio.ensure_future(self._process.exited())
        try:
            await asyncio.wait({answered, ended}, return_when=asyncio.FIRST_COMPLETED)
            if answered.done() and answered.exception() is not None:
                # A connection that broke is most often the process ending: its own reason says more.
                await asyncio.wait({ended}, timeout=_EXIT_AFTER_BREAK_S)
            if ended.done():
                raise SamplerError(f"the engine ended with {ended.result()} at its start: {self._process.tail()}")
            try:
                await answered
            except EngineError as error:
                raise SamplerError(f"the engine refused its first request: {error}") from error
        finally:
            answered.cancel()
            ended.cancel()
            await asyncio.gather(answered, ended, return_exceptions=True)

    async def _first_token(self) -> None:
        """Return after a real generation; SGLang listens only once it has loaded, and says so by no event."""
        limit_s = self._settings.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        return await self.client.first_token(_PROBE_TOKEN, limit_s)
                    except EngineGone:
                        if self.kind == "embedded":
                            raise
                    await self._clock.sleep(_KNOCK_S)
        except TimeoutError as error:
            raise EngineGone(f"no token within {limit_s:g} s: {self._process.tail()}") from error

    async def lost(self) -> str:
        """Wait for the process's end."""
        return f"the engine ended with {await self._process.exited()}: {self._process.tail()}"

    async def condemn(self) -> None:
        """Kill the process."""
        self._process.kill()

    async def down(self) -> None:
        """Stop the process."""
        if hasattr(self, "client"):
            await self.client.close()
        await self._process.stop()


class AttachedEngine:
    """A server that this run did not start, reached by its URL."""

    kind = "attach"
    pid = 0
    exit_code = None

    def __init__(self, settings: SamplerSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._url = settings.attach
        self._condemned = asyncio.Event()
        self._met = False  # whether it was ever there
        self.client: EngineClient

    @property
    def last_output(self) -> list[str]:
        return []

    async def up(self, latest: Weights) -> None:
        """Connect; its weights are compared and loaded by the caller.

        One that was there before may be starting again, which takes minutes, or stand still since a load broke off.
        """
        self._condemned.clear()
        self.client = EngineClient(
            self._url, aiohttp.TCPConnector(limit=0), attached_key(self._settings.samplers, os.environ)
        )
        limit_s = self._settings.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        with contextlib.suppress(EngineError):
                            await self.client.resume()
                        await self.client.first_token(_PROBE_TOKEN, limit_s)
                    except EngineGone:
                        if not self._met:
                            raise
                    except EngineBusy:  # its line is full, or a proxy before it waits for its start
                        pass
                    else:
                        break
                    await self._clock.sleep(_KNOCK_S)
        except EngineError as error:
            raise SamplerError(f"{self._url} refused its first request: {error}") from error
        except TimeoutError as error:
            raise EngineGone(f"{self._url} gave no token within {limit_s:g} s") from error
        self._met = True

    async def lost(self) -> str:
        """Ask now and then: a remote server's end is no event here."""
        while True:
            try:
                async with asyncio.timeout(_PROBE_PERIOD_S):
                    await self._condemned.wait()
            except TimeoutError:
                pass
            else:
                return "it did not answer"
            try:
                await self.client.model_info()
            except EngineBusy:
                continue
            except (EngineGone, EngineError) as error:
                return str(error)

    async def condemn(self) -> None:
        """Give the connection up."""
        self._condemned.set()

    async def down(self) -> None:
        """Disconnect."""
        if hasattr(self, "client"):
            await self.client.close()


def engine_of(settings: SamplerSettings, name: str, run_dir: Path, clock: Clock) -> Engine:
    """The engine of the sampler actor `name`, not yet up."""
    return AttachedEngine(settings, clock) if settings.attach else StartedEngine(settings, name, run_dir, clock)
