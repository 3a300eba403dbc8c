"""The engine that one sampler actor talks to: a process of its own, or a server somewhere.

Invariant: `up` leaves a connected client whose engine has generated a token; `down` leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import aiohttp

from actors.sampler.client import EngineClient
from actors.sampler.config import SamplerSettings
from actors.sampler.engine_process import EngineProcess
from actors.sampler.latest import Latest
from runtime.clock import Clock
from runtime.errors import EngineError, EngineGone, SamplerError

_PROBE_PERIOD_S = 5.0
_EXIT_AFTER_BREAK_S = 5.0
_PROBE_TOKEN = 0


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

    async def up(self, latest: Latest) -> None:
        """Start or reach it, return after its first generated token. Raises SamplerError, ConfigError."""

    async def lost(self) -> str:
        """Return the cause, once the engine is gone."""

    async def condemn(self) -> None:
        """It does not answer any more: make `lost` return."""

    async def down(self) -> None:
        """End or leave it."""


class EmbeddedEngine:
    """A child process serving the newest weights from its start."""

    kind = "embedded"
    client: EngineClient

    def __init__(self, settings: SamplerSettings, name: str, run_dir: Path) -> None:
        file_name = name.replace("/", "-")
        self._settings = settings
        self._make = lambda: EngineProcess(
            settings, file_name, run_dir / "sockets", run_dir / "logs" / f"{file_name}.engine.log"
        )
        self._process = self._make()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    @property
    def last_output(self) -> list[str]:
        return list(self._process.last_lines)

    async def up(self, latest: Latest) -> None:
        """Start the process with `latest`."""
        self._process = self._make()
        await self._process.start(latest.location, str(latest.version))
        self.client = EngineClient(self._process.base_url, self._process.connector())
        answered = asyncio.ensure_future(self.client.first_token(_PROBE_TOKEN, self._settings.start_timeout_s))
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
    """A server that somebody else runs, reached by its URL."""

    kind = "attach"
    pid = 0
    exit_code = None

    def __init__(self, settings: SamplerSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._url = settings.attach
        self._condemned = False
        self.client: EngineClient

    @property
    def last_output(self) -> list[str]:
        return []

    async def up(self, latest: Latest) -> None:
        """Connect; its weights are compared and loaded by the caller."""
        self._condemned = False
        self.client = EngineClient(self._url, aiohttp.TCPConnector(limit=0))
        try:
            await self.client.first_token(_PROBE_TOKEN, self._settings.start_timeout_s)
        except EngineError as error:
            raise SamplerError(f"{self._url} refused its first request: {error}") from error

    async def lost(self) -> str:
        """Ask now and then: a remote server's end is no event here."""
        while not self._condemned:
            await self._clock.sleep(_PROBE_PERIOD_S)
            try:
                await self.client.model_info()
            except (EngineGone, EngineError) as error:
                return str(error)
        return "it did not answer"

    async def condemn(self) -> None:
        """Give the connection up."""
        self._condemned = True

    async def down(self) -> None:
        """Disconnect."""
        if hasattr(self, "client"):
            await self.client.close()
