"""The reference workload: what this machine takes for a fixed amount of work, between what is measured.

The work is the same on every machine, on a desktop of its own, and involves no application. A cost as a
multiple of it says how much is done, however fast or busy the machine is.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import msgspec

from actors.desktop.faults import LinkState
from actors.desktop.link import LinkDown, connect
from actors.desktop.provider import Desktop
from actors.desktop.providers.sandbox.provider import SandboxProvider
from tests.bench import reference_rounds, stage
from tests.bench.report import median

ROUNDS_PROGRAM = Path(reference_rounds.__file__).read_text()
ROUNDS = 10  # within a series of actions
ROUND_S = 30.0


class ReferenceRound(msgspec.Struct, frozen=True, kw_only=True):
    """One round, or the median of several; None where nothing counts what desktops use."""

    cpu_ms: float | None  # user and system, of the guest's processes
    wall_ms: float


def middle(rounds: Sequence[ReferenceRound]) -> ReferenceRound:
    """The median of each figure. Raises ValueError for no rounds."""
    wall = median([each.wall_ms for each in rounds])
    if wall is None:
        raise ValueError("no rounds")
    counted = [each.cpu_ms for each in rounds if each.cpu_ms is not None]
    return ReferenceRound(cpu_ms=median(counted) if len(counted) == len(rounds) else None, wall_ms=wall)


class Reference:
    """The workload on its own desktop, at rest between rounds."""

    def __init__(self, made: SandboxProvider, desktop: Desktop, process: asyncssh.SSHClientProcess[str]) -> None:
        self._made = made
        self._desktop = desktop
        self._process = process

    async def round(self) -> ReferenceRound:
        """Work one round. Raises LinkDown."""
        before, began = (await self._made.probe(self._desktop)).cpu_s, time.perf_counter()
        self._process.stdin.write("\n")
        await self.hear(reference_rounds.DONE)
        wall_ms = 1e3 * (time.perf_counter() - began)
        used = (await self._made.probe(self._desktop)).cpu_s - before
        return ReferenceRound(cpu_ms=1e3 * used if used > 0 else None, wall_ms=wall_ms)

    async def hear(self, word: str) -> None:
        """Wait until the workload says `word`. Raises LinkDown."""
        try:
            async with asyncio.timeout(ROUND_S):
                line = (await self._process.stdout.readline()).strip()
        except TimeoutError:
            raise LinkDown(LinkState.SILENT, f"the reference workload took more than {ROUND_S:g} s") from None
        if line != word:
            raise LinkDown(LinkState.LOST, f"the reference workload said {line[:80]!r} in place of {word!r}")


async def _connected(desktop: Desktop) -> asyncssh.SSHClientConnection:
    try:
        async with asyncio.timeout(stage.CALL_S):
            return await connect(desktop)
    except (TimeoutError, OSError, asyncssh.Error) as error:
        raise LinkDown(LinkState.LOST, f"the reference workload: {type(error).__name__}") from error


async def _begun(connection: asyncssh.SSHClientConnection, words: Sequence[str]) -> asyncssh.SSHClientProcess[str]:
    try:
        async with asyncio.timeout(stage.CALL_S):
            return await connection.create_process(shlex.join(words))
    except (TimeoutError, asyncssh.Error) as error:
        raise LinkDown(LinkState.LOST, f"the reference workload: {type(error).__name__}") from error


@asynccontextmanager
async def opened(made: SandboxProvider) -> AsyncIterator[Reference]:
    """The workload, loaded and warm. Raises LinkDown."""
    booted = await stage.boot(made)
    await booted.link.close()
    try:
        connection = await _connected(booted.desktop)
        try:
            python, _, code, _, _, run = booted.desktop.agent
            words = [python, "-I", "-c", ROUNDS_PROGRAM, os.path.dirname(code), "--run", run]
            found = Reference(made, booted.desktop, await _begun(connection, words))
            await found.hear(reference_rounds.READY)
            await found.round()
            yield found
        finally:
            connection.abort()
    finally:
        await made.destroy(booted.desktop)
