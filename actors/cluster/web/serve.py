"""Starts the live page and says where it is.

Invariant: an address is told only once it is served.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from actors.cluster.web.server import LiveServer, is_loopback
from runtime.errors import ConfigError

END_S = 2.0  # for browsers that still listen


def refuse_port(port: int, flag: str) -> None:
    """Raise ConfigError unless `port`, which `flag` named, can be one: servers take another in its place."""
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"{flag} {port}: it is between 0 and 65535")


async def serve(runs: Path, run: str, *, host: str, port: int, told: Callable[[str], None]) -> None:
    """Serve the runs below `runs` until cancelled; `told` gets the address of `run`, or of all runs.

    Raises ConfigError where the address can't be had.
    """
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    runner = web.AppRunner(LiveServer(runs, token=token).app, access_log=None, shutdown_timeout=END_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigError(f"can't be served: {error.strerror}; port 0 is any free one") from None
        bound = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        told(f"http://{shown}:{bound}{f'/runs/{run}' if run else '/'}{f'?token={token}' if token else ''}")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
