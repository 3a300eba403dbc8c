"""Opens the provider that the settings name by `type`.

Invariant: only this module knows which providers there are. To add a provider, write its settings in
`actors/desktop/config.py` and register the function that opens it here.
"""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path

from actors.desktop.config import DesktopsConfig, SandboxConfig, SshConfig
from actors.desktop.provider import DesktopSpec, Provider
from actors.desktop.providers.sandbox import shares
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.ssh import SshProvider


@singledispatch
async def open_provider(settings: object, run_id: str) -> Provider:
    """The provider of these settings. `run_id` is the run's name. Raises ConfigError."""
    raise TypeError(f"{type(settings).__name__} names no provider")


@open_provider.register
async def _(settings: SandboxConfig, run_id: str) -> Provider:
    return await SandboxProvider.start(settings, run_id)


@open_provider.register
async def _(settings: SshConfig, run_id: str) -> Provider:
    return SshProvider(settings)


def desktop_of(config: DesktopsConfig, fit_seats: int = 0) -> DesktopSpec:
    """What the provider boots. With `fit_seats` a desktop's limits are lowered to what this machine has for so many.

    Other processes of the run have as much of the machine. To be called with `fit_seats` once the provider is open.

    Raises ConfigError where even the least limits of so many don't fit.
    """
    settings = config.provider
    if isinstance(settings, SshConfig):
        return DesktopSpec(width=config.screen.width, height=config.screen.height)
    if fit_seats:
        key, there = "desktops.count per process", shares.of_this_process(Path(settings.folder))
        settings = shares.fitted(settings, fit_seats, config.pool.warm_pool, there, key=key)
    return DesktopSpec.of(settings, config.screen)
