"""Starts the live page and says where it is.

Invariant: an address is told only once it is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from actors.cluster.web.server import LiveServer
from runtime.errors import ConfigError
from runtime.http import Guard, served

END_S = 2.0  # for browsers that still listen


def refuse_port(port: int, flag: str) -> None:
    """Raise ConfigError unless `port`, which `flag` named, can be one: servers take another in its place."""
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"{flag} {port}: it is between 0 and 65535")


async def serve(runs: Path, run: str, *, host: str, port: int, flag: str, told: Callable[[str], None]) -> None:
    """Serve the runs below `runs` until cancelled; `told` gets the address of `run`, or of all runs.

    Raises ConfigError, which begins with `flag`, where the address can't be had.
    """
    guard = Guard(host, pages=True)
    async with served(LiveServer(runs).app, guard, port, flag=flag, end_s=END_S) as bound:
        told(guard.address(bound, f"/runs/{run}" if run else "/"))
        await asyncio.Event().wait()
