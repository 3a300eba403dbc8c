"""Opens desktops for the library.

Invariant: a machine that can't boot them is refused in one line with its mend, before anything is started. All desktops
are gone when the block ends.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from actors.cluster.checks.tasks.command import refuse_unless_fit
from actors.cluster.config.schema import SeatsConfig
from actors.desktop.config import ProviderConfig, SandboxConfig
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares

LEASE_S = 4 * 3600.0  # a person may take long between two actions


class DesktopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which desktops to boot: `screen` is WIDTHxHEIGHT in pixels, `count` of them at the same time.

    A desktop is taken back `lease_s` seconds after it was handed out.
    """

    screen: str = "1280x720"
    count: int = 1
    provider: ProviderConfig = SandboxConfig()
    lease_s: float = LEASE_S


@asynccontextmanager
async def opened(settings: DesktopSettings, tasks: Sequence[str] = ()) -> AsyncIterator[DesktopPool]:
    """A pool that boots a desktop when it is asked for one; `tasks` are ids that will be played.

    Raises ConfigError.
    """
    seats = SeatsConfig(
        count=settings.count, warm_pool=0, screen=settings.screen, provider=settings.provider, screenshots="none"
    )
    refuse_unless_fit(list(tasks), settings.provider)
    seats = seats.within(shares.free(), "count")
    pool = await DesktopPool.open(seats.of_one_host(settings.lease_s), Path(f"front-{os.getpid()}"))
    try:
        yield pool
    finally:
        await pool.close()
