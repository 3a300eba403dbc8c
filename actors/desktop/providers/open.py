"""Opens the provider that the settings name by `type`.

Invariant: only this module knows which providers there are. To add a provider, write its settings in
`actors/desktop/config.py` and register the function that opens it here.
"""

from __future__ import annotations

from functools import singledispatch

from actors.desktop.config import DesktopsConfig, SandboxConfig, SshConfig
from actors.desktop.provider import DesktopSpec, Provider
from actors.desktop.providers.sandbox import shares
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.ssh import SshProvider


async def open_provider(config: DesktopsConfig, run_id: str) -> tuple[Provider, DesktopSpec]:
    """The provider, and the desktops that it boots. `run_id` is the run's name. Raises ConfigError."""
    return await _opened(config.provider, config, run_id)


@singledispatch
async def _opened(settings: object, config: DesktopsConfig, run_id: str) -> tuple[Provider, DesktopSpec]:
    raise TypeError(f"{type(settings).__name__} names no provider")


@_opened.register
async def _(settings: SandboxConfig, config: DesktopsConfig, run_id: str) -> tuple[Provider, DesktopSpec]:
    if config.fit_seats:
        settings = shares.fitted(settings, config.fit_seats, config.pool.warm_pool, shares.room())
    return await SandboxProvider.start(settings, run_id), DesktopSpec.of(settings, config.screen)


@_opened.register
async def _(settings: SshConfig, config: DesktopsConfig, run_id: str) -> tuple[Provider, DesktopSpec]:
    return SshProvider(settings), DesktopSpec(width=config.screen.width, height=config.screen.height)
